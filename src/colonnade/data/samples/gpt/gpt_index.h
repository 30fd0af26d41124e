// Document, sample and shuffle index of GPT data, identical to Megatron's.
// Source: Megatron's core/datasets/gpt_dataset.py and helpers.cpp.
#pragma once

#include <cstdint>
#include <optional>

#include "colonnade/data/indexed/token_source.h"
#include "colonnade/data/npy.h"
#include "colonnade/data/split.h"

namespace colonnade::data {

/// Parameters of the indices, besides the data.
struct GptIndexPlan {
  Range sequences;                          ///< sequences of the split
  std::int64_t sequence_length = 0;         ///< S, tokens per sample
  std::optional<std::int64_t> num_samples;  ///< requested samples; empty: one epoch
  std::uint32_t seed = 1234;                ///< numpy.random.RandomState seed
  bool add_extra_token = true;    ///< samples hold S + 1 tokens: labels are the inputs shifted by one
  bool drop_last_partial = true;  ///< drops a last sample that the data cannot fill

  [[nodiscard]] std::int64_t extra() const { return add_extra_token ? 1 : 0; }
};

/// Epochs over the data that the requested samples take.
struct GptEpochs {
  std::int64_t tokens_per_epoch = 0;
  std::int64_t epochs = 1;
  bool separate_final_epoch = false;  ///< shuffled separately, because less than 80 % of it is used
};

struct GptIndex {
  IntArray document;  ///< int32 [epochs * sequences]: the shuffled sequences
  IntArray
      sample;  ///< int32 or int64 [samples + 1, 2]: position in `document`, token offset in that sequence
  IntArray shuffle;  ///< uint32 or int64 [samples]: sample i of the run is row shuffle[i] of `sample`
};

/// Throws DataError if the sequences hold too few tokens for one sample, whatever the number of epochs.
GptEpochs count_epochs(const TokenSource& source, const GptIndexPlan& plan);

/// RandomState(seed) shuffles the sequences of all epochs together, then the samples; a separate final epoch
/// is shuffled separately in both. Samples are consecutive in the shuffled sequences; each starts at the last
/// token of the previous one (add_extra_token). Throws ConfigError before allocating if the arrays exceed
/// this machine's memory.
GptIndex build_gpt_index(const TokenSource& source, const GptIndexPlan& plan);

/// Throws DataError unless `index` matches the plan: number of epochs over the sequences, their samples, and
/// each sample once in the shuffle index. The random orders are not compared.
void check_gpt_index(const TokenSource& source, const GptIndexPlan& plan, const GptIndex& index);

}  // namespace colonnade::data
