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
#include "colonnade/data/gpt_batches.h"
#include "colonnade/job/gpt_steps.h"
#include "colonnade/job/prepare.h"
#include "colonnade/plan/params/gpt.h"
#include "colonnade/tensor/parameter.h"
#include "colonnade/train/lr_schedule.h"

namespace colonnade::train {
namespace {

using Tensors = std::map<std::string, at::Tensor>;

/// What all ranks together know after a step.
struct Seen {
  std::map<std::string, double> losses;
  double grad_norm = 0;
  bool skipped = false;
  Tensors gradients, parameters;
  std::map<std::string, double> replicas;  ///< of what several ranks hold, how far they are apart
};

struct Bounds {
  double loss = 2e-5, grad_norm = 1e-4, tensor = 1e-3;
};

/// The type that the settings say, or float64.
enum class Precision { kOfSettings, kFloat64 };

Bounds bounds_of(const config::Run& run, Precision precision) {
  if (precision == Precision::kFloat64) return {1e-9, 1e-9, 1e-9};
  if (run.model.params_dtype == config::ParamsDtype::kFloat32) return {};
  return {2e-3, 1e-2, 1e-1};
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
    double& most = replicas[slice.name];
    most = std::max(most, apart);
  }
  place.copy_(mine);
}

void look(job::Job& job, const job::StepReport& report, Seen& seen) {
  const at::NoGradGuard no_grad;
  seen.losses = report.losses;
  seen.grad_norm = report.optimizer.grad_norm;
  seen.skipped = report.optimizer.skipped;
  for (const tensor::Parameter* p : job.parameters())
    if (!p->spec.trained)
      for (const auto& slice :
           convert::state_slices(p->spec.name, *p, 0, p->value.flatten(), /*replica_owner=*/true))
        put(seen.parameters, seen.replicas, slice);
  for (const optim::Segment& s : job.optimizer().segments()) {
    const std::string& name = s.parameter->spec.name;
    for (const auto& slice :
         convert::state_slices(name, *s.parameter, s.begin, s.grad, /*replica_owner=*/true))
      put(seen.gradients, seen.replicas, slice);
    for (const auto& slice :
         convert::state_slices(name, *s.parameter, s.begin, s.main, /*replica_owner=*/true))
      put(seen.parameters, seen.replicas, slice);
  }
}

std::vector<Seen> trained(const Side& side, int steps, Precision precision) {
  config::Run run = side.run;
  std::optional<at::ScalarType> type;
  if (precision == Precision::kFloat64) {
    type = at::kDouble;
    run.model.params_dtype = config::ParamsDtype::kFloat32;  // no loss scale
  }
  const auto tokenizer = job::tokenizer_of(run);
  data::TokenIds ids{.vocab_size = run.model.vocab_size};
  if (tokenizer) {
    ids.eod = tokenizer->eod();
    ids.pad = tokenizer->special().pad;
  }
  const data::GptSplits data = data::open_gpt_batches(run.data, run.training, ids, {});
  if (!data[0]) throw ConfigError("data: the training split must hold samples; got none; correct --split");
  const LrPlan lr = make_lr_plan(run.schedule, run.training, run.optimizer);
  std::vector<Seen> all(static_cast<std::size_t>(steps));
  std::mutex mutex;
  comm::run_ranks(
      run.parallel,
      [&](comm::Communicators& ranks) {
        job::Job job(run, ranks, side.builder, job::InitialValues::kDrawn, type);
        job::GptStream stream(*data[0], job, 0);
        for (Seen& seen : all) {
          const std::int64_t samples = job.counters.consumed_samples;
          const auto report = job.train_step(stream.next(), {.learning_rate = learning_rate(lr, samples),
                                                             .weight_decay = weight_decay(lr, samples)});
          job.buffers().wait_for(job.parameters());
          const std::lock_guard lock(mutex);
          look(job, report, seen);
        }
      },
      std::chrono::minutes(10));
  return all;
}

double distance(double a, double b) {
  return a == b ? 0 : std::abs(a - b) / std::max(std::abs(a), std::numeric_limits<double>::min());
}

double norm_of_all(const Tensors& tensors) {
  double squares = 0;
  for (const auto& [name, tensor] : tensors) squares += tensor.square().sum().item<double>();
  return std::sqrt(squares);
}

/// Distances of one step in the order in which it makes its values; `names` in the order of the blocks.
class Step {
 public:
  Step(int number, const Bounds& bounds, std::vector<Apart>& all)
      : number_(number), bounds_(bounds), all_(all) {}

