// Puts the parts of a step together: to the passes what data parallelism and the optimizer add.
#include "colonnade/cost/step_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "colonnade/base/error.h"
#include "colonnade/cost/activations.h"
#include "colonnade/cost/flops.h"
#include "colonnade/cost/memory.h"
#include "colonnade/cost/verdict.h"
#include "colonnade/layout/buckets.h"
#include "colonnade/layout/mesh.h"
#include "colonnade/layout/params/gpt.h"
#include "colonnade/rules/rules.h"

namespace colonnade::cost {
namespace {

constexpr double kFp32 = 4;

bool in_fp32(const config::Model& m) { return m.params_dtype == config::ParamsDtype::kFloat32; }

/// One estimate.
class Estimator {
 public:
  Estimator(const config::Run& run, const Hardware& hardware, const LocalSizes& sizes,
            const StepPasses& passes)
      : run_(run),
        hw_(hardware),
        sizes_(sizes),
        times_(passes.stages),
        pipeline_(passes.pipeline),
        most_(passes.most),
        mesh_(run.parallel),
        stages_(layout::split_stages(run.model, run.parallel)),
        ranks_(run.parallel.pipeline_model_parallel_size),
        chunks_(static_cast<int>(stages_.size()) / ranks_),
        placement_(schedule::placement_of(run.parallel, chunks_)),
        microbatches_(static_cast<int>(std::max<std::int64_t>(1, rules::num_microbatches(run)))),
        sharding_(layout::sharding_of(run.parallel)),
        levels_(layout::levels_of(run.parallel, mesh_)),
        data_(rings(layout::Family::kDense)),
        expert_data_(rings(layout::Family::kExpert)),
        gradient_(static_cast<double>(layout::travelling_element(run.parallel))),
        element_(static_cast<double>(element_size(run.model))) {}

  StepTime estimate() {
    for (const layout::StageBlocks& stage : stages_) elements_.push_back(elements_of(stage));
    add_words();
    StepTime t;
    t.compute = most_.compute;
    t.tensor = most_.tensor;
    t.context = most_.context;
    t.experts = most_.experts;
    t.bubble = std::max(0.0, pipeline_.makespan - most_.total());
    t.data = (by_unit() ? sharded_data() : gradients() + parameters()) + between_instances();
    t.optimizer = optimizer();
    t.other = hw_.step_seconds;
    t.step = most_.total() + t.bubble + t.data + t.optimizer + t.other;
    const double sequences = static_cast<double>(run_.training.micro_batch_size) * microbatches_ *
                             run_.parallel.data_parallel_size();
    const double devices = mesh_.world_size();
    t.tokens_per_second_per_device =
        sequences * static_cast<double>(sample_length(run_).all()) / t.step / devices;
    const double flops = training_flops(run_.model, sample_length(run_), static_cast<std::int64_t>(sequences),
                                        mesh_.size(layout::Axis::kTp));
    t.mfu = flops / t.step / devices / (in_fp32(run_.model) ? hw_.fp32_flops : hw_.peak_flops);
    return t;
  }

 private:
  [[nodiscard]] std::size_t stage(int rank, int chunk) const {
    return static_cast<std::size_t>(placement_.stage(rank, chunk));
  }

  [[nodiscard]] Elements elements_of(const layout::StageBlocks& stage) const {
    const auto at = [this](std::int64_t layer) {
      return sizes_.up_to_layer[static_cast<std::size_t>(layer)];
    };
    const Elements before = at(stage.first_layer);
    Elements sum = at(stage.first_layer + stage.num_layers);
    sum.dense -= before.dense;
    sum.expert -= before.expert;
    if (stage.embedding) sum += sizes_.embedding;
    if (stage.final_norm) sum += sizes_.final_norm;
    if (stage.head) sum += sizes_.head;
    return sum;
  }

