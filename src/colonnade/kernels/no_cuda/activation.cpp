// activation.h stubs for builds without CUDA: every function throws.
#include "colonnade/kernels/activation.h"

#include "colonnade/kernels/no_cuda/unavailable.h"

namespace colonnade::kernels::cuda {

template <typename T>
void activation(const Activation<T>&, CUstream_st*) {
  unavailable("activation");
}
template <typename T>
void activation_grad(const ActivationGrad<T>&, CUstream_st*) {
  unavailable("activation_grad");
}

template void activation(const Activation<float>&, CUstream_st*);
template void activation(const Activation<double>&, CUstream_st*);
template void activation(const Activation<BFloat16>&, CUstream_st*);
template void activation(const Activation<Half>&, CUstream_st*);
template void activation_grad(const ActivationGrad<float>&, CUstream_st*);
template void activation_grad(const ActivationGrad<double>&, CUstream_st*);
template void activation_grad(const ActivationGrad<BFloat16>&, CUstream_st*);
template void activation_grad(const ActivationGrad<Half>&, CUstream_st*);

}  // namespace colonnade::kernels::cuda
