// reduce.h stubs for builds without CUDA: every function throws.
#include "colonnade/kernels/reduce.h"

#include "colonnade/kernels/no_cuda/unavailable.h"

namespace colonnade::kernels::cuda {

COL_REDUCE_KERNELS(COL_UNAVAILABLE)

}  // namespace colonnade::kernels::cuda
