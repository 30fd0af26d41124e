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
#include "colonnade/convert/slices.h"
#include "colonnade/job/prepare.h"
#include "colonnade/job/token_steps.h"
#include "colonnade/layout/params/gpt.h"
#include "colonnade/tensor/parameter.h"
#include "colonnade/train/lr_schedule.h"

namespace colonnade::train {

using Tensors = std::map<std::string, at::Tensor>;

/// What all ranks together know after a step.
struct Seen {
  std::map<std::string, double> losses;
  double grad_norm = std::nan("");
  bool skipped = false;
  Tensors gradients, parameters;
  std::map<std::string, double> replicas;  ///< of what several ranks hold, how far they are apart
};

namespace {

struct Bounds {
  double loss = 2e-5, grad_norm = 1e-4, tensor = 1e-3;
};

Bounds bounds_of(const config::Run& run, Precision precision) {
  if (precision == Precision::kFloat64) return {1e-9, 1e-9, 1e-9};
  if (run.model.params_dtype == config::ParamsDtype::kFloat32) return {};
  return {2e-3, 1e-2, 1e-1};
}

double distance(double a, double b) {
  return a == b ? 0 : std::abs(a - b) / std::max(std::abs(a), std::numeric_limits<double>::min());
}

/// To `apart` where that is more; a NaN stays.
void raise(double& most, double apart) {
  if (!(apart <= most) && !std::isnan(most)) most = apart;
}

/// Puts a rank's stretch of a tensor in its place. What is there already must be the same.
void put(Tensors& whole, std::map<std::string, double>& replicas, const checkpoint::Slice& slice) {
  at::Tensor& into = whole[slice.name];
  if (!into.defined()) into = at::full(slice.global_shape, std::nan(""), at::kDouble);
  const at::Tensor place = tensor::box_of(into, slice.offset, slice.data.sizes().vec());
  const at::Tensor mine = slice.data.to(at::kDouble);
  const at::Tensor held = place.isnan().logical_not();
  if (held.any().item<bool>()) {
    const double apart = at::where(held, mine - place, 0).norm().item<double>() /
                         std::max(mine.norm().item<double>(), std::numeric_limits<double>::min());
    raise(replicas[slice.name], apart);
  }
  place.copy_(mine);
}

/// A number that all ranks report.
void put(Seen& seen, const std::string& name, double& known, double value) {
  if (std::isnan(known)) known = value;
  raise(seen.replicas[name], distance(known, value));
}

void look(job::Job& job, const job::StepReport& report, Seen& seen) {
  const at::NoGradGuard no_grad;
  put(seen, "gradient norm", seen.grad_norm, report.optimizer.grad_norm);
  for (const auto& [name, loss] : report.losses)
    put(seen, name, seen.losses.try_emplace(name, loss).first->second, loss);
  seen.skipped = report.optimizer.skipped;
  if (seen.skipped) return;  // nothing was updated, and gradients are not finite
  for (const tensor::Parameter* p : job.parameters())
    if (!p->spec.trained)
      for (const auto& slice : convert::state_slices(p->spec.name, *p, 0, p->value.flatten(), /*owner=*/true))
        put(seen.parameters, seen.replicas, slice);
  for (const optim::Segment& s : job.optimizer().segments()) {
    const std::string& name = s.parameter->spec.name;
    for (const auto& slice : convert::state_slices(name, *s.parameter, s.begin, s.grad, /*owner=*/true))
      put(seen.gradients, seen.replicas, slice);
    for (const auto& slice : convert::state_slices(name, *s.parameter, s.begin, s.main, /*owner=*/true))
      put(seen.parameters, seen.replicas, slice);
  }
}

constexpr std::string_view kGradients = "gradient of", kParameters = "parameter";

double norm_of_all(const Tensors& tensors) {
  double squares = 0;
  for (const auto& [name, tensor] : tensors) squares += tensor.square().sum().item<double>();
  return std::sqrt(squares);
}

/// Elements whose gradients were rounding in any step so far; none in float64.
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
  /// `difference` of a parameter without them.
  [[nodiscard]] at::Tensor without(const at::Tensor& difference, const std::string& name) const {
    const auto found = elements_.find(name);
    return found == elements_.end() ? difference : difference.masked_fill(found->second, 0);
  }

