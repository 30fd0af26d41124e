// Samples of whole sentences: which sentences of which document a sample takes, equal to Megatron's.
// Source: Megatron's core/datasets/helpers.cpp (build_mapping) and masked_dataset.py.
#pragma once

#include <cstdint>
#include <optional>

#include "colonnade/data/indexed/token_source.h"
#include "colonnade/data/npy.h"
#include "colonnade/data/split.h"

namespace colonnade::data {

/// What decides the order of samples, besides the data. Sentences are the sequences of a data set.
struct SentencePlan {
  Range documents;                          ///< the part of the data set that is used
  std::int64_t max_length = 0;              ///< tokens that a sample is made for, at least 2
  std::optional<std::int64_t> num_samples;  ///< samples wanted; empty: one pass over the data
  double short_seq_prob = 0.1;              ///< share of samples made for a length from 2 to max_length
  std::uint32_t seed = 1234;
  std::int64_t min_sentences = 1;  ///< of a sample, and of a document that is used
};

/// What no sample shows.
struct Unread {
  std::int64_t documents = 0;  ///< that are not usable
  std::int64_t tokens = 0;     ///< of these
  std::int64_t cut = 0;        ///< tokens of all passes behind the length that their sample is made for
};

struct SentenceIndex {
  /// uint32 (int64 where that does not hold the number of sentences) [samples, 3]: first sentence, the one
  /// behind the last, and the length the sample is made for, which its tokens may exceed.
  IntArray sample;
  std::int64_t passes = 1;  ///< over the documents
  Unread unread;
};

/// Documents that samples are taken of: with min_sentences or more, and unless it is the only one no sentence
/// of more than 512 tokens.
std::int64_t count_usable_documents(const TokenSource& source, const SentencePlan& plan);

/// Passes over the documents in their order until a pass ends with num_samples or more. In a document
/// sentences are added to a sample until they hold the length it is made for (unless one sentence would be
/// left over) or the document ends; so all sentences are used. That length is max_length, but for one of
/// round(1 / short_seq_prob) draws of std::mt19937(seed). In the end all samples are shuffled, with
/// std::mt19937_64(seed + 1). Memory: the index, 12 bytes a sample. Throws DataError when no document is
/// usable, and ConfigError, before it allocates, where the index is larger than this machine's memory.
SentenceIndex build_sentence_index(const TokenSource& source, const SentencePlan& plan);

/// The same without the samples: how often the data are passed through, and what is not read.
SentenceIndex count_sentence_samples(const TokenSource& source, const SentencePlan& plan);

/// The same, for `sample`. Throws DataError unless it has the type, the number and the rows (by the sum of
/// their hashes) of the plan's samples. Only their order is not compared.
SentenceIndex check_sentence_index(const TokenSource& source, const SentencePlan& plan,
                                   const IntArray& sample);

}  // namespace colonnade::data
