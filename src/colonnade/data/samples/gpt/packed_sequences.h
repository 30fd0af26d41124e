// Sequences packed into a sample.
#pragma once

#include <cstdint>
#include <vector>

#include "colonnade/data/samples/gpt/gpt_batches.h"

namespace colonnade::data {

/// A packed sequence: tokens [begin, begin + length) of a row of a batch.
struct PackedSequence {
  std::int64_t row = 0, begin = 0, length = 0;
  friend bool operator==(const PackedSequence&, const PackedSequence&) = default;
};

/// The documents of a batch with cu_seqlens, else its rows: row by row, covering every token.
std::vector<PackedSequence> packed_sequences(const HostBatch& batch);

}  // namespace colonnade::data
