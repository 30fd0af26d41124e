// State of the learning-rate schedule in a checkpoint, and resuming from it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

#include "colonnade/train/lr_schedule.h"

namespace colonnade::train {

/// The schedule under Megatron's keys: max_lr, lr_warmup_steps, num_steps, lr_decay_style, lr_decay_steps,
/// min_lr, start_wd, end_wd, wd_incr_style, wd_incr_steps ("steps" are samples), and five more that decide
/// the curve: decoupled_max_lr, decoupled_min_lr, init_lr, wsd_decay_steps, wsd_decay_style. `samples`:
/// samples of all steps that were not skipped.
nlohmann::json lr_state(const LrPlan& plan, std::int64_t samples);

/// A schedule and its progress in samples.
struct LrResume {
  LrPlan plan;
  std::int64_t samples = 0;
};

/// Resumes the schedule of a checkpoint. Each value of `state` must equal that of `plan`, unless
/// settings.override_opt_param_scheduler (the plan's values are used) or
/// settings.use_checkpoint_opt_param_scheduler (the checkpoint's are) is set. The length of the weight-decay
/// ramp is not compared where both are constant: --train-iters may grow. Keys unknown to Megatron may be
/// missing. Throws ConfigError with every difference and both values, or when both switches are on; DataError
/// for a state that lr_state cannot have written.
LrResume resume_lr(const LrPlan& plan, const nlohmann::json& state, const config::Schedule& settings);

}  // namespace colonnade::train
