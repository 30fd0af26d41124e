// Optimizer updates over flat memory, and reductions for clipping and loss scaling.
#pragma once

#include <bit>
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

/// Dtype in which an optimizer stores values that it computes in fp32.
enum class StoredType : std::uint8_t { kFloat32, kBFloat16, kHalf, kFloat8 };

/// Largest quotient of value and scale that is stored: half of the largest fp16 number, as in
/// TransformerEngine, and the largest fp8 number.
constexpr float largest_quotient(StoredType type) { return type == StoredType::kHalf ? 32752.0F : 448.0F; }

/// Smallest power of two s with largest / s <= largest_quotient(type), at least 2^-120; 1 for 0. Multiplying
/// by a power of two is exact: values that are read and stored again keep their bits.
constexpr float scale_for(float largest, StoredType type) {
  const float ratio = largest / largest_quotient(type);
  const auto bits = std::bit_cast<std::uint32_t>(ratio);
  const std::uint32_t exponent = (bits & 0x7F800000U) + ((bits & 0x007FFFFFU) != 0 ? 0x00800000U : 0U);
  constexpr std::uint32_t kMin = 7U << 23, kMax = 254U << 23;  // 2^-120 and 2^127
  if (!(largest > 0)) return 1.0F;
  return std::bit_cast<float>(exponent < kMin ? kMin : exponent > kMax ? kMax : exponent);
}

/// Values of an optimizer tensor: the stored numbers times *scale.
struct StoredValues {
  void* data = nullptr;
  /// {scale, workspace}: fp16 and fp8 have one, chosen at every update by scale_for() of the largest
  /// magnitude; the workspace is 0 between updates. Null: the scale is 1.
  float* scale = nullptr;
  StoredType type = StoredType::kFloat32;
};

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
/// Adam on fp32 values that may be stored in fewer bits: they are converted, updated and rounded to nearest
/// even. `copy` receives the new parameter as stored. Tensors with a scale are read twice.
struct StoredAdamSpan {
  StoredValues param;  ///< fp32, or fp16 with a scale
  StoredValues m;
  StoredValues v;
  const void* grad;
  StoredType grad_type;  ///< fp32 or bf16
  CopyType copy_type = CopyType::kNone;
  void* copy = nullptr;
  std::int64_t n;

  [[nodiscard]] constexpr bool has_scale() const {
    return param.scale != nullptr || m.scale != nullptr || v.scale != nullptr;
  }
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
using StoredAdamSpans = std::vector<StoredAdamSpan>;
template <typename T>
using SgdSpans = std::vector<SgdSpan<T>>;
template <typename T>
using LionSpans = std::vector<LionSpan<T>>;

namespace cpu {
template <typename T>
void adam(const AdamSpans<T>& spans, const AdamStep& step);
void stored_adam(const StoredAdamSpans& spans, const AdamStep& step);
template <typename T>
void sgd(const SgdSpans<T>& spans, const SgdStep& step);
template <typename T>
void lion(const LionSpans<T>& spans, const LionStep& step);
/// float64 sum over blocks of fixed length, added in order. T may also be BFloat16 here and below.
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
void stored_adam(const StoredAdamSpans& spans, const AdamStep& step, CUstream_st* stream);
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
  template void lion(const LionSpans<T>&, const LionStep&, CUstream_st*);
/// For COL_FOR_EACH_GRADIENT_DTYPE.
#define COL_INSTANTIATE_CUDA_SUM_SQUARES(T) \
  template void sum_squares(const T*, std::int64_t, double*, CUstream_st*);

}  // namespace colonnade::kernels