  void compare(const Seen& a, const Seen& b, const std::vector<std::string>& names) {
    std::set<std::string> losses;
    for (const Seen* seen : {&a, &b})
      for (const auto& [name, loss] : seen->losses) losses.insert(name);
    for (const std::string& name : losses) add(name, distance(of(a, name), of(b, name)), bounds_.loss);
    if (a.skipped && b.skipped) return;  // nothing was updated, and gradients are not finite
    tensors("gradient of", a.gradients, b.gradients, {names.rbegin(), names.rend()});
    add("gradient norm", distance(a.grad_norm, b.grad_norm), bounds_.grad_norm);
    tensors("parameter", a.parameters, b.parameters, names);
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
  void tensors(const char* kind, const Tensors& a, const Tensors& b, const std::vector<std::string>& names) {
    const double least = 1e-5 * norm_of_all(a);
    for (const std::string& name : names) {
      const auto mine = a.find(name), theirs = b.find(name);
      if (mine == a.end() && theirs == b.end()) continue;
      double apart = std::nan("");
      if (mine != a.end() && theirs != b.end() && mine->second.sizes() == theirs->second.sizes()) {
        const double size =
            std::max({mine->second.norm().item<double>(), least, std::numeric_limits<double>::min()});
        apart = (mine->second - theirs->second).norm().item<double>() / size;
      }
      add(fmt::format("{} {}", kind, name), apart, bounds_.tensor);
    }
  }

  int number_;
  Bounds bounds_;
  std::vector<Apart>& all_;
};

std::vector<Apart> distances(const Side& a, const Side& b, int steps, Precision precision) {
  std::vector<std::string> names;
  for (const plan::ParamSpec& spec : plan::gpt_params(a.run.model, a.run.parallel))
    names.push_back(spec.name);
  const std::vector<Seen> of_a = trained(a, steps, precision), of_b = trained(b, steps, precision);
  std::vector<Apart> all;
  for (int i = 0; i < steps; ++i) {
    const auto at = static_cast<std::size_t>(i);
    Step(i + 1, bounds_of(a.run, precision), all).compare(of_a[at], of_b[at], names);
  }
  return all;
}

std::optional<Apart> first_beyond(const std::vector<Apart>& all) {
  const auto found = std::ranges::find_if(all, [](const Apart& one) { return one.beyond(); });
  return found == all.end() ? std::nullopt : std::optional(*found);
}

/// "gradient of x" and "gradient of y" are of one kind; each loss is of its own.
std::string kind_of(const Apart& one) {
  for (const char* kind : {"gradient of", "parameter"})
    if (one.what.starts_with(kind)) return kind;
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

config::Run on_threads(config::Run run) {
  run.training.device = "cpu";
  return run;
}

}  // namespace

std::vector<std::string> unlike_settings(const config::Run& a, const config::Run& b) {
  config::Run same = b;
  same.parallel = a.parallel;
  same.recompute = a.recompute;
  same.training.device = a.training.device;
  same.training.micro_batch_size = a.training.micro_batch_size;
  same.model.moe.token_dispatcher_type = a.model.moe.token_dispatcher_type;
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

Comparison compare_layouts(Side a, Side b, int steps) {
  if (const auto unlike = unlike_settings(a.run, b.run); !unlike.empty())
    throw ConfigError(fmt::format(
        "verify-layout: both files must hold one run but for its layout; got {}; make these equal",
        fmt::join(unlike, ", ")));
  for (Side* side : {&a, &b}) side->run = on_threads(std::move(side->run));
  const std::vector<Apart> all = distances(a, b, steps, Precision::kOfSettings);
  Comparison result{.first = first_beyond(all), .first_in_float64 = {}, .farthest = farthest_of(all)};
  if (!result.first) return result;
  result.first_in_float64 = first_beyond(distances(a, b, result.first->step, Precision::kFloat64));
  return result;
}

}  // namespace colonnade::train
