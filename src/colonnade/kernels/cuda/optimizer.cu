// Optimizer updates on CUDA: many tensors per launch, passed as kernel arguments.
#include "colonnade/kernels/optimizer.h"

#include <cmath>

#include "colonnade/kernels/cuda/common.cuh"
#include "colonnade/kernels/instantiate.h"

namespace colonnade::kernels::cuda {
namespace {

constexpr int kSpans = 48;                // limited by the 4 KiB of kernel arguments
constexpr std::int64_t kChunk = 1 << 14;  // elements per thread block

/// Spans of one launch, and the first thread block of each.
template <typename Span>
struct Batch {
  Span spans[kSpans];
  unsigned first[kSpans + 1];
};

template <typename T>
__device__ void copy_out(void* copy, CopyType type, std::int64_t i, T value) {
  switch (type) {
    case CopyType::kNone:
      return;
    case CopyType::kFloat32:
      static_cast<float*>(copy)[i] = float(value);
      return;
    case CopyType::kBFloat16:
      static_cast<BFloat16*>(copy)[i] = BFloat16(float(value));
      return;
    case CopyType::kHalf:
      static_cast<Half*>(copy)[i] = Half(float(value));
      return;
  }
}

template <typename T>
__device__ void update(const AdamSpan<T>& s, const AdamStep& step, std::int64_t i) {
  T p = s.param[i];
  const T g = s.grad[i] * T(step.grad_scale) + T(step.decoupled ? 0.0 : step.weight_decay) * p;
  const T m = T(step.beta1) * s.m[i] + T(1.0 - step.beta1) * g;
  const T v = T(step.beta2) * s.v[i] + T(1.0 - step.beta2) * g * g;
  p = p * T(step.decoupled ? 1.0 - step.lr * step.weight_decay : 1.0) -
      T(step.lr / step.bias1) * m / (sqrt(v) * T(1.0 / sqrt(step.bias2)) + T(step.eps));
  s.m[i] = m;
  s.v[i] = v;
  s.param[i] = p;
  copy_out(s.copy, s.copy_type, i, p);
}

template <typename T>
__device__ void update(const SgdSpan<T>& s, const SgdStep& step, std::int64_t i) {
  T p = s.param[i];
  T buffer = s.grad[i] * T(step.grad_scale) + T(step.weight_decay) * p;
  if (s.momentum != nullptr) {
    if (!step.first) buffer += T(step.momentum) * s.momentum[i];
    s.momentum[i] = buffer;
  }
  p -= T(step.lr) * buffer;
  s.param[i] = p;
  copy_out(s.copy, s.copy_type, i, p);
}

template <typename T>
__device__ void update(const LionSpan<T>& s, const LionStep& step, std::int64_t i) {
  const T g = s.grad[i] * T(step.grad_scale);
  const T m = s.m[i];
  const T sum = T(step.beta1) * m + T(1.0 - step.beta1) * g;
  const T sign = T(sum > T(0)) - T(sum < T(0));
  const T p = s.param[i] * T(1.0 - step.lr * step.weight_decay) - T(step.lr) * sign;
  s.m[i] = T(step.beta2) * m + T(1.0 - step.beta2) * g;
  s.param[i] = p;
  copy_out(s.copy, s.copy_type, i, p);
}

template <typename Span, typename Step>
__global__ void update_spans(Batch<Span> batch, Step step) {
  int at = 0;
  while (blockIdx.x >= batch.first[at + 1]) ++at;
  const Span span = batch.spans[at];
  const std::int64_t begin = (blockIdx.x - batch.first[at]) * kChunk;
  const std::int64_t end = begin + kChunk < span.n ? begin + kChunk : span.n;
  for (std::int64_t i = begin + threadIdx.x; i < end; i += kBlock) update(span, step, i);
}

template <typename Span, typename Step>
void run(const std::vector<Span>& spans, const Step& step, CUstream_st* stream) {
  for (std::size_t at = 0; at < spans.size(); at += kSpans) {
    Batch<Span> batch{};
    for (int i = 0; i < kSpans; ++i) {
      const bool has_span = at + i < spans.size();
      if (has_span) batch.spans[i] = spans[at + i];
      batch.first[i + 1] =
          batch.first[i] + (has_span ? static_cast<unsigned>((spans[at + i].n + kChunk - 1) / kChunk) : 0);
    }
    if (batch.first[kSpans] > 0) update_spans<<<batch.first[kSpans], kBlock, 0, stream>>>(batch, step);
  }
  check_launch("optimizer step");
}

template <typename T>
__global__ void sum_squares_block(const T* x, std::int64_t n, double* partial) {
  const std::int64_t begin = std::int64_t{blockIdx.x} << 16;
  const std::int64_t end = begin + (1 << 16) < n ? begin + (1 << 16) : n;
  double sum = 0;
  for (std::int64_t i = begin + threadIdx.x; i < end; i += kBlock) sum += double(x[i]) * double(x[i]);
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

}  // namespace

template <typename T>
void adam(const AdamSpans<T>& spans, const AdamStep& step, CUstream_st* stream) {
  run(spans, step, stream);
}

template <typename T>
void sgd(const SgdSpans<T>& spans, const SgdStep& step, CUstream_st* stream) {
  run(spans, step, stream);
}

template <typename T>
void lion(const LionSpans<T>& spans, const LionStep& step, CUstream_st* stream) {
  run(spans, step, stream);
}

template <typename T>
void sum_squares(const T* x, std::int64_t n, double* partial, CUstream_st* stream) {
  sum_squares_block<<<static_cast<unsigned>(sum_squares_blocks(n)), kBlock, 0, stream>>>(x, n, partial);
  check_launch("sum_squares");
}

COL_FOR_EACH_WIDE_DTYPE(COL_INSTANTIATE_CUDA_OPTIMIZER)

}  // namespace colonnade::kernels::cuda
