// Rows of tokens to rows by expert and back, without atomics.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace colonnade::ops {

/// Which token each row belongs to and where its copies lie. A pair is a token and one of its k choices.
struct RowOrder {
  at::Tensor token;   ///< int64 [rows]; -1: a row of zeros that fills its expert up
  at::Tensor pair;    ///< int64 [rows], token * k + choice; 0 of such a row
  at::Tensor place;   ///< int64 [n, k], the row of each pair; -1: dropped
  at::Tensor counts;  ///< int64 [experts], rows of each
};

/// The experts [first, first + count) of all.
struct ExpertRange {
  std::int64_t first = 0, count = 0, all = 0;
  std::int64_t most = 0;  ///< rows that each has at most, since all others are dropped already; 0: any number
  bool filled = false;    ///< each has exactly `most` rows, zeros at its end
  /// On meta: rows of these experts over those of as many average ones, when nothing is filled.
  double assumed = 1;
};

/// Rows of the experts in `range` ordered by expert, those of one expert by token; pairs of other experts
/// and, where there is a `most`, of those from range.all on are dropped. experts int64 [n, k]. Without a
/// `most` they lie within [0, range.all). The host waits for the device unless all experts are wanted or they
/// are filled. On meta the numbers are undefined, and how many rows there are is assumed.
RowOrder order_by_expert(const at::Tensor& experts, const ExpertRange& range);
/// Those of all experts; nothing waits for the device.
inline RowOrder order_by_expert(const at::Tensor& experts, std::int64_t num_experts) {
  return order_by_expert(experts, ExpertRange{0, num_experts, num_experts});
}

/// x [n, h] -> [rows, h], 0 where a row has no token. The gradient of a token is the sum of those of its
/// rows, in the order of its choices.
at::Tensor permute(const at::Tensor& x, const RowOrder& order);

/// rows [rows, h] and weights [n, k] (fp32; float64 for float64 rows) -> [n, h]: each token's rows, weighted,
/// in the order of its choices, rounded once. Both have gradients.
at::Tensor unpermute(const at::Tensor& rows, const at::Tensor& weights, const RowOrder& order);

}  // namespace colonnade::ops
