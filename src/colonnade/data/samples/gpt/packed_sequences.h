// Sequences packed into a sample, separated by ends of documents.
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

/// The sequences of a batch made with --reset-position-ids, which start at position 0: row by row, covering
/// every token. A sequence ends with its end of document, or with the row.
std::vector<PackedSequence> packed_sequences(const HostBatch& batch);

}  // namespace colonnade::data
