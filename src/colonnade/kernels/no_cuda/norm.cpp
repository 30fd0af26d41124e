// norm.h stubs for builds without CUDA: every function throws.
#include "colonnade/kernels/norm.h"

#include "colonnade/kernels/no_cuda/unavailable.h"

namespace colonnade::kernels::cuda {

template <typename T>
void norm(const Norm<T>&, CUstream_st*) {
  unavailable("norm");
}
template <typename T>
void norm_grad(const NormGrad<T>&, CUstream_st*) {
  unavailable("norm_grad");
}

template void norm(const Norm<float>&, CUstream_st*);
template void norm(const Norm<double>&, CUstream_st*);
template void norm(const Norm<BFloat16>&, CUstream_st*);
template void norm(const Norm<Half>&, CUstream_st*);
template void norm_grad(const NormGrad<float>&, CUstream_st*);
template void norm_grad(const NormGrad<double>&, CUstream_st*);
template void norm_grad(const NormGrad<BFloat16>&, CUstream_st*);
template void norm_grad(const NormGrad<Half>&, CUstream_st*);

}  // namespace colonnade::kernels::cuda
