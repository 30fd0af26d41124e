// Ids outside of the vocabulary, looked for in some places of the data before a run begins.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "colonnade/data/batches.h"
#include "colonnade/data/indexed/token_source.h"
#include "colonnade/data/split.h"

namespace colonnade::data {

/// A token of a data set that no text of the model's may have.
struct StrayId {
  std::int64_t id = 0;
  std::int64_t document = 0;
  std::int64_t place = 0;  ///< which token of the document
};

/// The first one in 64 places that are spread over the sequences, both ends included, each of 1024 tokens or
/// 256 sequences; in all of them where they hold no more than that. `end`: ids are 0 to end - 1. Time: some
/// pages are read, whatever the size of the data. Throws DataError as the source.
std::optional<StrayId> find_stray_id(const TokenSource& source, Range sequences, std::int64_t end);

/// What is wrong with the ids of the data that the splits are made of, after a look at some places of each
/// data set: the first set is named with a place, others are counted. Sequences that several splits or parts
/// of a blend have in common are looked at once. "" where nothing was found, and for samples whose text is
/// tokenized here (--sft). What no sample has is looked at too: documents that a BERT or a T5 leaves out
/// (single sentences, sentences that are too long), and what lies behind the last sample of the run; data of
/// which a part is another tokenizer's are not trusted. A sample that is read is checked all the same
/// (Batches::get).
std::string vocabulary_fault(const Splits& splits);

/// "the data was made with another tokenizer, give that one or --vocab-size ...", the least that holds the
/// id.
std::string way_out_of_stray_id(std::int64_t id, std::int64_t vocab_size);

}  // namespace colonnade::data
