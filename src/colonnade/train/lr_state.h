// What a checkpoint keeps of the learning-rate schedule, and how a resumed run takes it up again.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

#include "colonnade/train/lr_schedule.h"

namespace colonnade::train {

/// The schedule under Megatron's keys: max_lr, lr_warmup_steps, num_steps, lr_decay_style,
/// lr_decay_steps, min_lr, start_wd, end_wd, wd_incr_style, wd_incr_steps ("steps" are samples); and
/// three more that decide the curve: init_lr, wsd_decay_steps, wsd_decay_style.
/// `samples`: of all steps that were not skipped.
nlohmann::json lr_state(const LrPlan& plan, std::int64_t samples);

/// A schedule and how far it is.
struct LrResume {
  LrPlan plan;
  std::int64_t samples = 0;
};

/// Takes up the schedule of a checkpoint. Each value of `state` must equal that of `plan`, unless
/// settings.override_opt_param_scheduler (the plan's values win) or
/// settings.use_checkpoint_opt_param_scheduler (the checkpoint's win) says which. The length of the
/// weight-decay ramp is not compared where both are constant: --train-iters may grow. Keys that only we
/// write may be absent. Throws ConfigError with every difference, both values named, or when both
/// switches are on; DataError when the state is not one that lr_state could have written.
LrResume resume_lr(const LrPlan& plan, const nlohmann::json& state, const config::Schedule& settings);

}  // namespace colonnade::train
