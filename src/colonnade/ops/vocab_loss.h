// The local parts of cross-entropy over a vocabulary that is cut over ranks. Not differentiable by
// themselves: layers/vocab_loss reduces the statistics and holds the rule.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace colonnade::ops {

/// Of each row of local logits, fp32 (float64 for float64 logits) [n].
struct LogitStats {
  at::Tensor max;      ///< over the valid columns; -inf when there is none
  at::Tensor sum_exp;  ///< sum of exp(logit - max) over the valid columns; NaN when one of them is
  at::Tensor target;   ///< logit of the target; 0 where another rank holds it
};

/// One pass over logits [n, v]. Column c stands for token first_row + c; columns >= valid_rows are
/// filling and ignored. targets int64 [n]. With a cap c > 0 the logit is c tanh(z / c) of what is given.
LogitStats logit_stats(const at::Tensor& logits_nv, const at::Tensor& targets_n, std::int64_t first_row,
                       std::int64_t valid_rows, double cap = 0);

/// Overwrites logits by (exp(logit - max) / sum_exp - [column is the target]) * grad[row], with max and
/// sum_exp of the whole vocabulary; filling columns become 0. grad [n] has the type of max. With a cap
/// this times 1 - tanh(z / c)^2, the gradient of what was given.
void logit_gradient(at::Tensor& logits_nv, const LogitStats& whole, const at::Tensor& targets_n,
                    const at::Tensor& grad_n, std::int64_t first_row, std::int64_t valid_rows,
                    double cap = 0);

}  // namespace colonnade::ops
