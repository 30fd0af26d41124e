// Error of the CUDA stubs.
#pragma once

#include "colonnade/base/error.h"

namespace colonnade::kernels::cuda {

[[noreturn]] inline void unavailable(const char* kernel) {
  throw ConfigError(fmt::format(
      "{} on CUDA tensors requires a build with CUDA; got a CPU-only build; configure with the preset "
      "`cuda` or use --device cpu",
      kernel));
}

}  // namespace colonnade::kernels::cuda
