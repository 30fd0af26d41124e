// Vectorized normal random numbers, fast enough that random initialization adds no start-up time.
#pragma once

#include <cstdint>

#include "colonnade/base/philox.h"

namespace colonnade::tensor {

/// out[i] = std * n(first + i) for i < count, where n(g) is a standard normal number that depends only on
/// `draw` and g. Number g % 4 of counter c = g / 4, with words w = draw(c), is by the Box-Muller transform
///
///   sqrt(-2 log u) cos(2 pi v), sqrt(-2 log u) sin(2 pi v),   u = ((w[j] >> 8) + 1) / 2^24, v = w[j+1] /
///   2^32
///
/// for j = 0 (numbers 0 and 1) and j = 2 (numbers 2 and 3), to about 1e-6. Results are bitwise identical on
/// every processor: only operations that IEEE 754 rounds correctly are used, in a fixed order and never
/// contracted.
void normal_run(const Philox& draw, std::int64_t first, std::int64_t count, float std, float* out);

}  // namespace colonnade::tensor