  /// Copies of the table of word embeddings, one for each rank whose first reader is no embedding; other
  /// readers gather it again.
  void add_words() {
    again_.resize(stages_.size());
    for (int rank = 0; rank < ranks_; ++rank) {
      std::vector<layout::StageBlocks> own;
      for (int chunk = 0; chunk < chunks_; ++chunk) own.push_back(stages_[stage(rank, chunk)]);
      const layout::FirstReaders first = layout::first_readers(run_.model, own);
      for (int chunk = 0; chunk < chunks_; ++chunk) {
        const std::size_t at = stage(rank, chunk);
        if (layout::reads_words_again(run_.model, stages_[at], first))
          again_[at] += sizes_.words;
        else if (layout::word_reader_at_end(run_.model, stages_[at]))
          elements_[at] += sizes_.words;
      }
    }
  }

  /// Data ranks next to each other that share what is sharded, and those at one place in all such groups.
  struct Rings {
    Ring inner, outer;
    Exchange exchange;  ///< of the inner ones
  };
  [[nodiscard]] Rings rings(layout::Family family) const {
    const std::vector<int> all = mesh_.peers(0, layout::data_axes(family));
    const auto inner = static_cast<std::size_t>(levels_.inner.of(family));
    std::vector<int> places;
    for (std::size_t i = 0; i < all.size(); i += inner) places.push_back(all[i]);
    const std::vector<int> near(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(inner));
    return {ring_of(hw_, near), ring_of(hw_, places), exchange_of(hw_, near)};
  }

  /// Of a gather, or of a sum and scatter, of `bytes` each, over the ranks that share what is sharded.
  [[nodiscard]] double data_seconds(const Elements& elements, double bytes) const {
    const double experts = elements.expert > 0 ? expert_data_.inner.seconds(bytes * elements.expert) : 0;
    return data_.inner.seconds(bytes * elements.dense) + experts;
  }
  /// Of gradients that are summed and scattered, or exchanged and added up.
  [[nodiscard]] double scatter_seconds(const Elements& elements) const {
    if (!run_.parallel.ddp_reduce_scatter_with_fp32_accumulation) return data_seconds(elements, gradient_);
    const double experts =
        elements.expert > 0 ? expert_data_.exchange.seconds(gradient_ * elements.expert) : 0;
    return data_.exchange.seconds(gradient_ * elements.dense) + experts;
  }
  [[nodiscard]] bool alone() const { return data_.inner.ranks < 2 && expert_data_.inner.ranks < 2; }

  /// Sums of the parts between instances, behind the backward passes, and where these share updates the
  /// gather of what they updated; of the rank that holds most.
  [[nodiscard]] double between_instances() const {
    const double bytes = gradient_ + (levels_.outer_cut ? element_ : gradient_);
    double most = 0;
    for (int rank = 0; rank < ranks_; ++rank) {
      const Elements held = held_by(rank);
      most =
          std::max(most, data_.outer.seconds(bytes * held.dense / data_.inner.ranks) +
                             (held.expert > 0
                                  ? expert_data_.outer.seconds(bytes * held.expert / expert_data_.inner.ranks)
                                  : 0));
    }
    return most;
  }
  [[nodiscard]] Elements held_by(int rank) const {
    Elements held;
    for (int chunk = 0; chunk < chunks_; ++chunk) held += elements_[stage(rank, chunk)];
    return held;
  }

  [[nodiscard]] const schedule::ChunkTimes& times(int rank, int chunk) const {
    return pipeline_.chunks[static_cast<std::size_t>(rank)][static_cast<std::size_t>(chunk)];
  }

  /// What is left of `seconds` when only the last bucket of a rank cannot hide.
  [[nodiscard]] double last_bucket(int rank, double seconds, double elements) const {
    const auto bucket = static_cast<double>(
        layout::bucket_elements(run_.parallel, mesh_.size(layout::data_axes(layout::Family::kDense)),
                                static_cast<std::int64_t>(held_by(rank).all())));
    return elements > bucket ? seconds * bucket / elements : seconds;
  }

