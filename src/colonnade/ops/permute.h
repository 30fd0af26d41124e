// Token permutation: token rows to rows grouped by expert and back, without atomics.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace colonnade::ops {

/// Mapping between token rows and expert rows. A pair is a token and one of its k choices.
struct PermuteMap {
  at::Tensor token;        ///< int64 [rows], token of each row; -1: zero padding row
  at::Tensor pair;         ///< int64 [rows], token * k + choice; 0 for padding rows
  at::Tensor row_of_pair;  ///< int64 [n, k], row of each pair; -1: dropped
  at::Tensor counts;       ///< int64 [experts], rows per expert
};

/// The experts [first, first + count) of `num_experts`, and their capacity.
struct ExpertRange {
  std::int64_t first = 0, count = 0, num_experts = 0;
  std::int64_t capacity =
      0;                ///< maximum rows per expert, if pairs beyond it are already dropped; 0: unlimited
  bool padded = false;  ///< pad every expert to exactly `capacity` rows with zeros at the end
  /// On meta, without padding: load of these experts relative to the average.
  double meta_load_factor = 1;
};

/// Row order for the experts in `range`: by expert, then by token. Drops pairs of other experts and, with a
/// capacity, those with expert >= range.num_experts; without one, experts int64 [n, k] must lie in [0,
/// range.num_experts). Synchronizes with the device unless all experts are in range or padded. On meta,
/// values are undefined and the number of rows is estimated.
PermuteMap make_permute_map(const at::Tensor& experts, const ExpertRange& range);
/// Row order for all experts; no device synchronization.
inline PermuteMap make_permute_map(const at::Tensor& experts, std::int64_t num_experts) {
  return make_permute_map(experts, ExpertRange{0, num_experts, num_experts});
}

/// x [n, h] -> [rows, h], zero for padding rows. The gradient of a token sums its rows in the order of its
/// choices.
at::Tensor permute(const at::Tensor& x, const PermuteMap& order);

/// rows [rows, h] and weights [n, k] (fp32; float64 for float64 rows) -> [n, h]: weighted sum of each token's
/// rows in the order of its choices, rounded once. Differentiable in both.
at::Tensor unpermute(const at::Tensor& rows, const at::Tensor& weights, const PermuteMap& order);

}  // namespace colonnade::ops
