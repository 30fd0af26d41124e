// vocab_loss.h stubs for builds without CUDA: every function throws.
#include "colonnade/kernels/vocab_loss.h"

#include "colonnade/kernels/no_cuda/unavailable.h"

namespace colonnade::kernels::cuda {

COL_VOCAB_LOSS_KERNELS(COL_UNAVAILABLE)

}  // namespace colonnade::kernels::cuda
