// Row statistics of logits, and the cross-entropy gradient, in one pass each.
#pragma once

#include <cstdint>

#include "colonnade/kernels/types.h"

namespace colonnade::kernels {

/// Per row of logits [rows, cols], over columns < valid: max, sum of exp(logit - max), and the logit of
/// column target - first (0 if outside [0, valid)). Without valid columns max is -inf. A NaN is ignored by
/// max and makes the sum NaN; -inf adds nothing to the sum without a cap. With a soft cap c > 0 the logit is
/// c tanh(z / c) of the stored z.
template <typename T>
struct LogitStats {
  const T* logits;
  const std::int64_t* targets;  ///< [rows]
  Acc<T>* max;
  Acc<T>* sum_exp;
  Acc<T>* target;
  std::int64_t rows;
  std::int64_t cols;
  std::int64_t valid;
  std::int64_t first;
  Acc<T> cap = 0;  ///< 0: none
};

/// logits = (exp(logit - max) / sum_exp - [column == target - first]) * grad; columns >= valid become 0. With
/// a soft cap, also times the derivative of the cap: the gradient of the stored z.
template <typename T>
struct LogitGradient {
  T* logits;
  const std::int64_t* targets;
  const Acc<T>* max;
  const Acc<T>* sum_exp;
  const Acc<T>* grad;
  std::int64_t rows;
  std::int64_t cols;
  std::int64_t valid;
  std::int64_t first;
  Acc<T> cap = 0;  ///< 0: none
};

namespace cpu {
template <typename T>
void logit_stats(const LogitStats<T>& a);
template <typename T>
void logit_gradient(const LogitGradient<T>& a);
}  // namespace cpu

namespace cuda {
template <typename T>
void logit_stats(const LogitStats<T>& a, CUstream_st* stream);
template <typename T>
void logit_gradient(const LogitGradient<T>& a, CUstream_st* stream);
}  // namespace cuda

/// Kernels of this header (instantiate.h).
#define COL_VOCAB_LOSS_KERNELS(M) M(logit_stats, LogitStats) M(logit_gradient, LogitGradient)

}  // namespace colonnade::kernels
