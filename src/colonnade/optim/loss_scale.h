// The loss scale of fp16 training as a value: saved in the checkpoint as it is.
// Source: Megatron's core/optimizer/grad_scaler.py.
#pragma once

#include <algorithm>

#include "colonnade/config/training.h"

namespace colonnade::optim {

struct LossScale {
  double scale = 1.0;
  int growth = 0;      ///< clean steps since the last change
  int hysteresis = 0;  ///< overflows still forgiven
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

/// After a step: an overflow uses up hysteresis, then halves the scale (never below the minimum);
/// `loss_scale_window` clean steps double it and restore the hysteresis.
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
