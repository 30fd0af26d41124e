// Sample order of --dataloader-type as pure functions of the position in the run.
// Source: Megatron's training/datasets/data_samplers.py.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace colonnade::data {

/// Rows of micro-batch `k` of data-parallel rank `rank` in the global batch: micro-batches are distributed
/// round-robin, rows [(k * ranks + rank) * micro_batch, + micro_batch).
template <typename T>
std::span<const T> micro_batch_of(std::span<const T> global_batch, std::int64_t k, std::int64_t rank,
                                  std::int64_t ranks, std::int64_t micro_batch) {
  return global_batch.subspan(static_cast<std::size_t>((k * ranks + rank) * micro_batch),
                              static_cast<std::size_t>(micro_batch));
}

/// "cyclic": unlimited epochs, each shuffled by torch.randperm seeded with its number. An epoch holds the
/// largest multiple of `step` samples; the remainder of `total` is dropped. With the global batch size as
/// step the order does not depend on the layout. Megatron without data sharding permutes the largest multiple
/// of the micro-batch size; permutations of different sizes differ, so global batches hold the same samples
/// only if total % step < micro-batch size, for example if the global batch size divides the number of
/// samples.
class CyclicOrder {
 public:
  /// Throws ConfigError for total < step.
  CyclicOrder(std::int64_t total, std::int64_t step);
  [[nodiscard]] std::int64_t epoch(std::int64_t consumed) const { return consumed / active_; }
  /// Permutation of the samples of an epoch.
  [[nodiscard]] std::vector<std::int64_t> order(std::int64_t epoch) const;
  [[nodiscard]] std::int64_t position(std::int64_t consumed) const { return consumed % active_; }

 private:
  std::int64_t active_;
};

/// Megatron's sharded cyclic order: each data-parallel rank shuffles its own shard of the data. Returns the
/// rest of the epoch of `rank` of `ranks`, in micro-batches of `micro_batch`, after `consumed` samples of all
/// ranks. The order depends on the number of ranks. Throws ConfigError for total < micro_batch * ranks.
std::vector<std::int64_t> sharded_cyclic_order(std::int64_t total, std::int64_t consumed,
                                               std::int64_t micro_batch, std::int64_t rank,
                                               std::int64_t ranks);

}  // namespace colonnade::data