 private:
  double share_;
  Tensors elements_;
};

/// Distances of one step in the order in which it makes its values; `names` in the order of the blocks.
class ComparedStep {
 public:
  ComparedStep(int number, const Bounds& bounds, Rounding& rounding, std::vector<Apart>& all)
      : number_(number), bounds_(bounds), rounding_(rounding), all_(all) {}

  void compare(const Seen& a, const Seen& b, const std::vector<std::string>& names) {
    std::set<std::string> losses;
    for (const Seen* seen : {&a, &b})
      for (const auto& [name, loss] : seen->losses) losses.insert(name);
    for (const std::string& name : losses) add(name, distance(of(a, name), of(b, name)), bounds_.loss);
    if (a.skipped != b.skipped) add("whether the step is skipped", 1, 0);
    if (a.skipped || b.skipped) return;
    tensors(kGradients, a.gradients, b.gradients, {names.rbegin(), names.rend()});
    add("gradient norm", distance(a.grad_norm, b.grad_norm), bounds_.grad_norm);
    rounding_.add(a.gradients, b.gradients);
    tensors(kParameters, a.parameters, b.parameters, names);
    for (const Seen* seen : {&a, &b})
      for (const auto& [name, apart] : seen->replicas)
        add(fmt::format("{} on the ranks that share it in {}", name, seen == &a ? "A" : "B"), apart,
            bounds_.tensor);
  }

