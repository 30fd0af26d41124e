// Local part of vocabulary-parallel cross-entropy. Not differentiable: layers/vocab_loss reduces the
// statistics and has the autograd function.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace colonnade::ops {

/// Statistics of each row of local logits, fp32 (float64 for float64 logits) [n].
struct LogitStats {
  at::Tensor max;      ///< maximum over the valid columns; -inf if there are none
  at::Tensor sum_exp;  ///< sum of exp(logit - max) over the valid columns; NaN if any is NaN
  at::Tensor target;   ///< logit of the target; 0 if on another rank
};

/// One pass over logits [n, v]. Column c is token first_row + c; columns >= valid_rows are padding and
/// ignored. targets int64 [n]. With a soft cap c > 0 the logit is c tanh(z / c) of the given z.
LogitStats logit_stats(const at::Tensor& logits_nv, const at::Tensor& targets_n, std::int64_t first_row,
                       std::int64_t valid_rows, double cap = 0);

/// Overwrites logits by (exp(logit - max) / sum_exp - [column is the target]) * grad[row], with max and
/// sum_exp of the full vocabulary; padding columns become 0. grad [n] has the dtype of max. With a soft cap,
/// times 1 - tanh(z / c)^2.
void logit_gradient(at::Tensor& logits_nv, const LogitStats& global, const at::Tensor& targets_n,
                    const at::Tensor& grad_n, std::int64_t first_row, std::int64_t valid_rows,
                    double cap = 0);

}  // namespace colonnade::ops
