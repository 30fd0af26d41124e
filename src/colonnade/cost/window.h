// Keys that sliding-window attention covers.
#pragma once

#include <cstdint>

namespace colonnade::cost {

/// Whether a window of `window` earlier tokens (0: all) masks any key of a sequence.
inline bool window_masks(std::int64_t window, double length) {
  return window > 0 && static_cast<double>(window + 1) < length;
}

/// Twice the mean number of keys that a token of a causal sequence attends to: `length` without a window.
inline double twice_attended_keys(std::int64_t window, double length) {
  const double width = static_cast<double>(window + 1);
  return window_masks(window, length) ? 2 * width - width * width / length : length;
}

}  // namespace colonnade::cost
