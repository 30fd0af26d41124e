// What the CUDA half of every kernel does in a build without CUDA.
#pragma once

#include "colonnade/base/error.h"

namespace colonnade::kernels::cuda {

[[noreturn]] inline void unavailable(const char* kernel) {
  throw ConfigError(
      fmt::format("{}: CUDA tensors need a build with CUDA; got one without; configure with the preset "
                  "`cuda` or use --device cpu",
                  kernel));
}

}  // namespace colonnade::kernels::cuda
