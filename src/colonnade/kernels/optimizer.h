// Optimizer updates over flat memory, and reductions for clipping and loss scaling.
#pragma once

#include <cstdint>
#include <vector>

#include "colonnade/kernels/types.h"

namespace colonnade::kernels {

/// g = grad * grad_scale (unscaling and clipping in one factor); with decoupled decay
///   m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
///   p -= lr (m / bias1 / (sqrt(v / bias2) + eps) + weight_decay p)
/// without it (decoupled = false) g += weight_decay p first, as in Adam with L2 regularization.
/// bias1 = 1 - beta1^t, bias2 = 1 - beta2^t for step t = 1, 2, ...
struct AdamStep {
  double lr = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled = true;
  double bias1 = 1;
  double bias2 = 1;
  double grad_scale = 1;
};

/// g = grad * grad_scale + weight_decay p;  buf = first ? g : momentum buf + g;  p -= lr buf,
/// as torch.optim.SGD. Without momentum buf is g and no buffer is needed.
struct SgdStep {
  double lr = 0;
  double momentum = 0;
  double weight_decay = 0;
  bool first = false;
  double grad_scale = 1;
};

/// g = grad * grad_scale;  p -= lr (sign(beta1 m + (1 - beta1) g) + weight_decay p);  m = beta2 m + (1 -
/// beta2) g, where sign(0) is 0. Source: Chen et al. 2023, Algorithm 2.
struct LionStep {
  double lr = 0;
  double beta1 = 0.95;
  double beta2 = 0.98;
  double weight_decay = 0;
  double grad_scale = 1;
};

/// Dtype of the low-precision copy of a parameter.
enum class CopyType : std::uint8_t { kNone, kFloat32, kBFloat16, kHalf };

/// n contiguous elements; T is float or double. `copy` receives the new parameter in copy_type.
template <typename T>
struct AdamSpan {
  T* param;
  const T* grad;
  T* m;
  T* v;
  std::int64_t n;
  void* copy = nullptr;
  CopyType copy_type = CopyType::kNone;
};
template <typename T>
struct SgdSpan {
  T* param;
  const T* grad;
  T* momentum;  ///< null without momentum
  std::int64_t n;
  void* copy = nullptr;
  CopyType copy_type = CopyType::kNone;
};
template <typename T>
struct LionSpan {
  T* param;
  const T* grad;
  T* m;
  std::int64_t n;
  void* copy = nullptr;
  CopyType copy_type = CopyType::kNone;
};
template <typename T>
using AdamSpans = std::vector<AdamSpan<T>>;
template <typename T>
using SgdSpans = std::vector<SgdSpan<T>>;
template <typename T>
using LionSpans = std::vector<LionSpan<T>>;

namespace cpu {
template <typename T>
void adam(const AdamSpans<T>& spans, const AdamStep& step);
template <typename T>
void sgd(const SgdSpans<T>& spans, const SgdStep& step);
template <typename T>
void lion(const LionSpans<T>& spans, const LionStep& step);
/// float64 sum over blocks of fixed length, added in order.
template <typename T>
double sum_squares(const T* x, std::int64_t n);
template <typename T>
std::int64_t count_zeros(const T* x, std::int64_t n);
template <typename T>
bool has_nonfinite(const T* x, std::int64_t n);
}  // namespace cpu

namespace cuda {
template <typename T>
void adam(const AdamSpans<T>& spans, const AdamStep& step, CUstream_st* stream);
template <typename T>
void sgd(const SgdSpans<T>& spans, const SgdStep& step, CUstream_st* stream);
template <typename T>
void lion(const LionSpans<T>& spans, const LionStep& step, CUstream_st* stream);
/// Writes partial sums [sum_squares_blocks(n)], float64 on the device, for the caller to add in order.
template <typename T>
void sum_squares(const T* x, std::int64_t n, double* partial, CUstream_st* stream);
}  // namespace cuda

/// Number of blocks of sum_squares on CUDA.
inline std::int64_t sum_squares_blocks(std::int64_t n) { return (n + (1 << 16) - 1) >> 16; }

/// CUDA kernels of this header, for COL_FOR_EACH_WIDE_DTYPE (instantiate.h).
#define COL_INSTANTIATE_CUDA_OPTIMIZER(T)                                 \
  template void adam(const AdamSpans<T>&, const AdamStep&, CUstream_st*); \
  template void sgd(const SgdSpans<T>&, const SgdStep&, CUstream_st*);    \
  template void lion(const LionSpans<T>&, const LionStep&, CUstream_st*); \
  template void sum_squares(const T*, std::int64_t, double*, CUstream_st*);

}  // namespace colonnade::kernels
