// Combines the parts of a step: forward and backward passes, data parallelism and optimizer.
#include "colonnade/cost/step_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "colonnade/base/error.h"
#include "colonnade/config/optimizers.h"
#include "colonnade/cost/flops.h"
#include "colonnade/cost/model_cost.h"
#include "colonnade/cost/verdict.h"
#include "colonnade/layout/buckets.h"
#include "colonnade/layout/mesh.h"
#include "colonnade/layout/optimizer_groups.h"
#include "colonnade/layout/params/gpt.h"
#include "colonnade/rules/rules.h"

namespace colonnade::cost {
namespace {

/// Estimate of one run.
class Estimator {
 public:
  Estimator(const config::Run& run, const Hardware& hardware, const LocalSizes& sizes,
            const ForwardBackwardTime& passes)
      : run_(run),
        hw_(hardware),
        sizes_(sizes),
        times_(passes.stages),
        pipeline_(passes.pipeline),
        busiest_(passes.busiest),
        mesh_(run_.parallel),
        stages_(passes.blocks),
        ranks_(run_.parallel.pipeline_model_parallel_size),
        chunks_(static_cast<int>(stages_.size()) / ranks_),
        placement_(schedule::placement_of(run_.parallel, chunks_)),
        microbatches_(static_cast<int>(std::max<std::int64_t>(1, rules::num_microbatches(run_)))),
        sharding_(layout::sharding_of(run_.parallel)),
        levels_(layout::replica_levels(run_.parallel, mesh_)),
        dtypes_(config::dtypes_of(run_)),
        gradient_(static_cast<double>(config::bytes(dtypes_.gradient_wire))),
        parameter_(static_cast<double>(config::bytes(dtypes_.parameter_wire))) {
    for (const layout::ParamGroup group : layout::kParamGroups) data_.of(group) = rings(group);
  }

  StepTime estimate() {
    add_elements();
    add_embedding_copies();
    StepTime t;
    t.compute = busiest_.compute;
    t.tensor = busiest_.tensor;
    t.context = busiest_.context;
    t.dispatch = busiest_.dispatch;
    t.bubble = std::max(0.0, pipeline_.makespan - busiest_.total());
    t.data = (shards_gradients() ? fsdp_seconds() : gradient_reduce_seconds() + param_gather_seconds()) +
             inter_instance_seconds();
    t.optimizer = optimizer_seconds() + matrix_update_seconds();
    t.other = hw_.step_seconds;
    t.step = busiest_.total() + t.bubble + t.data + t.optimizer + t.other;
    const double sequences = static_cast<double>(run_.training.micro_batch_size) * microbatches_ *
                             run_.parallel.data_parallel_size();
    const double devices = mesh_.world_size();
    t.tokens_per_second_per_device =
        sequences * static_cast<double>(sample_length(run_).all()) / t.step / devices;
    const double flops = training_flops_by_part(sizes_.flops, static_cast<std::int64_t>(sequences)).total();
    t.mfu = flops / t.step / devices /
            (dtypes_.activation == config::Dtype::kFloat32 ? hw_.fp32_flops : hw_.peak_flops);
    return t;
  }

 private:
  [[nodiscard]] std::size_t stage(int rank, int chunk) const {
    return static_cast<std::size_t>(placement_.stage(rank, chunk));
  }

  /// Elements of the stages, which are consecutive runs of the model's blocks.
  void add_elements() {
    std::size_t first = 0;
    for (const layout::StageBlocks& stage : stages_) {
      const std::size_t last = first + stage.blocks.size();
      first_block_.push_back(first);
      Elements sum = sizes_.before_block[last];
      elements_.push_back(sum -= sizes_.before_block[first]);
      first = last;
    }
  }

  /// Copies of tied word embeddings, one for each rank whose first reader is not the embedding block; other
  /// readers gather them again.
  void add_embedding_copies() {
    regathered_.resize(stages_.size());
    for (int rank = 0; rank < ranks_; ++rank) {
      bool holds_words = false;
      for (int chunk = 0; chunk < chunks_; ++chunk) {
        const std::size_t at = stage(rank, chunk);
        holds_words = holds_words || stages_[at].has(layout::BlockKind::kEmbedding);
        if (!layout::word_reader_after_layers(run_.model, stages_[at])) continue;
        (holds_words ? regathered_ : elements_)[at] += sizes_.word_embeddings;
        holds_words = true;
      }
    }
  }

