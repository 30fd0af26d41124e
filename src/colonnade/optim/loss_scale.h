// Loss scale of fp16 training, a value that checkpoints store.
// Source: Megatron's core/optimizer/grad_scaler.py.
#pragma once

#include <algorithm>

#include "colonnade/config/training.h"

namespace colonnade::optim {

struct LossScale {
  double scale = 1.0;
  int growth = 0;      ///< steps without overflow since the last change
  int hysteresis = 0;  ///< overflows still tolerated
  bool dynamic = false;

  static constexpr double kGrowth = 2.0;
  static constexpr double kBackoff = 0.5;
};

/// Constant with --loss-scale; dynamic for fp16; 1 otherwise.
inline LossScale initial_loss_scale(const config::Optimizer& settings, bool fp16) {
  if (settings.loss_scale) return {.scale = *settings.loss_scale};
  if (!fp16) return {};
  return {.scale = settings.initial_loss_scale, .hysteresis = settings.hysteresis, .dynamic = true};
}

/// Loss scale after a step: an overflow consumes hysteresis, then halves the scale (not below the minimum);
/// `loss_scale_window` steps without overflow double it and restore the hysteresis.
constexpr LossScale next(LossScale now, bool overflow, const config::Optimizer& settings) {
  if (!now.dynamic) return now;
  if (overflow) {
    now.growth = 0;
    if (--now.hysteresis <= 0) now.scale = std::max(now.scale * LossScale::kBackoff, settings.min_loss_scale);
    return now;
  }
  if (++now.growth >= settings.loss_scale_window) {
    now.growth = 0;
    now.hysteresis = settings.hysteresis;
    now.scale *= LossScale::kGrowth;
  }
  return now;
}

}  // namespace colonnade::optim
