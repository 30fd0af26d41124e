// Logit statistics and gradient on CUDA: one thread block per row, an online softmax per thread.
#include "colonnade/kernels/vocab_loss.h"

#include <cmath>

#include "colonnade/kernels/cuda/common.cuh"
#include "colonnade/kernels/formulas.h"
#include "colonnade/kernels/instantiate.h"

namespace colonnade::kernels::cuda {
namespace {

/// A logit and its derivative.
template <typename A>
__device__ ValueDerivative<A> logit_of(A stored, A cap) {
  return cap > A(0) ? soft_cap<Math>(stored, cap) : ValueDerivative<A>{stored, A(1)};
}

template <typename T>
__global__ void stats(LogitStats<T> a) {
  using A = Acc<T>;
  const std::int64_t row = blockIdx.x;
  const T* logits = a.logits + row * a.cols;
  A running_max = -A(INFINITY);
  A sum = 0;
  for (std::int64_t c = threadIdx.x; c < a.valid; c += kBlock) {
    const A value = logit_of(load(logits[c]), a.cap).value;
    if (value > running_max) {
      sum = sum * Math::exp(running_max - value) + A(1);
      running_max = value;
    } else if (value != -A(INFINITY)) {  // -inf adds nothing, and -inf - -inf would be NaN
      sum += Math::exp(value - running_max);
    }
  }
  const A max = block_max(running_max);
  // Without a finite maximum the sum is 0 or NaN; keep it.
  sum = block_sum(running_max == -A(INFINITY) ? sum : sum * Math::exp(running_max - max));
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
    const ValueDerivative<A> logit = logit_of(load(logits[c]), a.cap);
    A value = Math::exp(logit.value - max) * factor;
    if (c == target) value -= grad;
    logits[c] = T(c < a.valid ? value * logit.derivative : A(0));
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

COL_VOCAB_LOSS_KERNELS(COL_INSTANTIATE_CUDA)

}  // namespace colonnade::kernels::cuda
