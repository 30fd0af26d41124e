// See compare_layouts.h.
#include "colonnade/train/compare_layouts.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <set>

#include "colonnade/base/error.h"
#include "colonnade/comm/thread_ranks.h"
#include "colonnade/config/schema.h"
#include "colonnade/config/stacks.h"
#include "colonnade/convert/slices.h"
#include "colonnade/job/prepare.h"
#include "colonnade/job/token_steps.h"
#include "colonnade/layout/params/gpt.h"
#include "colonnade/tensor/parameter.h"
#include "colonnade/train/lr_schedule.h"

namespace colonnade::train {

using Tensors = std::map<std::string, at::Tensor>;

/// Results of one step, gathered from all ranks.
struct StepResults {
  std::map<std::string, double> losses;
  double grad_norm = std::nan("");
  bool skipped = false;
  Tensors gradients, parameters;
  std::map<std::string, double> replicas;  ///< largest difference between replicas, by name
};

namespace {

struct Bounds {
  double loss = 2e-5, grad_norm = 1e-4, tensor = 1e-3;
};

Bounds bounds_of(const config::Run& run, Precision precision) {
  if (precision == Precision::kFloat64) return {1e-9, 1e-9, 1e-9};
  if (config::dtypes_of(run).parameter == config::Dtype::kFloat32) return {};
  return {2e-3, 1e-2, 1e-1};
}

double distance(double a, double b) {
  return a == b ? 0 : std::abs(a - b) / std::max(std::abs(a), std::numeric_limits<double>::min());
}

/// Sets `largest` to `apart` where that is larger; a NaN stays.
void raise(double& largest, double apart) {
  if (!(apart <= largest) && !std::isnan(largest)) largest = apart;
}

/// Copies a rank's shard into the full tensor. Elements that are already there are compared.
void put(Tensors& full, std::map<std::string, double>& replicas, const checkpoint::Slice& slice) {
  at::Tensor& into = full[slice.name];
  if (!into.defined()) into = at::full(slice.global_shape, std::nan(""), at::kDouble);
  const at::Tensor box = tensor::box_view(into, slice.offset, slice.data.sizes().vec());
  const at::Tensor mine = slice.data.to(at::kDouble);
  const at::Tensor held = box.isnan().logical_not();
  if (held.any().item<bool>()) {
    const double apart = at::where(held, mine - box, 0).norm().item<double>() /
                         std::max(mine.norm().item<double>(), std::numeric_limits<double>::min());
    raise(replicas[slice.name], apart);
  }
  box.copy_(mine);
}

/// Compares a number that all ranks report.
void put(StepResults& step, const std::string& name, double& known, double value) {
  if (std::isnan(known)) known = value;
  raise(step.replicas[name], distance(known, value));
}

void add_results(job::Job& job, const job::StepReport& report, StepResults& step) {
  const at::NoGradGuard no_grad;
  put(step, "gradient norm", step.grad_norm, report.optimizer.grad_norm);
  for (const auto& [name, loss] : report.losses)
    put(step, name, step.losses.try_emplace(name, loss).first->second, loss);
  step.skipped = report.optimizer.skipped;
  if (step.skipped) return;  // no update, and gradients are not finite
  for (const tensor::Parameter* p : job.parameters())
    if (!p->spec.trained)
      for (const auto& slice : convert::state_slices(p->spec.name, *p, 0, p->value.flatten(), /*owner=*/true))
        put(step.parameters, step.replicas, slice);
  for (const optim::Segment& s : job.optimizer().segments()) {
    const std::string& name = s.parameter->spec.name;
    for (const auto& slice : convert::state_slices(name, *s.parameter, s.begin, s.grad, /*owner=*/true))
      put(step.gradients, step.replicas, slice);
    for (const auto& slice : convert::state_slices(name, *s.parameter, s.begin, s.main, /*owner=*/true))
      put(step.parameters, step.replicas, slice);
  }
}

constexpr std::string_view kGradients = "gradient of", kParameters = "parameter";

double norm_of_all(const Tensors& tensors) {
  double squares = 0;
  for (const auto& [name, tensor] : tensors) squares += tensor.square().sum().item<double>();
  return std::sqrt(squares);
}

/// Elements whose gradients were mere rounding in any step so far; none in float64.
class Rounding {
 public:
  explicit Rounding(Precision precision) : share_(precision == Precision::kFloat64 ? 0 : 1e-6) {}

