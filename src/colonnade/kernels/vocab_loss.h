// Row statistics of logits and the gradient of cross-entropy, in one pass each.
#pragma once

#include <cstdint>

#include "colonnade/kernels/types.h"

namespace colonnade::kernels {

/// Per row of logits [rows, cols], over columns < valid: max, sum of exp(logit - max), and the logit
/// of column target - first (0 where that is outside [0, valid)). Without valid columns max is -inf.
/// A NaN does not count for max and makes the sum NaN; -inf adds nothing to the sum without a cap. With a cap
/// c > 0 a logit is c tanh(z / c) of what is stored.
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

/// logits = (exp(logit - max) / sum_exp - [column == target - first]) * grad, columns >= valid = 0. With a
/// cap also times the slope of the logit: the gradient of what was stored.
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

}  // namespace colonnade::kernels
