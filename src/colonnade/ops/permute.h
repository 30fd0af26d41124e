// Rows of tokens to rows by expert and back, without atomics.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace colonnade::ops {

/// Which token each row belongs to and where its copies lie. A pair is a token and one of its k choices.
struct RowOrder {
  at::Tensor token;   ///< int64 [rows]
  at::Tensor pair;    ///< int64 [rows], token * k + choice
  at::Tensor place;   ///< int64 [n, k], the row of each pair; -1: dropped
  at::Tensor counts;  ///< int64 [experts], rows of each
};

/// The experts [first, first + count) of all.
struct ExpertRange {
  std::int64_t first = 0, count = 0, all = 0;
};

/// Rows of the experts in `range` ordered by expert, those of one expert by token; other experts' pairs are
/// dropped. experts int64 [n, k] within [0, range.all). On meta the numbers are undefined, and every expert
/// has equally many rows.
RowOrder order_by_expert(const at::Tensor& experts, const ExpertRange& range);
/// Those of all experts; nothing waits for the device.
inline RowOrder order_by_expert(const at::Tensor& experts, std::int64_t num_experts) {
  return order_by_expert(experts, ExpertRange{0, num_experts, num_experts});
}

/// x [n, h] -> [rows, h]. The gradient of a token is the sum of those of its rows, in the order of its
/// choices.
at::Tensor permute(const at::Tensor& x, const RowOrder& order);

/// rows [rows, h] and weights [n, k] (fp32; float64 for float64 rows) -> [n, h]: each token's rows, weighted,
/// in the order of its choices, rounded once. Both have gradients.
at::Tensor unpermute(const at::Tensor& rows, const at::Tensor& weights, const RowOrder& order);

}  // namespace colonnade::ops