  /// Data-parallel ranks of one instance, and ranks at the same position in all instances.
  struct Rings {
    Ring inner, outer;
    AllToAll exchange;  ///< within an instance
  };
  [[nodiscard]] Rings rings(layout::ParamGroup group) const {
    const std::vector<int> all = mesh_.peers(0, layout::data_axes(group));
    const auto inner = static_cast<std::size_t>(levels_.inner.of(group));
    std::vector<int> across;
    for (std::size_t i = 0; i < all.size(); i += inner) across.push_back(all[i]);
    const std::vector<int> instance(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(inner));
    return {ring_of(hw_, instance), ring_of(hw_, across), all_to_all_of(hw_, instance)};
  }

  /// Sum of seconds(rings, elements) over the parameter groups; one without elements has no communication,
  /// except the dense one.
  template <typename Seconds>
  [[nodiscard]] double over_groups(const Elements& elements, const Seconds& seconds) const {
    double sum = 0;
    for (const layout::ParamGroup group : layout::kParamGroups)
      if (group == layout::ParamGroup::kDense || elements.of(group) > 0)
        sum += seconds(data_.of(group), elements.of(group));
    return sum;
  }

  /// Seconds of an all-gather or reduce-scatter within an instance, with `bytes` per element.
  [[nodiscard]] double data_seconds(const Elements& elements, double bytes) const {
    return over_groups(
        elements, [bytes](const Rings& rings, double held) { return rings.inner.seconds(bytes * held); });
  }
  /// Seconds of the gradient reduce-scatter, or of the all-to-all that replaces it for fp32 accumulation.
  [[nodiscard]] double scatter_seconds(const Elements& elements) const {
    if (!run_.parallel.ddp_reduce_scatter_with_fp32_accumulation) return data_seconds(elements, gradient_);
    return over_groups(elements, [this](const Rings& rings, double held) {
      return rings.exchange.seconds(gradient_ * held);
    });
  }
  [[nodiscard]] bool is_unreplicated() const {
    return std::ranges::all_of(data_.values, [](const Rings& rings) { return rings.inner.ranks < 2; });
  }

  /// All-reduce of the gradient shards between instances after the backward passes, or with sharding across
  /// instances reduce-scatter and parameter all-gather; for the rank with most elements.
  [[nodiscard]] double inter_instance_seconds() const {
    const double bytes = gradient_ + (levels_.outer_sharded ? parameter_ : gradient_);
    double most = 0;
    for (int rank = 0; rank < ranks_; ++rank) {
      most = std::max(most, over_groups(elements_on(rank), [bytes](const Rings& rings, double held) {
                        return rings.outer.seconds(bytes * held / rings.inner.ranks);
                      }));
    }
    return most;
  }
  [[nodiscard]] Elements elements_on(int rank) const {
    Elements held;
    for (int chunk = 0; chunk < chunks_; ++chunk) held += elements_[stage(rank, chunk)];
    return held;
  }

  [[nodiscard]] const schedule::ChunkTimes& times(int rank, int chunk) const {
    return pipeline_.chunks[static_cast<std::size_t>(rank)][static_cast<std::size_t>(chunk)];
  }

  /// Seconds of a rank's last bucket, which cannot overlap.
  [[nodiscard]] double last_bucket(int rank, double seconds, double elements) const {
    const auto bucket = static_cast<double>(
        layout::bucket_elements(run_.parallel, mesh_.size(layout::data_axes(layout::ParamGroup::kDense)),
                                static_cast<std::int64_t>(elements_on(rank).all())));
    return elements > bucket ? seconds * bucket / elements : seconds;
  }