  void add(const Tensors& a, const Tensors& b) {
    double largest = 0;
    for (const auto& [name, gradient] : a) largest = std::max(largest, gradient.abs().max().item<double>());
    for (const auto& [name, gradient] : a) {
      const auto other = b.find(name);
      if (other == b.end() || other->second.sizes() != gradient.sizes()) continue;
      const at::Tensor small = at::maximum(gradient.abs(), other->second.abs()) < share_ * largest;
      at::Tensor& known = elements_[name];
      known = known.defined() ? known.logical_or(small) : small;
    }
  }
  /// `difference` of a parameter, with these elements set to 0.
  [[nodiscard]] at::Tensor without(const at::Tensor& difference, const std::string& name) const {
    const auto found = elements_.find(name);
    return found == elements_.end() ? difference : difference.masked_fill(found->second, 0);
  }

 private:
  double share_;
  Tensors elements_;
};

/// Differences of one step in the order of computation; `names` are in forward order.
class ComparedStep {
 public:
  ComparedStep(int number, const Bounds& bounds, Rounding& rounding, std::vector<ValueDifference>& all)
      : number_(number), bounds_(bounds), rounding_(rounding), all_(all) {}

  void compare(const StepResults& a, const StepResults& b, const std::vector<std::string>& names) {
    std::set<std::string> losses;
    for (const StepResults* step : {&a, &b})
      for (const auto& [name, loss] : step->losses) losses.insert(name);
    for (const std::string& name : losses)
      add(name, distance(loss_of(a, name), loss_of(b, name)), bounds_.loss);
    if (a.skipped != b.skipped) add("whether the step is skipped", 1, 0);
    if (a.skipped || b.skipped) return;
    tensors(kGradients, a.gradients, b.gradients, {names.rbegin(), names.rend()});
    add("gradient norm", distance(a.grad_norm, b.grad_norm), bounds_.grad_norm);
    rounding_.add(a.gradients, b.gradients);
    tensors(kParameters, a.parameters, b.parameters, names);
    for (const StepResults* step : {&a, &b})
      for (const auto& [name, apart] : step->replicas)
        add(fmt::format("{} on the ranks that share it in {}", name, step == &a ? "A" : "B"), apart,
            bounds_.tensor);
  }

 private:
  /// A loss by name; NaN where it is not reported.
  static double loss_of(const StepResults& step, const std::string& loss) {
    const auto found = step.losses.find(loss);
    return found == step.losses.end() ? std::nan("") : found->second;
  }
  void add(std::string what, double distance, double bound) {
    all_.push_back({number_, std::move(what), distance, bound});
  }
  void tensors(std::string_view kind, const Tensors& a, const Tensors& b,
               const std::vector<std::string>& names) {
    const double least = 1e-5 * norm_of_all(a);
    for (const std::string& name : names) {
      const auto mine = a.find(name), theirs = b.find(name);
      if (mine == a.end() && theirs == b.end()) continue;
      double apart = std::nan("");
      if (mine != a.end() && theirs != b.end() && mine->second.sizes() == theirs->second.sizes()) {
        const double size =
            std::max({mine->second.norm().item<double>(), least, std::numeric_limits<double>::min()});
        const at::Tensor difference = mine->second - theirs->second;
        apart =
            (kind == kParameters ? rounding_.without(difference, name) : difference).norm().item<double>() /
            size;
      }
      add(fmt::format("{} {}", kind, name), apart, bounds_.tensor);
    }
  }

