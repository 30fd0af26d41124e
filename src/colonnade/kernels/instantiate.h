// Explicit instantiations of the kernels: the dtypes of each kernel are listed here, the kernels of a header
// at its end as COL_X_KERNELS(M), which expands to M(function, argument struct) for each. The sources use it:
//
//   cpu/norm.cpp       COL_NORM_KERNELS(COL_INSTANTIATE_CPU)
//   cuda/norm.cu       COL_NORM_KERNELS(COL_INSTANTIATE_CUDA)
//   no_cuda/norm.cpp   COL_NORM_KERNELS(COL_UNAVAILABLE), of no_cuda/unavailable.h
#pragma once

#include "colonnade/kernels/types.h"

/// M(T) for each dtype of optimizer state and router scores.
#define COL_FOR_EACH_WIDE_DTYPE(M) M(float) M(double)
/// M(T) for each dtype of main gradients.
#define COL_FOR_EACH_GRADIENT_DTYPE(M) M(float) M(double) M(BFloat16)

#define COL_INSTANTIATE_CPU_WIDE(kernel, Args) \
  template void kernel(const Args<float>&);    \
  template void kernel(const Args<double>&);
#define COL_INSTANTIATE_CUDA_WIDE(kernel, Args)           \
  template void kernel(const Args<float>&, CUstream_st*); \
  template void kernel(const Args<double>&, CUstream_st*);

#define COL_INSTANTIATE_CPU(kernel, Args)      \
  COL_INSTANTIATE_CPU_WIDE(kernel, Args)       \
  template void kernel(const Args<BFloat16>&); \
  template void kernel(const Args<Half>&);
#define COL_INSTANTIATE_CUDA(kernel, Args)                   \
  COL_INSTANTIATE_CUDA_WIDE(kernel, Args)                    \
  template void kernel(const Args<BFloat16>&, CUstream_st*); \
  template void kernel(const Args<Half>&, CUstream_st*);

/// Kernels with two dtypes: the same twice, or 16 bits with fp32 (residual stream).
#define COL_INSTANTIATE_CPU_MIXED(kernel, Args)       \
  COL_INSTANTIATE_CPU(kernel, Args)                   \
  template void kernel(const Args<BFloat16, float>&); \
  template void kernel(const Args<Half, float>&);
#define COL_INSTANTIATE_CUDA_MIXED(kernel, Args)                    \
  COL_INSTANTIATE_CUDA(kernel, Args)                                \
  template void kernel(const Args<BFloat16, float>&, CUstream_st*); \
  template void kernel(const Args<Half, float>&, CUstream_st*);

/// The same, and fp32 with 16 bits.
#define COL_INSTANTIATE_CPU_BOTH_WAYS(kernel, Args)   \
  COL_INSTANTIATE_CPU_MIXED(kernel, Args)             \
  template void kernel(const Args<float, BFloat16>&); \
  template void kernel(const Args<float, Half>&);
#define COL_INSTANTIATE_CUDA_BOTH_WAYS(kernel, Args)                \
  COL_INSTANTIATE_CUDA_MIXED(kernel, Args)                          \
  template void kernel(const Args<float, BFloat16>&, CUstream_st*); \
  template void kernel(const Args<float, Half>&, CUstream_st*);
