// Sizes of the batches of this area's tests.
#pragma once

#include <cstdint>

namespace colonnade::layers {

inline constexpr std::int64_t kBatch = 2, kSequence = 8;

}  // namespace colonnade::layers
