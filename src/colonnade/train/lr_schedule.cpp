// See lr_schedule.h.
#include "colonnade/train/lr_schedule.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "colonnade/base/error.h"

namespace colonnade::train {
namespace {

double half_cosine(double ratio) { return 0.5 * (std::cos(std::numbers::pi * ratio) + 1.0); }

double wsd_coefficient(const LrPlan& plan, double n) {
  const double start = plan.decay_samples - plan.wsd_decay_samples;
  if (n <= start) return 1.0;
  const double q = (n - start) / plan.wsd_decay_samples;
  switch (plan.wsd_style) {
    case config::WsdDecayStyle::kLinear:
      return 1.0 - q;
    case config::WsdDecayStyle::kCosine:
      return half_cosine(q);
    case config::WsdDecayStyle::kExponential:
      return 2.0 * std::pow(0.5, q) - 1.0;
    case config::WsdDecayStyle::kMinusSqrt:
      return 1.0 - std::sqrt(q);
  }
  return 0.0;
}

double decay_coefficient(const LrPlan& plan, double n) {
  if (plan.style == config::LrDecayStyle::kWsd) return wsd_coefficient(plan, n);
  const double ratio = (n - plan.warmup_samples) / (plan.decay_samples - plan.warmup_samples);
  return plan.style == config::LrDecayStyle::kCosine ? half_cosine(ratio) : 1.0 - ratio;
}

/// Sets the lengths; iterations and samples are never mixed.
void set_lengths(LrPlan& plan, const config::Schedule& schedule, const config::Training& training) {
  const auto batch = static_cast<double>(training.global_batch_size);
  const auto length = [&](std::int64_t iterations) { return static_cast<double>(iterations) * batch; };
  if (training.train_samples) {
    const auto run = static_cast<double>(*training.train_samples);
    plan.weight_decay_samples = run;
    plan.decay_samples = schedule.lr_decay_samples ? static_cast<double>(*schedule.lr_decay_samples) : run;
    plan.wsd_decay_samples = static_cast<double>(schedule.lr_wsd_decay_samples.value_or(0));
    plan.warmup_samples = static_cast<double>(schedule.lr_warmup_samples);
  } else {
    const std::int64_t run = training.train_iters.value_or(0);
    plan.weight_decay_samples = length(run);
    plan.decay_samples = length(schedule.lr_decay_iters.value_or(run));
    plan.wsd_decay_samples = length(schedule.lr_wsd_decay_iters.value_or(0));
    plan.warmup_samples = length(schedule.lr_warmup_iters);
  }
  if (schedule.lr_warmup_fraction) plan.warmup_samples = *schedule.lr_warmup_fraction * plan.decay_samples;
}

std::vector<std::string> broken_rules(const LrPlan& plan, const config::Schedule& schedule) {
  std::vector<std::string> found;
  const auto rule = [&](bool holds, std::string text) {
    if (!holds) found.push_back(std::move(text));
  };
  rule(plan.decay_samples > 0,
       "schedule: the run must have a length; got none; set --train-iters or --train-samples");
  rule(plan.decay_samples <= 0 || plan.warmup_samples < plan.decay_samples,
       fmt::format(
           "schedule: warm-up must be shorter than the decay; got {} and {} samples; set a shorter warm-up",
           plan.warmup_samples, plan.decay_samples));
  rule(plan.min_lr >= 0 && plan.min_lr <= plan.max_lr,
       fmt::format("schedule: rates must satisfy 0 <= --min-lr <= --lr; got {} and {}; set --min-lr {}",
                   plan.min_lr, plan.max_lr, plan.max_lr / 10));
  rule(plan.init_lr <= plan.max_lr,
       fmt::format("schedule: --lr-warmup-init must not exceed --lr; got {} and {}; set --lr-warmup-init 0",
                   plan.init_lr, plan.max_lr));
  rule(plan.style != config::LrDecayStyle::kWsd || plan.wsd_decay_samples > 0,
       "schedule: WSD requires the length of its decay; got none; set --lr-wsd-decay-iters or "
       "--lr-wsd-decay-samples");
  const bool ramp = plan.weight_decay_style != config::WeightDecayIncrStyle::kConstant;
  rule(
      ramp == schedule.start_weight_decay.has_value() && ramp == schedule.end_weight_decay.has_value(),
      "schedule: --start-weight-decay and --end-weight-decay require --weight-decay-incr-style linear or cosine, "
      "and that requires both; got one without the other; set all three, or none");
  rule(plan.start_weight_decay >= 0 && plan.end_weight_decay >= plan.start_weight_decay,
       fmt::format("schedule: weight decay must satisfy 0 <= start <= end; got {} and {}; swap them",
                   plan.start_weight_decay, plan.end_weight_decay));
  return found;
}

double rate_between(const LrPlan& plan, double min_lr, double max_lr, std::int64_t samples) {
  const auto n = static_cast<double>(samples);
  if (plan.warmup_samples > 0 && n <= plan.warmup_samples)
    return plan.init_lr + (max_lr - plan.init_lr) * n / plan.warmup_samples;
  if (plan.style == config::LrDecayStyle::kConstant) return max_lr;
  if (n > plan.decay_samples) return min_lr;
  if (plan.style == config::LrDecayStyle::kInverseSquareRoot) {
    const double warmup = std::max(plan.warmup_samples, 1.0);
    return std::max(min_lr, max_lr * std::sqrt(warmup) / std::sqrt(std::max(n, 1.0)));
  }
  return min_lr + decay_coefficient(plan, n) * (max_lr - min_lr);
}

}  // namespace

LrPlan make_lr_plan(const config::Schedule& schedule, const config::Training& training,
                    const config::Optimizer& optimizer) {
  LrPlan plan{.max_lr = schedule.lr,
              .min_lr = schedule.min_lr,
              .init_lr = schedule.lr_warmup_init,
              .decoupled_max_lr = schedule.decoupled_lr.value_or(schedule.lr),
              .decoupled_min_lr = schedule.decoupled_lr ? schedule.decoupled_min_lr.value_or(schedule.min_lr)
                                                        : schedule.min_lr,
              .style = schedule.lr_decay_style,
              .wsd_style = schedule.lr_wsd_decay_style,
              .start_weight_decay = schedule.start_weight_decay.value_or(optimizer.weight_decay),
              .end_weight_decay = schedule.end_weight_decay.value_or(optimizer.weight_decay),
              .weight_decay_style = schedule.weight_decay_incr_style};
  set_lengths(plan, schedule, training);
  if (const auto found = broken_rules(plan, schedule); !found.empty())
    throw ConfigError(fmt::format("{}", fmt::join(found, "\n")));
  return plan;
}

double learning_rate(const LrPlan& plan, std::int64_t samples) {
  return rate_between(plan, plan.min_lr, plan.max_lr, samples);
}

double decoupled_learning_rate(const LrPlan& plan, std::int64_t samples) {
  return rate_between(plan, plan.decoupled_min_lr, plan.decoupled_max_lr, samples);
}

double weight_decay(const LrPlan& plan, std::int64_t samples) {
  const auto n = static_cast<double>(samples);
  if (plan.weight_decay_style == config::WeightDecayIncrStyle::kConstant || n > plan.weight_decay_samples)
    return plan.end_weight_decay;
  const double ratio = n / plan.weight_decay_samples;
  const bool cosine = plan.weight_decay_style == config::WeightDecayIncrStyle::kCosine;
  const double coefficient = cosine ? half_cosine(1.0 - ratio) : ratio;
  return plan.start_weight_decay + coefficient * (plan.end_weight_decay - plan.start_weight_decay);
}

optim::StepOptions step_options(const LrPlan& plan, std::int64_t samples) {
  return {.learning_rate = learning_rate(plan, samples),
          .decoupled_learning_rate = decoupled_learning_rate(plan, samples),
          .weight_decay = weight_decay(plan, samples)};
}

}  // namespace colonnade::train
