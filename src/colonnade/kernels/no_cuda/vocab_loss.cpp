// vocab_loss.h stubs for builds without CUDA: every function throws.
#include "colonnade/kernels/vocab_loss.h"

#include "colonnade/kernels/no_cuda/unavailable.h"

namespace colonnade::kernels::cuda {

template <typename T>
void logit_stats(const LogitStats<T>&, CUstream_st*) {
  unavailable("logit_stats");
}
template <typename T>
void logit_gradient(const LogitGradient<T>&, CUstream_st*) {
  unavailable("logit_gradient");
}

template void logit_stats(const LogitStats<float>&, CUstream_st*);
template void logit_stats(const LogitStats<double>&, CUstream_st*);
template void logit_stats(const LogitStats<BFloat16>&, CUstream_st*);
template void logit_stats(const LogitStats<Half>&, CUstream_st*);
template void logit_gradient(const LogitGradient<float>&, CUstream_st*);
template void logit_gradient(const LogitGradient<double>&, CUstream_st*);
template void logit_gradient(const LogitGradient<BFloat16>&, CUstream_st*);
template void logit_gradient(const LogitGradient<Half>&, CUstream_st*);

}  // namespace colonnade::kernels::cuda
