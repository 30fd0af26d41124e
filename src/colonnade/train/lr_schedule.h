// Learning rate and weight decay as pure functions of the samples trained so far.
// Source: Megatron's core/optimizer_param_scheduler.py, whose numbers they equal.
#pragma once

#include <cstdint>

#include "colonnade/config/training.h"
#include "colonnade/optim/optimizer.h"

namespace colonnade::train {

/// A schedule with every length in samples. n below is the number of samples of all steps that were not
/// skipped (a step with an infinite gradient changes no weight).
///
///   n <= warmup          init_lr + (max_lr - init_lr) n / warmup
///   constant             max_lr
///   n > decay            min_lr
///   inverse square root  max(min_lr, max_lr sqrt(max(warmup, 1) / max(n, 1)))
///   else                 min_lr + c (max_lr - min_lr), with r = (n - warmup) / (decay - warmup):
///     linear             c = 1 - r
///     cosine             c = (cos(pi r) + 1) / 2
///     WSD                c = 1 until decay - wsd_decay, then with q running from 0 to 1:
///                        linear 1 - q; cosine (cos(pi q) + 1) / 2; exponential 2 * 0.5^q - 1;
///                        minus_sqrt 1 - sqrt(q)
struct LrPlan {
  double max_lr = 0;
  double min_lr = 0;
  double init_lr = 0;
  double decoupled_max_lr = 0;  ///< max_lr without --decoupled-lr
  double decoupled_min_lr = 0;  ///< min_lr without --decoupled-lr
  double warmup_samples = 0;    ///< may be fractional, from a fraction of the decay length
  double decay_samples = 0;
  double wsd_decay_samples = 0;  ///< 0 unless the style is WSD
  config::LrDecayStyle style = config::LrDecayStyle::kLinear;
  config::WsdDecayStyle wsd_style = config::WsdDecayStyle::kExponential;

  double start_weight_decay = 0;
  double end_weight_decay = 0;
  double weight_decay_samples = 0;  ///< length of the ramp: the full run
  config::WeightDecayIncrStyle weight_decay_style = config::WeightDecayIncrStyle::kConstant;
};

/// The schedule of the settings. Lengths in iterations count global batches. Throws ConfigError with every
/// broken rule: a run without length, warm-up as long as the decay, rates out of order, WSD without its decay
/// length, a ramp without both ends.
LrPlan make_lr_plan(const config::Schedule& schedule, const config::Training& training,
                    const config::Optimizer& optimizer);

/// Learning rate of the step after `samples` samples.
double learning_rate(const LrPlan& plan, std::int64_t samples);
/// Learning rate of word embeddings and output layer: the same schedule between other rates
/// (LrPlan::decoupled_max_lr, decoupled_min_lr).
double decoupled_learning_rate(const LrPlan& plan, std::int64_t samples);

/// Weight decay of the step after `samples` samples.
///   constant: end; linear: start + (end - start) r; cosine: start + (end - start) (cos(pi (1 - r)) + 1) / 2
double weight_decay(const LrPlan& plan, std::int64_t samples);

/// Rates and weight decay of the step after `samples` samples.
optim::StepOptions step_options(const LrPlan& plan, std::int64_t samples);

}  // namespace colonnade::train
