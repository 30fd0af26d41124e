// Token ids outside the vocabulary, searched for at some positions of the data before a run starts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "colonnade/data/batches.h"
#include "colonnade/data/indexed/token_source.h"
#include "colonnade/data/split.h"

namespace colonnade::data {

/// A token whose id is not allowed in the model's text.
struct OutOfVocabularyId {
  std::int64_t id = 0;
  std::int64_t document = 0;
  std::int64_t position = 0;  ///< index of the token in its document
};

/// The first such id at 64 positions spread evenly over the sequences, including both ends, with 1024 tokens
/// or 256 sequences read at each; all tokens are read if the data hold no more than that. Valid ids are 0 to
/// end - 1. Time: a constant number of pages, whatever the size of the data. Throws DataError like the
/// source.
std::optional<OutOfVocabularyId> find_out_of_vocabulary_id(const TokenSource& source, Range sequences,
                                                           std::int64_t end);

/// Error message for ids outside the vocabulary in the data of the splits, probed with
/// find_out_of_vocabulary_id; "" if none was found. It names the first data set and the position, and counts
/// the other data sets. Sequences shared by several splits or data sets of a blend are probed once. Text that
/// is tokenized on the fly
/// (--sft) is not probed. Unused text is probed too: documents that BERT and T5 leave out (single sentences,
/// overlong sentences), and text after the last sample of the run; data that are partly from another
/// tokenizer are not trusted. Samples are checked again when they are read (Batches::get).
std::string vocabulary_error(const Splits& splits);

/// The fix part of the message: the data's tokenizer, or the smallest --vocab-size that holds the id.
std::string out_of_vocabulary_fix(std::int64_t id, std::int64_t vocab_size);

}  // namespace colonnade::data
