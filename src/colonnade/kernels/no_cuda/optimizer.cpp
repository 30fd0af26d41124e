// optimizer.h stubs for builds without CUDA: every function throws.
#include "colonnade/kernels/optimizer.h"

#include "colonnade/kernels/no_cuda/unavailable.h"

namespace colonnade::kernels::cuda {

template <typename T>
void adam(const AdamSpans<T>&, const AdamStep&, CUstream_st*) {
  unavailable("adam");
}
void stored_adam(const StoredAdamSpans&, const AdamStep&, CUstream_st*) { unavailable("stored_adam"); }
template <typename T>
void sgd(const SgdSpans<T>&, const SgdStep&, CUstream_st*) {
  unavailable("sgd");
}
template <typename T>
void lion(const LionSpans<T>&, const LionStep&, CUstream_st*) {
  unavailable("lion");
}
template <typename T>
void sum_squares(const T*, std::int64_t, double*, CUstream_st*) {
  unavailable("sum_squares");
}

COL_FOR_EACH_WIDE_DTYPE(COL_INSTANTIATE_CUDA_OPTIMIZER)
COL_FOR_EACH_GRADIENT_DTYPE(COL_INSTANTIATE_CUDA_SUM_SQUARES)

}  // namespace colonnade::kernels::cuda
