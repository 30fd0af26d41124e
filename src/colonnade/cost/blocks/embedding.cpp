// See embedding.h.
#include "colonnade/cost/blocks/embedding.h"

#include <algorithm>

#include "colonnade/cost/blocks/compute_parts.h"

namespace colonnade::cost {
namespace {

/// Position ids and token types. Position ids of one full sequence are a view; those of several sequences or
/// of a sequence shard are copied. Batch position ids and token types are copied if the shard of a tensor
/// rank is not contiguous.
std::int64_t saved_ids(const Sizes& z) {
  const std::int64_t copied = z.sequence_parallel && z.b > 1 ? z.r * kInt64 : 0;
  const std::int64_t types = z.m.num_tokentypes > 0 ? copied : 0;
  if (z.m.position_embedding != config::PositionEmbedding::kLearnedAbsolute) return types;
  if (has_position_ids(z.run)) return types + copied;
  return types + (z.b == 1 ? z.n : z.r) * kInt64;
}

}  // namespace

std::int64_t EmbeddingCost::batch() const {
  const Sizes& first = sequences_.all().front();
  const std::int64_t encoded = sequences_.several() ? first.n * (kInt64 + 1) : 0;  // tokens, padding mask
  const std::int64_t types = z_.m.num_tokentypes > 0 ? z_.n * kInt64 : 0;
  return encoded + types + (z_.m.bidirectional ? z_.n : 0) + z_.n * kInt64 +
         (has_position_ids(z_.run) ? z_.n * kInt64 : 0);
}

std::int64_t EmbeddingCost::saved() const {
  std::int64_t bytes = 0;
  for (const Sizes& z : sequences_.all()) bytes += saved_ids(z);
  return bytes;
}

/// The gradient of the table is summed in fp32 if main gradients are narrower. Where the residual stream has
/// another dtype, the gradient is converted first.
void EmbeddingCost::backward(StageTracker& tracker) const {
  const bool is_narrow = config::bytes(z_.dtypes.main_gradient) < kFp32;
  const std::int64_t table = is_narrow ? z_.vocabulary * z_.m.hidden_size * kFp32 : 0;
  if (z_.converted == 0) return tracker.transient(sequences_.hidden() + table);
  std::int64_t converted = 0;
  for (const Sizes& z : sequences_.all()) converted += z.converted;
  tracker.transient(converted + std::max(sequences_.hidden(), table));
}

std::int64_t EmbeddingCost::evaluation() const {
  return sequences_.several() ? sequences_.hidden() : z_.full_hidden();
}

BlockCompute embedding_compute(const Sizes& sizes) {
  const RealSizes z(sizes);
  BlockCompute compute;
  const int types = z.m.num_tokentypes > 0 ? 1 : 0;
  compute.add_elementwise(2 * z.full_hidden + types * z.hidden, 2 * z.full_hidden + types * z.hidden,
                          2 + types, 2 + types);
  if (z.m.embedding_multiplier() != 1) compute.add_elementwise(2 * z.hidden, 2 * z.hidden, 1, 1);
  add_reduce(compute, z, z.full_hidden);
  if (sizes.converted > 0) add_conversion(compute, z);
  return compute;
}

void EmbeddingCost::add_compute(AttentionKernel /*kernel*/, std::vector<RepeatedCompute>& parts) const {
  for (const Sizes& z : sequences_.all()) parts.push_back({embedding_compute(z)});
}

}  // namespace colonnade::cost