  /// Exposed part of the gradient reduction: after the last backward pass of all ranks.
  [[nodiscard]] double gradient_reduce_seconds() const {
    if (is_unreplicated()) return 0;
    const bool reduce_scatters = sharding_ >= layout::Sharding::kOptimizer;
    double exposed = 0;
    double overlap_cost = 0;
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
        const double seconds =
            reduce_scatters ? scatter_seconds(elements) : 2 * data_seconds(elements, gradient_);
        const schedule::ChunkTimes& at = times(rank, chunk);
        if (run_.parallel.overlap_grad_reduce) {
          const double begun = std::max(end, -at.last_backward_begin);
          end = std::max(begun + seconds, -at.last_backward_end + last_bucket(rank, seconds, elements.all()));
          hidden += std::max(0.0, seconds - std::max(0.0, end));
        } else {
          end = std::max(end, -times(rank, order.back()).last_backward_end) + seconds;
        }
      }
      exposed = std::max(exposed, end);
      overlap_cost = std::max(overlap_cost, hw_.overlap_cost * hidden);
    }
    return std::max(exposed, 0.0) + overlap_cost;
  }

  /// Exposed part of the all-gather of updated parameters: before the first forward passes.
  [[nodiscard]] double param_gather_seconds() const {
    if (is_unreplicated() || sharding_ < layout::Sharding::kOptimizer) return 0;
    double late = 0;
    double overlap_cost = 0;
    for (int rank = 0; rank < ranks_; ++rank) {
      double end = 0;
      for (int chunk = 0; chunk < chunks_; ++chunk) {
        const Elements& elements = elements_[stage(rank, chunk)];
        const double seconds = data_seconds(elements, parameter_);
        end += seconds;
        if (!run_.parallel.overlap_param_gather) continue;
        const double forward = times_[stage(rank, chunk)].forward.total();
        const double begin = times(rank, chunk).first_forward_end - forward;
        const double first = end - seconds + last_bucket(rank, seconds, elements.all());
        late = std::max({late, first - begin, end - begin - forward});
        overlap_cost = std::max(overlap_cost, hw_.overlap_cost * std::min(end, forward));
      }
      if (!run_.parallel.overlap_param_gather) late = std::max(late, end);
    }
    return late + overlap_cost;
  }

  [[nodiscard]] bool shards_gradients() const { return sharding_ >= layout::Sharding::kGradients; }

  /// FSDP communication, block by block: reduce-scatters after every backward pass, and all-gathers for both
  /// passes with sharded parameters (else once per step), overlapped as the settings say; for the rank with
  /// most of it.
  [[nodiscard]] double fsdp_seconds() const {
    if (is_unreplicated()) return 0;
    const bool shards_params = sharding_ == layout::Sharding::kParameters;
    double most = 0;
    for (int rank = 0; rank < ranks_; ++rank) {
      double sum = 0;
      for (int chunk = 0; chunk < chunks_; ++chunk) {
        Elements elements = elements_[stage(rank, chunk)];
        elements += regathered_[stage(rank, chunk)];
        const double gather = shards_params ? data_seconds(elements, parameter_) : 0;
        const double scatter = scatter_seconds(elements);
        const StageTime& t = times_[stage(rank, chunk)];
        const auto blocks = static_cast<double>(stages_[stage(rank, chunk)].layers().size() + 2);
        const config::Parallel& p = run_.parallel;
        const double hidden_gather = p.overlap_param_gather ? gather : 0;
        const double hidden_scatter = p.overlap_grad_reduce ? scatter : 0;
        const double regather = p.torch_fsdp2_reshard_after_forward ? 1 : 0;  // gathered again for backward
        sum += microbatches_ *
               ((1 + regather) * (gather - hidden_gather) + (scatter - hidden_scatter) +
                exposed_seconds(hw_, hidden_gather, t.forward.total()) +
                exposed_seconds(hw_, regather * hidden_gather + hidden_scatter, t.backward.total()) +
                (hidden_gather + hidden_scatter) / blocks);
      }
      most = std::max(most, sum);
    }
    return shards_params ? most : most + param_gather_seconds();
  }

