// Initial values as a pure function of (seed, parameter name, global element), independent of the layout.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "colonnade/layout/param.h"

namespace colonnade::tensor {

/// Writes the initial values of one rank's shard into `local` (CPU, shape shard.shape): element g of the
/// global tensor (row-major, without padding) is normal number g (normal.h) of Philox key (seed, name), times
/// spec.init.std. For kUniform it is (2u - 1) * spec.init.std with u = uniform(word g % 4 of counter g / 4).
/// Constant for kZero and kOne. Padding becomes zero.
void fill_initial(at::Tensor local, const layout::ParamSpec& spec, const layout::Shard& shard,
                  std::uint64_t seed);

}  // namespace colonnade::tensor
