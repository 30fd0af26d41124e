// activation.h stubs for builds without CUDA: every function throws.
#include "colonnade/kernels/activation.h"

#include "colonnade/kernels/no_cuda/unavailable.h"

namespace colonnade::kernels::cuda {

COL_ACTIVATION_KERNELS(COL_UNAVAILABLE)

}  // namespace colonnade::kernels::cuda