  /// Optimizer step of the rank with most elements: gradients read for the norm and for the update and
  /// zeroed, main parameters and states read and written, parameters written. With a scale, all inputs of the
  /// update are read a second time.
  [[nodiscard]] double optimizer_seconds() const {
    const bool sharded = sharding_ >= layout::Sharding::kOptimizer;
    double most = 0, updated = 0;
    for (int rank = 0; rank < ranks_; ++rank) {
      const Elements held = elements_on(rank);
      const layout::ReplicaCounts parts = levels_.shard_counts();
      most = std::max(most, held.all());
      double part = 0;
      for (const layout::ParamGroup group : layout::kParamGroups) part += held.of(group) / parts.of(group);
      updated = std::max(updated, sharded ? part : held.all());
    }
    const auto gradient = static_cast<double>(config::bytes(dtypes_.main_gradient));
    const auto main = static_cast<double>(config::bytes(dtypes_.main_parameter));
    double states = 0;
    bool scaled = dtypes_.has_main_copy() && config::has_scale(dtypes_.main_parameter);
    for (const std::string_view name : config::optimizer_states(run_.optimizer.optimizer, run_.optimizer)) {
      states += static_cast<double>(config::bytes(dtypes_.state(name)));
      scaled = scaled || config::has_scale(dtypes_.state(name));
    }
    const double copied = dtypes_.has_main_copy() ? static_cast<double>(config::bytes(dtypes_.parameter)) : 0;
    const double again = scaled ? gradient + main + states : 0;
    const double per_element = 2 * gradient + 2 * main + 2 * states + copied + again;
    const double zeroed = (shards_gradients() ? updated : most) * gradient;
    return (updated * per_element + zeroed) / (hw_.memory_bandwidth * hw_.memory_share);
  }

  /// Muon: its matrices move to the ranks that orthogonalize them, which the ranks of a stage share, and
  /// back.
  [[nodiscard]] double matrix_update_seconds() const {
    if (sizes_.newton_schulz_before_block.empty()) return 0;
    const layout::AxisSet stage_axes{layout::Axis::kTp, layout::Axis::kCp, layout::Axis::kDp};
    const auto hidden = static_cast<double>(run_.model.hidden_size);
    const double speed = hw_.peak_flops * hw_.matmul_share(hidden, hidden, hidden) * hw_.sustained_share;
    const layout::ReplicaCounts parts = levels_.shard_counts();
    const AllToAll exchange = all_to_all_of(hw_, mesh_.peers(0, stage_axes));
    double most = 0;
    for (int rank = 0; rank < ranks_; ++rank) {
      double flops = 0, elements = 0;
      for (int chunk = 0; chunk < chunks_; ++chunk) {
        const std::size_t first = first_block_[stage(rank, chunk)];
        const std::size_t last = first + stages_[stage(rank, chunk)].blocks.size();
        flops += sizes_.newton_schulz_before_block[last] - sizes_.newton_schulz_before_block[first];
      }
      const Elements held = elements_on(rank);
      for (const layout::ParamGroup group : layout::kParamGroups)
        elements += held.of(group) / parts.of(group);
      const double bytes = elements * static_cast<double>(config::bytes(dtypes_.main_parameter));
      most = std::max(most, flops / mesh_.size(stage_axes) / speed + 2 * exchange.seconds(bytes));
    }
    return most;
  }

  const config::Run& run_;
  const Hardware& hw_;
  const LocalSizes& sizes_;
  const std::vector<StageTime>& times_;  ///< by virtual stage
  const schedule::PipelineTimes& pipeline_;
  const PassTime& busiest_;
  layout::Mesh mesh_;
  const std::vector<layout::StageBlocks>& stages_;
  int ranks_, chunks_;
  schedule::Placement placement_;
  int microbatches_;
  layout::Sharding sharding_;
  layout::ReplicaLevels levels_;
  layout::PerGroup<Rings> data_;  ///< replicas of each group's parameters
  config::Dtypes dtypes_;
  double gradient_, parameter_;     ///< bytes per element on the wire: of a gradient, and of a parameter
  std::vector<Elements> elements_;  ///< by virtual stage
  std::vector<std::size_t> first_block_;  ///< by virtual stage
  std::vector<Elements> regathered_;      ///< by virtual stage: tied embeddings gathered once more
};

