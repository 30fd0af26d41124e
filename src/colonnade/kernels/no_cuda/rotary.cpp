// rotary.h stubs for builds without CUDA: every function throws.
#include "colonnade/kernels/rotary.h"

#include "colonnade/kernels/no_cuda/unavailable.h"

namespace colonnade::kernels::cuda {

template <typename T>
void rotary(const Rotary<T>&, CUstream_st*) {
  unavailable("rotary");
}

template void rotary(const Rotary<float>&, CUstream_st*);
template void rotary(const Rotary<double>&, CUstream_st*);
template void rotary(const Rotary<BFloat16>&, CUstream_st*);
template void rotary(const Rotary<Half>&, CUstream_st*);

}  // namespace colonnade::kernels::cuda
