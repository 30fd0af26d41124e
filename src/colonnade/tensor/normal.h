// Normal random numbers by the run, fast enough that drawing a model's initial values costs no start-up time.
#pragma once

#include <cstdint>

#include "colonnade/base/philox.h"

namespace colonnade::tensor {

/// out[i] = std * n(first + i) for i < count, where n(g) is a standard normal number that depends on `draw`
/// and g alone: number g % 4 of counter c = g / 4, with words w = draw(c), is by Box and Muller
///
///   sqrt(-2 log u) cos(2 pi v), sqrt(-2 log u) sin(2 pi v),   u = ((w[j] >> 8) + 1) / 2^24, v = w[j+1] /
///   2^32
///
/// for j = 0 (numbers 0 and 1) and j = 2 (numbers 2 and 3), to about 1e-6. Every processor gives equal bits:
/// only operations are used that IEEE 754 rounds correctly, in a fixed order and never contracted.
void normal_run(const Philox& draw, std::int64_t first, std::int64_t count, float std, float* out);

}  // namespace colonnade::tensor
