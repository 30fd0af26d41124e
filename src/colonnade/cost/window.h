// How much of a sequence attention in a window sees.
#pragma once

#include <cstdint>

namespace colonnade::cost {

/// Whether a window of `window` earlier tokens (0: all) hides any of a sequence.
inline bool hides(std::int64_t window, double length) {
  return window > 0 && static_cast<double>(window + 1) < length;
}

/// Twice the number of keys that a token of a sequence sees on average: all of them without a window.
inline double twice_seen(std::int64_t window, double length) {
  const double width = static_cast<double>(window + 1);
  return hides(window, length) ? 2 * width - width * width / length : length;
}

}  // namespace colonnade::cost
