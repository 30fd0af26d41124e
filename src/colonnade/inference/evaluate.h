// Loss and perplexity of a model over data, and logits of given token rows.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "colonnade/data/batches.h"
#include "colonnade/data/split.h"
#include "colonnade/inference/inference_model.h"
#include "colonnade/inference/token_file.h"

namespace colonnade::inference {

/// Evaluation result, equal on all ranks.
struct Score {
  double loss = 0;                      ///< mean over unmasked tokens; NaN without any
  std::int64_t tokens = 0;              ///< number of unmasked tokens
  std::optional<double> sop_loss = {};  ///< BERT's sentence-order loss, mean over samples
  [[nodiscard]] double perplexity() const;
};

/// Throws Error if a loss over at least one token is NaN or infinite.
void require_finite(const Score& score);

struct RowScore {
  Score score;
  at::Tensor logits;  ///< fp32 [batch, sequence, vocabulary] on the leader's CPU, with keep_logits
};

/// Logits and loss of `rows`, in micro-batches of --micro-batch-size rows (unset: about 4,096 tokens).
/// Data-parallel replicas repeat the work. Collective.
RowScore score_rows(InferenceModel& network, const TokenRows& rows, bool keep_logits);

/// Mean losses over samples 0 .. samples - 1 of a split, as validation during training reports them
/// (job::token_loss), distributed over the data-parallel replicas in micro-batches at most as large as in
/// score_rows. Replicas run equally many micro-batches of equal size if layers dispatch tokens between them
/// (layout::dispatches_tokens). Collective.
Score score_data(InferenceModel& network, const data::Batches& batches, std::int64_t samples);

/// One split of a run's data and the number of samples to evaluate.
struct SplitData {
  std::unique_ptr<data::Batches> batches;
  std::int64_t samples = 0;
};

/// Opens a split of the settings' data, for any kind of model. Samples: those of --eval-iters global batches;
/// without the flag one pass over a single data set, or the default of --eval-iters for a blend. Without
/// --seq-length samples are as long as the model's positions. Throws as job::open_batches, DataError if the
/// split is empty, ConfigError if --seq-length exceeds the model's positions.
SplitData open_split(const config::Run& run, data::Split split);

}  // namespace colonnade::inference
