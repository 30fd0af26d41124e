// routing.h stubs for builds without CUDA: every function throws.
#include "colonnade/kernels/routing.h"

#include "colonnade/kernels/no_cuda/unavailable.h"

namespace colonnade::kernels::cuda {

template <typename T>
void route(const Route<T>&, CUstream_st*) {
  unavailable("route");
}
template <typename T>
void route_grad(const RouteGrad<T>&, CUstream_st*) {
  unavailable("route_grad");
}

template void route(const Route<float>&, CUstream_st*);
template void route(const Route<double>&, CUstream_st*);
template void route_grad(const RouteGrad<float>&, CUstream_st*);
template void route_grad(const RouteGrad<double>&, CUstream_st*);

}  // namespace colonnade::kernels::cuda