/// FLOPs of the Newton-Schulz steps of a parameter's matrices. A step on [m, n], m <= n, has two GEMMs of
/// 2 m^2 n and one of 2 m^3.
double newton_schulz_flops(const config::Muon& settings, const layout::ParamSpec& spec) {
  const auto rows = static_cast<double>(spec.shape[spec.shape.size() - 2]);
  const auto columns = static_cast<double>(spec.shape.back());
  const double m = std::min(rows, columns), n = std::max(rows, columns);
  const double matrices = static_cast<double>(spec.numel()) / (m * n);
  return matrices * settings.num_ns_steps * (4 * m * m * n + 2 * m * m * m);
}

void add_newton_schulz(const ModelCost& model, LocalSizes& sizes) {
  const config::Optimizer& settings = model.run().optimizer;
  const auto groups = layout::optimizer_groups(settings);
  double flops = 0;
  sizes.newton_schulz_before_block.push_back(flops);
  for (const layout::BlockId& block : model.blocks()) {
    model.for_each_param(block, [&](const layout::ParamSpec& spec) {
      const layout::OptimizerGroup& group = groups[layout::first_match(groups, spec)];
      if (spec.trained && !group.frozen && !group.optimizer)
        flops += newton_schulz_flops(settings.muon, spec);
    });
    sizes.newton_schulz_before_block.push_back(flops);
  }
}

}  // namespace

Elements& Elements::operator+=(const Elements& other) {
  for (const layout::ParamGroup group : layout::kParamGroups) of(group) += other.of(group);
  return *this;
}

Elements& Elements::operator-=(const Elements& other) {
  for (const layout::ParamGroup group : layout::kParamGroups) of(group) -= other.of(group);
  return *this;
}

double Elements::all() const { return std::accumulate(std::begin(values), std::end(values), 0.0); }

LocalSizes local_sizes(const ModelCost& model) {
  const config::Run& run = model.run();
  const layout::Position position = layout::Mesh(run.parallel).position(0);
  LocalSizes sizes;
  const auto count = [&position](Elements& sum) {
    return [&sum, &position](const layout::ParamSpec& spec) {
      const auto held = static_cast<double>(layout::shard(spec, position).numel());
      sum.of(spec.param_group) += held;
    };
  };
  count(sizes.word_embeddings)(layout::embedding_params(run.model, run.parallel).word);
  sizes.flops = forward_flops(model);
  sizes.before_block.emplace_back();
  for (const layout::BlockId& block : model.blocks()) {
    sizes.before_block.push_back(sizes.before_block.back());
    model.for_each_param(block, count(sizes.before_block.back()));
  }
  if (config::traits_of(run.optimizer.optimizer).updates_matrices) add_newton_schulz(model, sizes);
  return sizes;
}

StepTime estimate_step(const config::Run& run, const Hardware& hardware, const Execution& execution) {
  return estimate_step(ModelCost(run), hardware, execution);
}

StepTime estimate_step(const ModelCost& model, const Hardware& hardware, const Execution& execution) {
  schedule::ScheduleCache schedules;
  return estimate_step(model.run(), hardware, local_sizes(model),
                       forward_backward_time(model, hardware, execution, schedules));
}

StepTime estimate_step(const config::Run& run, const Hardware& hardware, const LocalSizes& sizes,
                       const ForwardBackwardTime& passes) {
  return Estimator(run, hardware, sizes, passes).estimate();
}

Table step_time_table(const StepTime& t) {
  Table table{{"part of the step", "time", "share"}};
  const auto row = [&](const char* name, double seconds) {
    table.push_back({name, duration_text(seconds), fmt::format("{:.1f}%", 100 * seconds / t.step)});
  };
  row("compute", t.compute);
  row("tensor-parallel comm", t.tensor);
  if (t.context > 0) row("context-parallel comm", t.context);
  if (t.dispatch > 0) row("expert-parallel comm", t.dispatch);
  row("pipeline bubble", t.bubble);
  row("data-parallel comm", t.data);
  row("optimizer", t.optimizer);
  row("other", t.other);
  return table;
}

std::string step_time_text(const StepTime& t, const Hardware& hardware) {
  return fmt::format("estimate on {}: {} per step, {:.1f} tokens/s per device, MFU {:.1f}%\n{}",
                     hardware.name, duration_text(t.step), t.tokens_per_second_per_device, 100 * t.mfu,
                     table_text(step_time_table(t)));
}

}  // namespace colonnade::cost
