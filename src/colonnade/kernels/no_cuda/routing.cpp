// routing.h stubs for builds without CUDA: every function throws.
#include "colonnade/kernels/routing.h"

#include "colonnade/kernels/no_cuda/unavailable.h"

namespace colonnade::kernels::cuda {

COL_ROUTING_KERNELS(COL_UNAVAILABLE_WIDE)

}  // namespace colonnade::kernels::cuda
