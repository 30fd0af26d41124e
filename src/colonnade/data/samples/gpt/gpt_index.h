// The three indices that turn sequences into shuffled samples of one length, equal to Megatron's.
// Source: Megatron's core/datasets/gpt_dataset.py and helpers.cpp.
#pragma once

#include <cstdint>
#include <optional>

#include "colonnade/data/indexed/token_source.h"
#include "colonnade/data/npy.h"
#include "colonnade/data/split.h"

namespace colonnade::data {

/// What decides the order of samples, besides the data.
struct GptIndexPlan {
  Range sequences;                          ///< the part of the data set that is used
  std::int64_t sequence_length = 0;         ///< S, tokens a sample is trained on
  std::optional<std::int64_t> num_samples;  ///< samples wanted; empty: one pass over the data
  std::uint32_t seed = 1234;                ///< of numpy.random.RandomState
  bool add_extra_token = true;              ///< samples hold S + 1 tokens: inputs and labels overlap by S
  bool drop_last_partial = true;            ///< leave out the sample that the data cannot fill

  [[nodiscard]] std::int64_t extra() const { return add_extra_token ? 1 : 0; }
};

/// How often the data is passed through for the samples wanted.
struct GptEpochs {
  std::int64_t tokens_per_epoch = 0;
  std::int64_t epochs = 1;
  bool separate_final_epoch = false;  ///< the last pass is shuffled on its own: less than 80 % of it is used
};

struct GptIndex {
  IntArray document;  ///< int32 [epochs * sequences]: the sequences in their shuffled order
  IntArray
      sample;  ///< int32 or int64 [samples + 1, 2]: position in `document`, token offset in that sequence
  IntArray shuffle;  ///< uint32 or int64 [samples]: sample i of the run is row shuffle[i] of `sample`
};

/// Throws DataError when the sequences hold too few tokens for one sample, so that no number of passes helps.
GptEpochs count_epochs(const TokenSource& source, const GptIndexPlan& plan);

/// One RandomState(seed) shuffles the sequences of all epochs at once, then the samples; a final epoch that
/// is kept separate is shuffled apart in both. Samples follow each other through the shuffled sequences, each
/// starting at the last token of the one before (add_extra_token). Throws ConfigError, before it allocates,
/// where the arrays are larger than this machine's memory.
GptIndex build_gpt_index(const TokenSource& source, const GptIndexPlan& plan);

/// Throws DataError unless `index` could be the plan's: as many passes over the sequences, their samples, and
/// each of these once. Only the orders are not compared.
void check_gpt_index(const TokenSource& source, const GptIndexPlan& plan, const GptIndex& index);

}  // namespace colonnade::data
