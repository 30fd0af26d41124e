// Sum, maximum and minimum over buffers in this process's memory.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <span>

#include "colonnade/comm/group.h"

namespace colonnade::comm {

/// out[i] = inputs[0][i] op inputs[1][i] op ... for i in [0, count), in that order; `out` may alias an
/// input. bfloat16 and float16 are reduced in float32 and rounded once. NaN propagates.
/// Types: float64, float32, bfloat16, float16, int64, int32, uint8; throws Error for others.
void reduce(at::ScalarType type, std::span<const void* const> inputs, void* out, std::int64_t count,
            Reduce op);

}  // namespace colonnade::comm