 private:
  /// NaN where it is not reported.
  static double of(const Seen& seen, const std::string& loss) {
    const auto found = seen.losses.find(loss);
    return found == seen.losses.end() ? std::nan("") : found->second;
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
  std::vector<Apart>& all_;
};

std::vector<Apart> distances(const Trained& a, const Trained& b) {
  std::vector<std::string> names;
  for (const layout::ParamSpec& spec : layout::model_params(a.run.model, a.run.parallel))
    names.push_back(spec.name);
  std::vector<Apart> all;
  Rounding rounding(a.precision);
  int number = 1;
  for (std::size_t i = 0; i < std::min(a.steps->size(), b.steps->size()); ++i) {
    const Seen &mine = (*a.steps)[i], &theirs = (*b.steps)[i];
    ComparedStep(number, bounds_of(a.run, a.precision), rounding, all).compare(mine, theirs, names);
    if (!mine.skipped || !theirs.skipped) ++number;
  }
  return all;
}

/// Steps of which both sides skipped as said, or did not.
int steps_compared(const Trained& a, const Trained& b, bool skipped) {
  int steps = 0;
  for (std::size_t i = 0; i < std::min(a.steps->size(), b.steps->size()); ++i)
    steps += (*a.steps)[i].skipped == skipped && (*b.steps)[i].skipped == skipped ? 1 : 0;
  return steps;
}

std::optional<Apart> first_beyond(const std::vector<Apart>& all) {
  const auto found = std::ranges::find_if(all, [](const Apart& one) { return one.beyond(); });
  return found == all.end() ? std::nullopt : std::optional(*found);
}

/// "gradient of x" and "gradient of y" are of one kind; each loss is of its own.
std::string kind_of(const Apart& one) {
  for (const std::string_view kind : {kGradients, kParameters})
    if (one.what.starts_with(kind)) return std::string(kind);
  return one.what.find(" on the ranks") == std::string::npos ? one.what : "replicas";
}

std::vector<Apart> farthest_of(const std::vector<Apart>& all) {
  std::vector<Apart> farthest;
  for (const Apart& one : all) {
    const auto same = [&](const Apart& other) { return kind_of(other) == kind_of(one); };
    const auto found = std::ranges::find_if(farthest, same);
    if (found == farthest.end())
      farthest.push_back(one);
    else if (!std::isnan(found->distance) && !(one.distance <= found->distance))
      *found = one;
  }
  return farthest;
}

void require_one_run(const config::Run& a, const config::Run& b) {
  if (const auto unlike = unlike_settings(a, b); !unlike.empty())
    throw ConfigError(fmt::format(
        "verify-layout: both files must hold one run but for its layout; got {}; make these equal",
        fmt::join(unlike, ", ")));
}

/// Of losses that not every token has.
void add_masked_losses(const config::Run& a, std::vector<std::string>& lines) {
  const bool documents = a.data.reset_attention_mask || a.data.reset_position_ids;
  const bool per_token = a.training.calculate_per_token_loss, further = a.model.mtp_num_layers > 0;
  const auto add = [&](bool is_so, const char* line) {
    if (is_so) lines.emplace_back(line);
  };
  add(a.data.eod_mask_loss && !per_token,
      "--eod-mask-loss without --calculate-per-token-loss weighs micro-batches equally, whose tokens "
      "--micro-batch-size changes");
  add(a.data.sft && !per_token,
      "--sft without --calculate-per-token-loss weighs micro-batches equally, whose answers --micro-batch-size "
      "changes");
  add(further && documents && !per_token,
      "--mtp-num-layers with --reset-attention-mask or --reset-position-ids weighs micro-batches equally, whose "
      "further tokens of the same document --micro-batch-size changes");
  add(further && (documents || a.data.eod_mask_loss || a.data.sft) && per_token,
      "--mtp-num-layers with --calculate-per-token-loss weighs the further tokens of a micro-batch by its tokens "
      "with a loss, which --micro-batch-size changes");
  add((a.model.has_encoder() || a.model.bidirectional) && !per_token,
      "samples of t5 and bert differ in how many tokens have a loss, and without --calculate-per-token-loss "
      "micro-batches weigh equally, whose samples --micro-batch-size changes");
}

}  // namespace

std::vector<std::string> apart_by_definition(const config::Run& a, const config::Run& b) {
  const config::Moe& moe = a.model.moe;
  const auto parts_of_sequence = [](const config::Parallel& p) {
    return std::pair(p.context_parallel_size, p.sequence_parallel ? p.tensor_model_parallel_size : 1);
  };
  const auto balances = [&](const char* kind) {
    return moe.num_experts > 0 &&
           std::ranges::find(moe.router_load_balancing_type, kind) != moe.router_load_balancing_type.end();
  };
  const bool micro_batch = a.training.micro_batch_size != b.training.micro_batch_size;
  const bool data_ranks = a.parallel.data_parallel_size() != b.parallel.data_parallel_size();
  const bool by_length = a.parallel.hybrid_context_parallel != b.parallel.hybrid_context_parallel;
  std::vector<std::string> lines;
  if (moe.num_experts > 0 && moe.expert_capacity_factor &&
      (micro_batch || parts_of_sequence(a.parallel) != parts_of_sequence(b.parallel)))
    lines.emplace_back(
        "--moe-expert-capacity-factor counts the tokens that one rank's router sees of a micro-batch, which "
        "--micro-batch-size, --context-parallel-size and --sequence-parallel change");
  if (balances("sinkhorn") && (micro_batch || parts_of_sequence(a.parallel) != parts_of_sequence(b.parallel)))
    lines.emplace_back(
        "--moe-router-load-balancing-type sinkhorn assigns the tokens that one rank's router sees of a micro-batch, "
        "which --micro-batch-size, --context-parallel-size and --sequence-parallel change");
  if (balances("global_aux_loss") && (micro_batch || data_ranks))
    lines.emplace_back(
        "--moe-router-load-balancing-type global_aux_loss counts the tokens of the micro-batches so far on all "
        "data ranks, which --micro-batch-size and the number of data ranks change");
  if (balances("aux_loss") && micro_batch)
    lines.emplace_back(
        "--moe-router-load-balancing-type aux_loss is a loss of each micro-batch, which --micro-batch-size "
        "changes");
  if ((balances("aux_loss") || balances("seq_aux_loss")) && by_length)
    lines.emplace_back(
        "--moe-router-load-balancing-type aux_loss and seq_aux_loss are losses of whole samples, and of what lies "
        "between ends of documents with --hybrid-context-parallel");
  if (moe.num_experts > 0 && a.model.mtp_num_layers > 0 && by_length)
    lines.emplace_back(
        "--mtp-num-layers with --num-experts routes tokens that lie behind the end of a document too, of which there "
        "are none with --hybrid-context-parallel");
  if (micro_batch) add_masked_losses(a, lines);
  return lines;
}

std::vector<std::string> unlike_settings(const config::Run& a, const config::Run& b) {
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

std::unique_ptr<data::Batches> samples_of(const config::Run& run) {
  const auto tokenizer = job::tokenizer_of(run);
  data::Splits data = job::open_batches(run, tokenizer.get());
  if (!data[0]) throw ConfigError("data: the training split must hold samples; got none; correct --split");
  return std::move(data[0]);
}

Trained train_layout(const Side& side, const data::Batches& samples, int steps, Precision precision) {
  config::Run run = side.run;
  run.training.device = "cpu";
  std::optional<at::ScalarType> type;
  if (precision == Precision::kFloat64) {
    type = at::kDouble;
    run.model.params_dtype = config::ParamsDtype::kFloat32;  // no loss scale
  }
  const LrPlan lr = make_lr_plan(run.schedule, run.training, run.optimizer);
  const std::size_t most_skipped = 100;  // 2^32 falls to 1 in a third of it
  std::vector<Seen> all;
  std::mutex mutex;
  comm::run_ranks(
      run.parallel,
      [&](comm::Communicators& threads) {
        const auto& factory = threads.factory();
        const comm::Communicators ranks(threads.mesh(), threads.rank(),
                                        side.between ? side.between(factory) : factory);
        job::Job job(run, ranks, side.builder, job::InitialValues::kDrawn, type);
        std::optional<job::TokenStream> stream(std::in_place, samples, job, 0);
        std::int64_t consumed = 0;
        int done = 0;
        std::size_t skipped = 0;
        for (std::size_t i = 0; done < steps; ++i) {
          const std::int64_t before = job.counters.consumed_samples;
          const auto report = job.train_step(stream->next(), {.learning_rate = learning_rate(lr, consumed),
                                                              .weight_decay = weight_decay(lr, consumed)});
          job.buffers().wait_for(job.parameters());
          const bool falls = report.optimizer.skipped && job.optimizer().loss_scale().dynamic;
          if (falls && skipped < most_skipped) {
            ++skipped;
            stream.emplace(samples, job, consumed);
          } else {
            consumed += job.counters.consumed_samples - before;
            ++done;
          }
          const std::lock_guard lock(mutex);
          if (all.size() <= i) all.emplace_back();
          look(job, report, all[i]);
        }
      },
      std::chrono::minutes(10));
  return {side.run, precision, std::make_shared<const std::vector<Seen>>(std::move(all))};
}

Comparison compare(const Trained& a, const Trained& b) {
  COL_CHECK(a.precision == b.precision, "compare: both sides must be of one precision; got {} and {}",
            static_cast<int>(a.precision), static_cast<int>(b.precision));
  require_one_run(a.run, b.run);
  const std::vector<Apart> all = distances(a, b);
  return {.steps = steps_compared(a, b, false),
          .skipped = steps_compared(a, b, true),
          .first = first_beyond(all),
          .first_in_float64 = {},
          .farthest = farthest_of(all)};
}

Comparison compare_layouts(const Side& a, const Side& b, int steps) {
  require_one_run(a.run, b.run);  // before anything is trained
  const auto samples = samples_of(a.run);
  const auto both = [&](int count, Precision precision) {
    return compare(train_layout(a, *samples, count, precision), train_layout(b, *samples, count, precision));
  };
  Comparison result = both(steps, Precision::kOfSettings);
  if (result.first) result.first_in_float64 = both(result.first->step, Precision::kFloat64).first;
  return result;
}

}  // namespace colonnade::train
