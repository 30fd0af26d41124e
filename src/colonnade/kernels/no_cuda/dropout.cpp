// dropout.h stubs for builds without CUDA: every function throws.
#include "colonnade/kernels/dropout.h"

#include "colonnade/kernels/no_cuda/unavailable.h"

namespace colonnade::kernels::cuda {

COL_DROPOUT_KERNELS(COL_UNAVAILABLE_BOTH_WAYS)

}  // namespace colonnade::kernels::cuda
