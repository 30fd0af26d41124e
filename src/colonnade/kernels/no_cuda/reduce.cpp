// reduce.h stubs for builds without CUDA: every function throws.
#include "colonnade/kernels/reduce.h"

#include "colonnade/kernels/no_cuda/unavailable.h"

namespace colonnade::kernels::cuda {

template <typename T>
void column_sum(const ColumnSum<T>&, CUstream_st*) {
  unavailable("column_sum");
}

template void column_sum(const ColumnSum<float>&, CUstream_st*);
template void column_sum(const ColumnSum<double>&, CUstream_st*);
template void column_sum(const ColumnSum<BFloat16>&, CUstream_st*);
template void column_sum(const ColumnSum<Half>&, CUstream_st*);

}  // namespace colonnade::kernels::cuda
