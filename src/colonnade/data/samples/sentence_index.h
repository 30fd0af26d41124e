// Index of samples built from whole sentences of a document, identical to Megatron's.
// Source: Megatron's core/datasets/helpers.cpp (build_mapping) and masked_dataset.py.
#pragma once

#include <cstdint>
#include <optional>

#include "colonnade/data/indexed/token_source.h"
#include "colonnade/data/npy.h"
#include "colonnade/data/split.h"

namespace colonnade::data {

/// Parameters of the index, besides the data. Sentences are the sequences of a data set.
struct SentencePlan {
  Range documents;                          ///< documents of the split
  std::int64_t max_length = 0;              ///< target length of samples in tokens, at least 2
  std::optional<std::int64_t> num_samples;  ///< requested samples; empty: one epoch
  double short_seq_prob = 0.1;  ///< fraction of samples with a random target length from 2 to max_length
  std::uint32_t seed = 1234;
  std::int64_t min_sentences = 1;  ///< minimum per sample and per usable document
};

/// Text that occurs in no sample.
struct UnusedText {
  std::int64_t documents = 0;         ///< unusable documents
  std::int64_t tokens = 0;            ///< tokens of these documents
  std::int64_t truncated_tokens = 0;  ///< tokens beyond the target length of their sample, over all epochs
};

struct SentenceIndex {
  /// [samples, 3] in uint32, or int64 for more sentences than that holds: first sentence, end of the sentence
  /// range, and the target length of the sample, which its tokens may exceed.
  IntArray sample;
  std::int64_t epochs = 1;  ///< passes over the documents
  UnusedText unused;
};

/// Number of documents that samples are built from: those with at least min_sentences sentences, none of them
/// longer than 512 tokens unless it is the only one.
std::int64_t count_usable_documents(const TokenSource& source, const SentencePlan& plan);

/// Iterates over the documents in order until an epoch ends with num_samples or more. A sample collects
/// sentences of one document until they reach its target length (unless a single sentence would remain) or
/// the document ends, so every sentence is used. The target length is max_length, except for one in round(1 /
/// short_seq_prob) draws of std::mt19937(seed). Finally all samples are shuffled with std::mt19937_64(seed +
/// 1). Memory: the index, 12 bytes per sample. Throws DataError if no document is usable, and ConfigError
/// before allocating if the index exceeds this machine's memory.
SentenceIndex build_sentence_index(const TokenSource& source, const SentencePlan& plan);

/// The same index without its samples: the number of epochs and the unused text.
SentenceIndex count_sentence_samples(const TokenSource& source, const SentencePlan& plan);

/// Validates `sample` against the plan: throws DataError unless type, number and rows of the samples match
/// (by the sum of their hashes); their order is not compared. Returns the counts of count_sentence_samples.
SentenceIndex check_sentence_index(const TokenSource& source, const SentencePlan& plan,
                                   const IntArray& sample);

}  // namespace colonnade::data
