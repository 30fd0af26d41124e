// CUDA stubs and their error.
#pragma once

#include "colonnade/base/error.h"
#include "colonnade/kernels/instantiate.h"

namespace colonnade::kernels::cuda {

[[noreturn]] inline void unavailable(const char* kernel) {
  throw ConfigError(fmt::format(
      "{} on CUDA tensors requires a build with CUDA; got a CPU-only build; configure with the preset "
      "`cuda` or use --device cpu",
      kernel));
}

}  // namespace colonnade::kernels::cuda

/// Stubs of a kernel for all its dtypes: they throw.
#define COL_STUB(kernel, Args)                \
  template <typename T>                       \
  void kernel(const Args<T>&, CUstream_st*) { \
    unavailable(#kernel);                     \
  }
#define COL_STUB_MIXED(kernel, Args)             \
  template <typename T, typename S>              \
  void kernel(const Args<T, S>&, CUstream_st*) { \
    unavailable(#kernel);                        \
  }
#define COL_UNAVAILABLE_WIDE(kernel, Args) \
  COL_STUB(kernel, Args)                   \
  COL_INSTANTIATE_CUDA_WIDE(kernel, Args)
#define COL_UNAVAILABLE(kernel, Args) \
  COL_STUB(kernel, Args)              \
  COL_INSTANTIATE_CUDA(kernel, Args)
#define COL_UNAVAILABLE_MIXED(kernel, Args) \
  COL_STUB_MIXED(kernel, Args)              \
  COL_INSTANTIATE_CUDA_MIXED(kernel, Args)
#define COL_UNAVAILABLE_BOTH_WAYS(kernel, Args) \
  COL_STUB_MIXED(kernel, Args)                  \
  COL_INSTANTIATE_CUDA_BOTH_WAYS(kernel, Args)