  int number_;
  Bounds bounds_;
  Rounding& rounding_;
  std::vector<ValueDifference>& all_;
};

std::vector<ValueDifference> distances(const TrainedLayout& a, const TrainedLayout& b) {
  std::vector<std::string> names;
  for (const layout::ParamSpec& spec : layout::model_params(a.run.model, a.run.parallel))
    names.push_back(spec.name);
  std::vector<ValueDifference> all;
  Rounding rounding(a.precision);
  int number = 1;
  for (std::size_t i = 0; i < std::min(a.steps->size(), b.steps->size()); ++i) {
    const StepResults &mine = (*a.steps)[i], &theirs = (*b.steps)[i];
    ComparedStep(number, bounds_of(a.run, a.precision), rounding, all).compare(mine, theirs, names);
    if (!mine.skipped || !theirs.skipped) ++number;
  }
  return all;
}

/// Number of steps that both sides skipped, or that neither did.
int steps_compared(const TrainedLayout& a, const TrainedLayout& b, bool skipped) {
  int steps = 0;
  for (std::size_t i = 0; i < std::min(a.steps->size(), b.steps->size()); ++i)
    steps += (*a.steps)[i].skipped == skipped && (*b.steps)[i].skipped == skipped ? 1 : 0;
  return steps;
}

std::optional<ValueDifference> first_beyond(const std::vector<ValueDifference>& all) {
  const auto found =
      std::ranges::find_if(all, [](const ValueDifference& one) { return one.exceeds_bound(); });
  return found == all.end() ? std::nullopt : std::optional(*found);
}

/// Kind of a difference: all gradients are one kind, and all parameters; each loss is its own.
std::string kind_of(const ValueDifference& one) {
  for (const std::string_view kind : {kGradients, kParameters})
    if (one.what.starts_with(kind)) return std::string(kind);
  return one.what.find(" on the ranks") == std::string::npos ? one.what : "replicas";
}

std::vector<ValueDifference> farthest_of(const std::vector<ValueDifference>& all) {
  std::vector<ValueDifference> farthest;
  for (const ValueDifference& one : all) {
    const auto same = [&](const ValueDifference& other) { return kind_of(other) == kind_of(one); };
    const auto found = std::ranges::find_if(farthest, same);
    if (found == farthest.end())
      farthest.push_back(one);
    else if (!std::isnan(found->distance) && !(one.distance <= found->distance))
      *found = one;
  }
  return farthest;
}

void require_one_run(const config::Run& a, const config::Run& b) {
  if (const auto unlike = differing_settings(a, b); !unlike.empty())
    throw ConfigError(fmt::format(
        "verify-layout: the runs of both files must differ in layout only; got {}; make these equal",
        fmt::join(unlike, ", ")));
}

/// Adds lines for losses that not every token has.
void add_masked_losses(const config::Run& a, std::vector<std::string>& lines) {
  const bool documents = a.data.attends_within_documents() || a.data.restarts_positions();
  const bool per_token = a.training.calculate_per_token_loss, mtp = a.model.mtp_num_layers > 0;
  const auto add = [&](bool applies, const char* line) {
    if (applies) lines.emplace_back(line);
  };
  add(a.data.eod_mask_loss && !per_token,
      "--eod-mask-loss without --calculate-per-token-loss gives micro-batches equal weights, and "
      "--micro-batch-size changes their tokens");
  add(a.data.sft && !per_token,
      "--sft without --calculate-per-token-loss gives micro-batches equal weights, and --micro-batch-size changes "
      "their answers");
  add(mtp && documents && !per_token,
      "--mtp-num-layers with --reset-attention-mask, --reset-position-ids or --dataloader-inter-document-masking "
      "gives micro-batches equal weights, and --micro-batch-size changes their MTP targets within documents");
  add(mtp && (documents || a.data.eod_mask_loss || a.data.sft) && per_token,
      "--mtp-num-layers with --calculate-per-token-loss weights the MTP loss of a micro-batch by its loss tokens, "
      "which --micro-batch-size changes");
  add((config::has_several_stacks(a.model) || a.model.bidirectional) && !per_token,
      "samples of t5 and bert have different numbers of loss tokens: without --calculate-per-token-loss micro-batches "
      "have equal weights, and --micro-batch-size changes their samples");
}

}  // namespace

std::vector<std::string> expected_differences(const config::Run& a, const config::Run& b) {
  const config::Moe& moe = a.model.moe;
  const auto sequence_shards = [](const config::Parallel& p) {
    return std::pair(p.context_parallel_size, p.sequence_parallel ? p.tensor_model_parallel_size : 1);
  };
  const auto balances = [&](const char* kind) {
    return moe.num_experts > 0 &&
           std::ranges::find(moe.router_load_balancing_type, kind) != moe.router_load_balancing_type.end();
  };
  const bool micro_batch = a.training.micro_batch_size != b.training.micro_batch_size;
  const bool data_ranks = a.parallel.data_parallel_size() != b.parallel.data_parallel_size();
  const bool hybrid_cp = a.parallel.hybrid_context_parallel != b.parallel.hybrid_context_parallel;
  std::vector<std::string> lines;
  if (moe.num_experts > 0 && moe.expert_capacity_factor &&
      (micro_batch || sequence_shards(a.parallel) != sequence_shards(b.parallel)))
    lines.emplace_back(
        "--moe-expert-capacity-factor counts the tokens of a micro-batch that one rank's router sees, which "
        "--micro-batch-size, --context-parallel-size and --sequence-parallel change");
  if (balances("sinkhorn") && (micro_batch || sequence_shards(a.parallel) != sequence_shards(b.parallel)))
    lines.emplace_back(
        "--moe-router-load-balancing-type sinkhorn balances the tokens of a micro-batch that one rank's router sees, "
        "which --micro-batch-size, --context-parallel-size and --sequence-parallel change");
  if (balances("global_aux_loss") && (micro_batch || data_ranks))
    lines.emplace_back(
        "--moe-router-load-balancing-type global_aux_loss counts the tokens of the micro-batches so far on all "
        "data ranks, which --micro-batch-size and the number of data ranks change");
  if (balances("aux_loss") && micro_batch)
    lines.emplace_back(
        "--moe-router-load-balancing-type aux_loss is a loss of each micro-batch, which --micro-batch-size "
        "changes");
  if ((balances("aux_loss") || balances("seq_aux_loss")) && hybrid_cp)
    lines.emplace_back(
        "--moe-router-load-balancing-type aux_loss and seq_aux_loss are losses per sample, and per document with "
        "--hybrid-context-parallel");
  if (moe.num_experts > 0 && a.model.mtp_num_layers > 0 && hybrid_cp)
    lines.emplace_back(
        "--mtp-num-layers with --num-experts also routes tokens after the end of a document, which do not exist with "
        "--hybrid-context-parallel");
  if (micro_batch) add_masked_losses(a, lines);
  return lines;
}

std::vector<std::string> differing_settings(const config::Run& a, const config::Run& b) {
  config::Run same = b;
  same.parallel = a.parallel;
  same.recompute = a.recompute;
  same.training.device = a.training.device;
  same.training.micro_batch_size = a.training.micro_batch_size;
  same.model.moe.token_dispatcher_type = a.model.moe.token_dispatcher_type;
  same.model.moe.shared_expert_overlap = a.model.moe.shared_expert_overlap;
  same.model.moe.pad_expert_input_to_capacity = a.model.moe.pad_expert_input_to_capacity;
  same.data.num_workers = a.data.num_workers;
  same.data.data_cache_path = a.data.data_cache_path;
  same.checkpoint = a.checkpoint;
  same.logging = a.logging;
  std::vector<std::string> flags;
  for (const config::Setting& s : config::schema()) {
    if (s.get == nullptr) continue;
    const std::string mine = config::text_of(a, s), theirs = config::text_of(same, s);
    if (mine != theirs) flags.push_back(fmt::format("{} ({} and {})", s.flag, mine, theirs));
  }
  return flags;
}

std::unique_ptr<data::Batches> training_samples(const config::Run& run) {
  const auto tokenizer = job::tokenizer_of(run);
  data::Splits data = job::open_batches(run, tokenizer.get());
  if (!data[0]) throw ConfigError("data: the training split must hold samples; got none; correct --split");
  return std::move(data[0]);
}

TrainedLayout train_layout(const LayoutRun& layout, const data::Batches& samples, int steps,
                           Precision precision) {
  config::Run run = layout.run;
  run.training.device = "cpu";
  config::Dtypes dtypes = config::dtypes_of(run);
  if (precision == Precision::kFloat64) {
    dtypes = dtypes.in_float64();
    dtypes.gradient_wire = dtypes.main_gradient;  // rounding by --grad-reduce-in-bf16 depends on the layout
  }
  const LrPlan lr = make_lr_plan(run.schedule, run.training, run.optimizer);
  const std::size_t most_skipped = 100;  // enough for a scale of 2^32 to fall to 1 three times
  std::vector<StepResults> all;
  std::mutex mutex;
  comm::run_ranks(
      run.parallel,
      [&](comm::Communicators& threads) {
        const auto& factory = threads.factory();
        const comm::Communicators ranks(threads.mesh(), threads.rank(),
                                        layout.wrap_factory ? layout.wrap_factory(factory) : factory);
        job::Job job(run, ranks, layout.builder, job::InitialValues::kRandom, dtypes);
        std::optional<job::TokenStream> stream(std::in_place, samples, job, 0);
        std::int64_t consumed = 0;
        int done = 0;
        std::size_t skipped = 0;
        for (std::size_t i = 0; done < steps; ++i) {
          const std::int64_t before = job.counters.consumed_samples;
          const auto report = job.train_step(stream->next(), {.learning_rate = learning_rate(lr, consumed),
                                                              .weight_decay = weight_decay(lr, consumed)});
          job.buffers().wait_for(job.parameters());
          const bool scale_falls = report.optimizer.skipped && job.optimizer().loss_scale().dynamic;
          if (scale_falls && skipped < most_skipped) {
            ++skipped;
            job.counters.consumed_samples = before;
            stream.emplace(samples, job, consumed);
          } else {
            consumed += job.counters.consumed_samples - before;
            ++done;
          }
          const std::lock_guard lock(mutex);
          if (all.size() <= i) all.emplace_back();
          add_results(job, report, all[i]);
        }
      },
      std::chrono::minutes(10));
  return {layout.run, precision, std::make_shared<const std::vector<StepResults>>(std::move(all))};
}

Comparison compare(const TrainedLayout& a, const TrainedLayout& b) {
  COL_CHECK(a.precision == b.precision, "compare: both runs must have the same precision; got {} and {}",
            static_cast<int>(a.precision), static_cast<int>(b.precision));
  require_one_run(a.run, b.run);
  const std::vector<ValueDifference> all = distances(a, b);
  return {.steps = steps_compared(a, b, false),
          .skipped = steps_compared(a, b, true),
          .first = first_beyond(all),
          .first_in_float64 = {},
          .largest = farthest_of(all)};
}

Comparison compare_layouts(const LayoutRun& a, const LayoutRun& b, int steps) {
  require_one_run(a.run, b.run);  // before any training
  const auto samples = training_samples(a.run);
  const auto both = [&](int count, Precision precision) {
    return compare(train_layout(a, *samples, count, precision), train_layout(b, *samples, count, precision));
  };
  Comparison result = both(steps, Precision::kFromSettings);
  if (result.first) result.first_in_float64 = both(result.first->step, Precision::kFloat64).first;
  return result;
}

}  // namespace colonnade::train
