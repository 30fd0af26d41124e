// permute.h stubs for builds without CUDA: every function throws.
#include "colonnade/kernels/permute.h"

#include "colonnade/kernels/no_cuda/unavailable.h"

namespace colonnade::kernels::cuda {

template <typename T>
void gather_rows(const GatherRows<T>&, CUstream_st*) {
  unavailable("take_rows");
}
template <typename T>
void sum_rows(const SumRows<T>&, CUstream_st*) {
  unavailable("sum_rows");
}
template <typename T>
void dot_rows(const DotRows<T>&, CUstream_st*) {
  unavailable("dot_rows");
}

#define COL_INSTANTIATE(T)                                       \
  template void gather_rows(const GatherRows<T>&, CUstream_st*); \
  template void sum_rows(const SumRows<T>&, CUstream_st*);       \
  template void dot_rows(const DotRows<T>&, CUstream_st*)
COL_INSTANTIATE(float);
COL_INSTANTIATE(double);
COL_INSTANTIATE(BFloat16);
COL_INSTANTIATE(Half);
#undef COL_INSTANTIATE

}  // namespace colonnade::kernels::cuda
