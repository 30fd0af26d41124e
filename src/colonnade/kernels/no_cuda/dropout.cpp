// dropout.h stubs for builds without CUDA: every function throws.
#include "colonnade/kernels/dropout.h"

#include "colonnade/kernels/no_cuda/unavailable.h"

namespace colonnade::kernels::cuda {

template <typename T>
void dropout(const Dropout<T>&, CUstream_st*) {
  unavailable("dropout");
}

template void dropout(const Dropout<float>&, CUstream_st*);
template void dropout(const Dropout<double>&, CUstream_st*);
template void dropout(const Dropout<BFloat16>&, CUstream_st*);
template void dropout(const Dropout<Half>&, CUstream_st*);

}  // namespace colonnade::kernels::cuda
