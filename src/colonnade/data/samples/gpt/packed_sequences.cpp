// See packed_sequences.h.
#include "colonnade/data/samples/gpt/packed_sequences.h"

namespace colonnade::data {

std::vector<PackedSequence> packed_sequences(const HostBatch& batch) {
  std::vector<PackedSequence> all;
  for (std::int64_t row = 0; row < batch.micro_batch; ++row)
    for (std::int64_t i = 0; i < batch.seq; ++i) {
      const auto at = static_cast<std::size_t>(row * batch.seq + i);
      const std::int64_t position = batch.position_ids.empty() ? i : batch.position_ids[at];
      if (position == 0) all.push_back({row, i, 0});
      ++all.back().length;
    }
  return all;
}

}  // namespace colonnade::data
