// norm.h stubs for builds without CUDA: every function throws.
#include "colonnade/kernels/norm.h"

#include "colonnade/kernels/no_cuda/unavailable.h"

namespace colonnade::kernels::cuda {

COL_NORM_KERNELS(COL_UNAVAILABLE_MIXED)

}  // namespace colonnade::kernels::cuda
