// Loss and perplexity of a model over data, and logits of given rows of tokens.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "colonnade/data/batches.h"
#include "colonnade/data/split.h"
#include "colonnade/inference/network.h"
#include "colonnade/inference/token_file.h"

namespace colonnade::inference {

/// The same on every rank.
struct Score {
  double loss = 0;                      ///< mean over the tokens that count; NaN when none does
  std::int64_t tokens = 0;              ///< that count
  std::optional<double> sop_loss = {};  ///< of a BERT's order of sentences, mean over the samples
  [[nodiscard]] double perplexity() const;
};

/// Throws Error when a loss is NaN or infinite although tokens count.
void require_finite(const Score& score);

struct RowScore {
  Score score;
  at::Tensor logits;  ///< fp32 [batch, sequence, vocabulary] on the CPU of the speaker, where asked for
};

/// Logits and loss of `rows`. --micro-batch-size rows pass at a time (unset: about 4,096 tokens).
/// Data-parallel replicas repeat the work. Collective.
RowScore score_rows(Network& network, const TokenRows& rows, bool keep_logits);

/// Mean losses over samples 0 .. samples - 1 of a split, as a validation of training reports them
/// (job::token_loss), shared out to the data-parallel replicas; rows that pass at a time at most as in
/// score_rows. Replicas that share experts make equally many passes of equally many rows. Collective.
Score score_data(Network& network, const data::Batches& batches, std::int64_t samples);

/// One split of a run's data and how many of its samples count.
struct SplitData {
  std::unique_ptr<data::Batches> batches;
  std::int64_t samples = 0;
};

/// The split of the settings' data, whatever a sample of the family is: the samples of --eval-iters global
/// batches; when that is not given one pass over a single data set (a blend has no pass, there it is the
/// default of --eval-iters). Without a --seq-length samples are as long as the model's positions. Throws as
/// job::open_batches, DataError when the split is empty, ConfigError when --seq-length does not fit the
/// model's positions.
SplitData open_split(const config::Run& run, data::Split split);

}  // namespace colonnade::inference
