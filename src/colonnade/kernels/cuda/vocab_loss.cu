// Logit statistics and gradient on CUDA: a block per row, each thread with a running maximum.
#include "colonnade/kernels/vocab_loss.h"

#include <cmath>

#include "colonnade/kernels/cuda/common.cuh"
#include "colonnade/kernels/formulas.h"

namespace colonnade::kernels::cuda {
namespace {

/// A logit and its slope.
template <typename A>
__device__ ValueSlope<A> logit_of(A stored, A cap) {
  return cap > A(0) ? soft_capped<Math>(stored, cap) : ValueSlope<A>{stored, A(1)};
}

template <typename T>
__global__ void stats(LogitStats<T> a) {
  using A = Acc<T>;
  const std::int64_t row = blockIdx.x;
  const T* logits = a.logits + row * a.cols;
  A top = -A(INFINITY);
  A sum = 0;
  for (std::int64_t c = threadIdx.x; c < a.valid; c += kBlock) {
    const A value = logit_of(load(logits[c]), a.cap).value;
    if (value > top) {
      sum = sum * Math::exp(top - value) + A(1);
      top = value;
    } else if (value != -A(INFINITY)) {  // -inf adds nothing, and -inf - -inf would be NaN
      sum += Math::exp(value - top);
    }
  }
  const A max = block_max(top);
  // Without a largest logit the sum is 0, or NaN, which must stay.
  sum = block_sum(top == -A(INFINITY) ? sum : sum * Math::exp(top - max));
  if (threadIdx.x != 0) return;
  const std::int64_t target = a.targets[row] - a.first;
  a.max[row] = max;
  a.sum_exp[row] = sum;
  a.target[row] = target >= 0 && target < a.valid ? logit_of(load(logits[target]), a.cap).value : A(0);
}

template <typename T>
__global__ void gradient(LogitGradient<T> a) {
  using A = Acc<T>;
  const std::int64_t row = blockIdx.x;
  T* logits = a.logits + row * a.cols;
  const A max = a.max[row];
  const A grad = a.grad[row];
  const A factor = grad / a.sum_exp[row];
  const std::int64_t target = a.targets[row] - a.first;
  for (std::int64_t c = threadIdx.x; c < a.cols; c += kBlock) {
    const ValueSlope<A> logit = logit_of(load(logits[c]), a.cap);
    A value = Math::exp(logit.value - max) * factor;
    if (c == target) value -= grad;
    logits[c] = T(c < a.valid ? value * logit.slope : A(0));
  }
}

}  // namespace

template <typename T>
void logit_stats(const LogitStats<T>& a, CUstream_st* stream) {
  stats<<<static_cast<unsigned>(a.rows), kBlock, 0, stream>>>(a);
  check_launch("logit_stats");
}

template <typename T>
void logit_gradient(const LogitGradient<T>& a, CUstream_st* stream) {
  gradient<<<static_cast<unsigned>(a.rows), kBlock, 0, stream>>>(a);
  check_launch("logit_gradient");
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
