// Which sample a position of the run is: the order of --dataloader-type, as pure functions.
// Source: Megatron's training/datasets/data_samplers.py.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace colonnade::data {

/// Rows of a global batch that data rank `rank` takes in its micro-batch `k`: micro-batches go round the
/// ranks, rows [(k * ranks + rank) * micro_batch, + micro_batch).
template <typename T>
std::span<const T> micro_batch_of(std::span<const T> global_batch, std::int64_t k, std::int64_t rank,
                                  std::int64_t ranks, std::int64_t micro_batch) {
  return global_batch.subspan(static_cast<std::size_t>((k * ranks + rank) * micro_batch),
                              static_cast<std::size_t>(micro_batch));
}

/// "cyclic": epochs without end, each shuffled by torch.randperm seeded with its number. An epoch holds the
/// largest multiple of `step` samples; the rest of `total` is left out of it. With the global batch as step
/// the order does not depend on the layout. Megatron without data sharding permutes the largest multiple of
/// the micro-batch: a permutation of another size is another one, so its global batches hold the same samples
/// only where total % step < micro-batch, as when the global batch divides the samples.
class CyclicOrder {
 public:
  /// Throws ConfigError when total < step.
  CyclicOrder(std::int64_t total, std::int64_t step);
  [[nodiscard]] std::int64_t epoch(std::int64_t consumed) const { return consumed / active_; }
  /// The samples of an epoch in their order.
  [[nodiscard]] std::vector<std::int64_t> order(std::int64_t epoch) const;
  [[nodiscard]] std::int64_t position(std::int64_t consumed) const { return consumed % active_; }

 private:
  std::int64_t active_;
};

/// Megatron's sharded cyclic order: each data rank shuffles its own part of the data. The rest of the epoch
/// for `rank` of `ranks`, cut into micro-batches of `micro_batch`, after `consumed` samples of all ranks. The
/// order depends on the number of ranks. Throws ConfigError when total < micro_batch * ranks.
std::vector<std::int64_t> sharded_cyclic_order(std::int64_t total, std::int64_t consumed,
                                               std::int64_t micro_batch, std::int64_t rank,
                                               std::int64_t ranks);

}  // namespace colonnade::data