  /// The sum of gradients over the data ranks: what of it lies behind the last backward pass of all ranks.
  [[nodiscard]] double gradients() const {
    if (alone()) return 0;
    const bool scattered = sharding_ >= layout::Sharding::kOptimizer;
    double behind = 0;
    double slowed = 0;
    for (int rank = 0; rank < ranks_; ++rank) {
      std::vector<int> order(static_cast<std::size_t>(chunks_));
      std::iota(order.begin(), order.end(), 0);
      std::sort(order.begin(), order.end(), [&](int a, int b) {
        return times(rank, a).last_backward_begin > times(rank, b).last_backward_begin;
      });
      double end = -pipeline_.makespan;  // relative to the end of the last backward pass
      double hidden = 0;
      for (const int chunk : order) {
        const Elements& elements = elements_[stage(rank, chunk)];
        const double seconds = scattered ? scatter_seconds(elements) : 2 * data_seconds(elements, gradient_);
        const schedule::ChunkTimes& at = times(rank, chunk);
        if (run_.parallel.overlap_grad_reduce) {
          const double begun = std::max(end, -at.last_backward_begin);
          end = std::max(begun + seconds, -at.last_backward_end + last_bucket(rank, seconds, elements.all()));
          hidden += std::max(0.0, seconds - std::max(0.0, end));
        } else {
          end = std::max(end, -times(rank, order.back()).last_backward_end) + seconds;
        }
      }
      behind = std::max(behind, end);
      slowed = std::max(slowed, hw_.overlap_cost * hidden);
    }
    return std::max(behind, 0.0) + slowed;
  }

  /// The gather of updated parameters: what of it lies in front of the first forward passes.
  [[nodiscard]] double parameters() const {
    if (alone() || sharding_ < layout::Sharding::kOptimizer) return 0;
    double late = 0;
    double slowed = 0;
    for (int rank = 0; rank < ranks_; ++rank) {
      double end = 0;
      for (int chunk = 0; chunk < chunks_; ++chunk) {
        const Elements& elements = elements_[stage(rank, chunk)];
        const double seconds = data_seconds(elements, element_);
        end += seconds;
        if (!run_.parallel.overlap_param_gather) continue;
        const double forward = times_[stage(rank, chunk)].forward.total();
        const double begin = times(rank, chunk).first_forward_end - forward;
        const double first = end - seconds + last_bucket(rank, seconds, elements.all());
        late = std::max({late, first - begin, end - begin - forward});
        slowed = std::max(slowed, hw_.overlap_cost * std::min(end, forward));
      }
      if (!run_.parallel.overlap_param_gather) late = std::max(late, end);
    }
    return late + slowed;
  }

  [[nodiscard]] bool by_unit() const { return sharding_ >= layout::Sharding::kGradients; }

  /// Gradients scattered behind every backward pass, and parameters gathered for both passes where they are
  /// cut (else once a step), block by block, beside the passes where the settings overlap them; of the rank
  /// that has most of it.
  [[nodiscard]] double sharded_data() const {
    if (alone()) return 0;
    const bool values = sharding_ == layout::Sharding::kParameters;
    double most = 0;
    for (int rank = 0; rank < ranks_; ++rank) {
      double sum = 0;
      for (int chunk = 0; chunk < chunks_; ++chunk) {
        Elements elements = elements_[stage(rank, chunk)];
        elements += again_[stage(rank, chunk)];
        const double gather = values ? data_seconds(elements, element_) : 0;
        const double scatter = scatter_seconds(elements);
        const StageTime& t = times_[stage(rank, chunk)];
        const auto blocks = static_cast<double>(stages_[stage(rank, chunk)].num_layers + 2);
        const config::Parallel& p = run_.parallel;
        const double hidden_gather = p.overlap_param_gather ? gather : 0;
        const double hidden_scatter = p.overlap_grad_reduce ? scatter : 0;
        const double again = p.torch_fsdp2_reshard_after_forward ? 1 : 0;  // for the backward pass
        sum += microbatches_ * ((1 + again) * (gather - hidden_gather) + (scatter - hidden_scatter) +
                                unhidden(hw_, hidden_gather, t.forward.total()) +
                                unhidden(hw_, again * hidden_gather + hidden_scatter, t.backward.total()) +
                                (hidden_gather + hidden_scatter) / blocks);
      }
      most = std::max(most, sum);
    }
    return values ? most : most + parameters();
  }

