// The sequences that samples are packed of: what lies between ends of documents.
#pragma once

#include <cstdint>
#include <vector>

#include "colonnade/data/samples/gpt/gpt_batches.h"

namespace colonnade::data {

/// Tokens [begin, begin + length) of a row of a batch.
struct Sequence {
  std::int64_t row = 0, begin = 0, length = 0;
  friend bool operator==(const Sequence&, const Sequence&) = default;
};

/// Those of a batch made with --reset-position-ids, whose positions are 0 where one begins: row by row, in
/// their order, every token in one. A sequence ends with its end of document, or with the row.
std::vector<Sequence> sequences(const HostBatch& batch);

}  // namespace colonnade::data
