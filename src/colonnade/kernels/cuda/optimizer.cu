// Optimizer updates on CUDA: many tensors per launch, passed as kernel arguments.
#include "colonnade/kernels/optimizer.h"

#include <cmath>

#include "colonnade/kernels/cuda/common.cuh"
#include "colonnade/kernels/instantiate.h"

namespace colonnade::kernels::cuda {
namespace {

constexpr std::int64_t kChunk = 1 << 14;  // elements per thread block

/// Spans of one launch, and the first thread block of each.
template <typename Span>
struct Batch {
  static constexpr int kSpans = sizeof(Span) > 64 ? 30 : 48;  // limited by the 4 KiB of kernel arguments
  Span spans[kSpans];
  unsigned first[kSpans + 1];
};
static_assert(sizeof(Batch<StoredAdamSpan>) + sizeof(AdamStep) < 4096);

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

__device__ float load_stored(const void* data, StoredType type, std::int64_t i) {
  switch (type) {
    case StoredType::kFloat32:
      break;
    case StoredType::kBFloat16:
      return float(static_cast<const BFloat16*>(data)[i]);
    case StoredType::kHalf:
      return float(static_cast<const Half*>(data)[i]);
    case StoredType::kFloat8:
      return float(static_cast<const Float8*>(data)[i]);
  }
  return static_cast<const float*>(data)[i];
}

__device__ float load_stored(const StoredValues& x, std::int64_t i) {
  return load_stored(x.data, x.type, i) * (x.scale != nullptr ? x.scale[0] : 1.0F);
}

template <typename S>
__device__ float store_as(void* data, std::int64_t i, float value) {
  const S stored(value);
  static_cast<S*>(data)[i] = stored;
  return float(stored);
}

/// Stores a value with the new scale; the value as stored.
__device__ float store_stored(const StoredValues& x, std::int64_t i, float value) {
  const float scale = x.scale != nullptr ? scale_for(x.scale[1], x.type) : 1.0F;
  const float quotient = value * (1.0F / scale);
  switch (x.type) {
    case StoredType::kFloat32:
      break;
    case StoredType::kBFloat16:
      return store_as<BFloat16>(x.data, i, quotient) * scale;
    case StoredType::kHalf:
      return store_as<Half>(x.data, i, quotient) * scale;
    case StoredType::kFloat8:
      return store_as<Float8>(x.data, i, quotient) * scale;
  }
  return store_as<float>(x.data, i, value);
}

struct AdamValues {
  float p, m, v;
};

/// New values of element i, in fp32, without storing them.
__device__ AdamValues new_values(const StoredAdamSpan& s, const AdamStep& step, std::int64_t i) {
  AdamValues x{load_stored(s.param, i), load_stored(s.m, i), load_stored(s.v, i)};
  const float g = load_stored(s.grad, s.grad_type, i);
  update(AdamSpan<float>{&x.p, &g, &x.m, &x.v, 1}, step, 0);
  return x;
}

__device__ void update(const StoredAdamSpan& s, const AdamStep& step, std::int64_t i) {
  const AdamValues x = new_values(s, step, i);
  store_stored(s.m, i, x.m);
  store_stored(s.v, i, x.v);
  copy_out(s.copy, s.copy_type, i, store_stored(s.param, i, x.p));
}

/// Span and elements [begin, end) of this thread block.
template <typename Span>
struct BlockPart {
  const Span* span;
  std::int64_t begin, end;
};
template <typename Span>
__device__ BlockPart<Span> block_part(const Batch<Span>& batch) {
  int at = 0;
  while (blockIdx.x >= batch.first[at + 1]) ++at;
  const std::int64_t n = batch.spans[at].n;
  const std::int64_t begin = (blockIdx.x - batch.first[at]) * kChunk;
  return {&batch.spans[at], begin, begin + kChunk < n ? begin + kChunk : n};
}

template <typename Span, typename Step>
__global__ void update_spans(Batch<Span> batch, Step step) {
  const BlockPart<Span> part = block_part(batch);
  const Span span = *part.span;
  for (std::int64_t i = part.begin + threadIdx.x; i < part.end; i += kBlock) update(span, step, i);
}

/// Raises the workspace of a scale to the largest magnitude of a thread block. Floats of at least 0 are
/// ordered as their bits.
__device__ void raise_largest(const StoredValues& x, float value) {
  if (x.scale == nullptr) return;
  const float largest = block_max(value);
  if (threadIdx.x == 0) atomicMax(reinterpret_cast<int*>(x.scale + 1), __float_as_int(largest));
}

__global__ void find_largest(Batch<StoredAdamSpan> batch, AdamStep step) {
  const BlockPart<StoredAdamSpan> part = block_part(batch);
  const StoredAdamSpan span = *part.span;
  if (!span.has_scale()) return;
  float p = 0, m = 0, v = 0;
  for (std::int64_t i = part.begin + threadIdx.x; i < part.end; i += kBlock) {
    const AdamValues x = new_values(span, step, i);
    p = fmaxf(p, fabsf(x.p));
    m = fmaxf(m, fabsf(x.m));
    v = fmaxf(v, fabsf(x.v));
  }
  raise_largest(span.param, p);
  raise_largest(span.m, m);
  raise_largest(span.v, v);
}

/// The new scales replace the old ones: one thread per span.
__global__ void adopt_scales(Batch<StoredAdamSpan> batch) {
  if (threadIdx.x >= Batch<StoredAdamSpan>::kSpans || batch.spans[threadIdx.x].n == 0) return;
  const StoredAdamSpan span = batch.spans[threadIdx.x];
  const StoredValues tensors[] = {span.param, span.m, span.v};
  for (const StoredValues& x : tensors) {
    if (x.scale == nullptr) continue;
    x.scale[0] = scale_for(x.scale[1], x.type);
    x.scale[1] = 0;
  }
}

/// Calls f(batch, number of thread blocks) for spans in batches that are not empty.
template <typename Span, typename F>
void for_each_batch(const std::vector<Span>& spans, const F& f) {
  constexpr int kSpans = Batch<Span>::kSpans;
  for (std::size_t at = 0; at < spans.size(); at += kSpans) {
    Batch<Span> batch{};
    for (int i = 0; i < kSpans; ++i) {
      const bool has_span = at + i < spans.size();
      if (has_span) batch.spans[i] = spans[at + i];
      batch.first[i + 1] =
          batch.first[i] + (has_span ? static_cast<unsigned>((spans[at + i].n + kChunk - 1) / kChunk) : 0);
    }
    if (batch.first[kSpans] > 0) f(batch, batch.first[kSpans]);
  }
}

template <typename Span, typename Step>
void run(const std::vector<Span>& spans, const Step& step, CUstream_st* stream) {
  for_each_batch(spans, [&](const Batch<Span>& batch, unsigned blocks) {
    update_spans<<<blocks, kBlock, 0, stream>>>(batch, step);
  });
  check_launch("optimizer step");
}

template <typename T>
__global__ void sum_squares_block(const T* x, std::int64_t n, double* partial) {
  const std::int64_t begin = std::int64_t{blockIdx.x} << 16;
  const std::int64_t end = begin + (1 << 16) < n ? begin + (1 << 16) : n;
  double sum = 0;
  for (std::int64_t i = begin + threadIdx.x; i < end; i += kBlock) {
    const double value = double(load(x[i]));
    sum += value * value;
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

}  // namespace

template <typename T>
void adam(const AdamSpans<T>& spans, const AdamStep& step, CUstream_st* stream) {
  run(spans, step, stream);
}

void stored_adam(const StoredAdamSpans& spans, const AdamStep& step, CUstream_st* stream) {
  const bool has_scales =
      std::any_of(spans.begin(), spans.end(), [](const StoredAdamSpan& s) { return s.has_scale(); });
  for_each_batch(spans, [&](const Batch<StoredAdamSpan>& batch, unsigned blocks) {
    if (has_scales) find_largest<<<blocks, kBlock, 0, stream>>>(batch, step);
    update_spans<<<blocks, kBlock, 0, stream>>>(batch, step);
    if (has_scales) adopt_scales<<<1, kBlock, 0, stream>>>(batch);
  });
  check_launch("optimizer step with stored states");
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
COL_FOR_EACH_GRADIENT_DTYPE(COL_INSTANTIATE_CUDA_SUM_SQUARES)

}  // namespace colonnade::kernels::cuda
