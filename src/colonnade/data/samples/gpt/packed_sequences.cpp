// See packed_sequences.h.
#include "colonnade/data/samples/gpt/packed_sequences.h"

namespace colonnade::data {

std::vector<PackedSequence> packed_sequences(const HostBatch& batch) {
  std::vector<PackedSequence> all;
  const std::vector<std::int64_t>& bounds = batch.cu_seqlens;
  if (bounds.empty())
    for (std::int64_t row = 0; row < batch.micro_batch; ++row) all.push_back({row, 0, batch.seq});
  for (std::size_t i = 1; i < bounds.size(); ++i)
    all.push_back({bounds[i - 1] / batch.seq, bounds[i - 1] % batch.seq, bounds[i] - bounds[i - 1]});
  return all;
}

}  // namespace colonnade::data