  /// Of the rank that holds most: gradients read for the norm and for the update and set to zero, main
  /// parameters and moments read and written, parameters written.
  [[nodiscard]] double optimizer() const {
    const bool cut = sharding_ >= layout::Sharding::kOptimizer;
    double most = 0, own = 0;
    for (int rank = 0; rank < ranks_; ++rank) {
      const Elements held = held_by(rank);
      const layout::Replicas parts = levels_.parts();
      most = std::max(most, held.all());
      own = std::max(own, cut ? held.dense / parts.dense + held.expert / parts.expert : held.all());
    }
    const bool adam = run_.optimizer.optimizer == config::OptimizerKind::kAdam;
    const double copied = in_fp32(run_.model) ? 0 : element_;  // else the main parameters are the model's
    const double per_element = 2 * kFp32 + 2 * kFp32 + (adam ? 4 : 2) * kFp32 + copied;
    const double zeroed = (by_unit() ? own : most) * kFp32;
    return (own * per_element + zeroed) / (hw_.memory_bandwidth * hw_.memory_share);
  }

  const config::Run& run_;
  const Hardware& hw_;
  const LocalSizes& sizes_;
  const std::vector<StageTime>& times_;  ///< by virtual stage
  const schedule::PipelineTimes& pipeline_;
  const PassTime& most_;
  layout::Mesh mesh_;
  std::vector<layout::StageBlocks> stages_;
  int ranks_, chunks_;
  schedule::Placement placement_;
  int microbatches_;
  layout::Sharding sharding_;
  layout::Levels levels_;
  Rings data_, expert_data_;        ///< replicas of dense parameters and of experts
  double gradient_, element_;       ///< bytes: of a gradient on its way, and of a parameter
  std::vector<Elements> elements_;  ///< by virtual stage
  std::vector<Elements> again_;     ///< the same: what its blocks gather beside that
};

}  // namespace

Elements& Elements::operator+=(const Elements& other) {
  dense += other.dense;
  expert += other.expert;
  return *this;
}

LocalSizes local_sizes(const config::Run& run) {
  const layout::Position position = layout::Mesh(run.parallel).position(0);
  LocalSizes sizes;
  const auto count = [&position](Elements& sum) {
    return [&sum, &position](const layout::ParamSpec& spec) {
      const auto held = static_cast<double>(layout::shard(spec, position).numel());
      (spec.family == layout::Family::kExpert ? sum.expert : sum.dense) += held;
    };
  };
  layout::for_each(layout::embedding_params(run.model, run.parallel), count(sizes.embedding));
  count(sizes.words)(layout::embedding_params(run.model, run.parallel).word);
  layout::for_each(layout::final_params(run.model, run.parallel), count(sizes.final_norm));
  layout::for_each(layout::head_params(run.model, run.parallel), count(sizes.head));
  sizes.up_to_layer.emplace_back();
  for (std::int64_t layer = 0; layer < run.model.all_layers(); ++layer) {
    Elements sum = sizes.up_to_layer.back();
    layout::for_each(layout::layer_params(run.model, run.parallel, layer), count(sum));
    sizes.up_to_layer.push_back(sum);
  }
  return sizes;
}

StepTime estimate_step(const config::Run& run, const Hardware& hardware, const Execution& execution) {
  schedule::KnownSchedules schedules;
  return estimate_step(run, hardware, local_sizes(run), step_passes(run, hardware, execution, schedules));
}

StepTime estimate_step(const config::Run& run, const Hardware& hardware, const LocalSizes& sizes,
                       const StepPasses& passes) {
  return Estimator(run, hardware, sizes, passes).estimate();
}

Table step_time_table(const StepTime& t) {
  Table table{{"part of the step", "time", "share"}};
  const auto row = [&](const char* name, double seconds) {
    table.push_back({name, duration_text(seconds), fmt::format("{:.1f}%", 100 * seconds / t.step)});
  };
  row("compute", t.compute);
  row("tensor ranks", t.tensor);
  if (t.context > 0) row("context ranks", t.context);
  if (t.experts > 0) row("expert ranks", t.experts);
  row("pipeline idle", t.bubble);
  row("data ranks", t.data);
  row("optimizer", t.optimizer);
  row("other", t.other);
  return table;
}

std::string step_time_text(const StepTime& t, const Hardware& hardware) {
  return fmt::format("estimate on {}: {} a step, {:.1f} tokens/s per device, MFU {:.1f}%\n{}", hardware.name,
                     duration_text(t.step), t.tokens_per_second_per_device, 100 * t.mfu,
                     table_text(step_time_table(t)));
}

}  // namespace colonnade::cost
