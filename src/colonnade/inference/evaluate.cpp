// See evaluate.h.
#include "colonnade/inference/evaluate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "colonnade/base/error.h"
#include "colonnade/base/progress.h"
#include "colonnade/data/blend.h"
#include "colonnade/job/prepare.h"
#include "colonnade/job/token_steps.h"
#include "colonnade/layout/layer_kind.h"

namespace colonnade::inference {
namespace {

using layout::Axis;
constexpr layout::AxisSet kReplicas{Axis::kDp, Axis::kCp};

std::int64_t rows_per_pass(const config::Run& run, std::int64_t sequence) {
  constexpr std::int64_t kTokens = 4096;
  if (run.training.micro_batch_size > 0) return run.training.micro_batch_size;
  return std::max<std::int64_t>(1, kTokens / sequence);
}

/// Sum and count of the losses of one pass, float64 [2] on the CPU.
at::Tensor loss_sums(const at::Tensor& logits, const at::Tensor& labels) {
  const at::Tensor flat = labels.reshape({-1}).to(logits.device());
  const at::Tensor rows = logits.reshape({flat.size(0), logits.size(-1)});
  const at::Tensor loss = at::cross_entropy_loss(rows, flat, {}, at::Reduction::None, kIgnoreIndex);
  return at::stack({loss.to(at::kDouble).sum(), flat.ne(kIgnoreIndex).sum().to(at::kDouble)}).cpu();
}

/// Score from {sum, count} of token losses, optionally followed by those of sentence-order losses.
Score to_score(const at::Tensor& sums) {
  const at::Tensor host = sums.cpu();
  const double* value = host.const_data_ptr<double>();
  Score score{.loss = value[0] / value[1], .tokens = static_cast<std::int64_t>(value[1])};
  if (host.numel() > 2 && value[3] > 0) score.sop_loss = value[2] / value[3];
  return score;
}

std::int64_t sequence_length(const config::Run& run) {
  const std::int64_t longest = longest_sequence(run.model);
  const std::int64_t length =
      run.training.seq_length > 0 ? run.training.seq_length : run.model.max_position_embeddings;
  if (length < 1)
    throw ConfigError("--seq-length must be given; got none; set the number of tokens per sample");
  if (length > longest)
    throw ConfigError(
        fmt::format("--seq-length must fit the {} positions of the model; got {}; set --seq-length {}",
                    longest, length, longest));
  return length;
}

/// Data paths of split `index`.
std::vector<std::string>& paths_of(config::Data& data, std::size_t index) {
  const std::array own{&data.train_data_path, &data.valid_data_path, &data.test_data_path};
  return data.data_path.empty() ? *own[index] : data.data_path;
}

/// job::open_batches with a hint for data that are not chat messages, as the checkpoint's run read.
data::Splits open_samples(const config::Run& run, const data::SampleCounts& counts) {
  const auto with_hint = [&](const Error& error) {
    const bool adopted_sft = run.data.sft && !run.given.contains("sft");
    return fmt::format(
        "{}{}", error.what(),
        adopted_sft ? " (the checkpoint's run read chat messages: use --no-sft if these data are texts)"
                    : "");
  };
  try {
    return job::open_batches(run, job::tokenizer_of(run).get(), {.counts = counts});
  } catch (const ConfigError& error) {
    throw ConfigError(with_hint(error));
  } catch (const DataError& error) {
    throw DataError(with_hint(error));
  }
}

}  // namespace

double Score::perplexity() const { return std::exp(loss); }

void require_finite(const Score& score) {
  if (score.tokens == 0 || (std::isfinite(score.loss) && std::isfinite(score.sop_loss.value_or(0)))) return;
  throw Error(fmt::format(
      "loss must be finite; got {}{} over {} tokens; the weights are not finite, or too large for "
      "this precision: load an earlier checkpoint (--ckpt-step), or remove --fp16",
      score.loss, score.sop_loss ? fmt::format(" and sop_loss {}", *score.sop_loss) : "", score.tokens));
}

RowScore score_rows(InferenceModel& network, const TokenRows& rows, bool keep_logits) {
  progress().set_phase("evaluate");
  const std::int64_t batch = rows.tokens.size(0);
  const std::int64_t step = rows_per_pass(network.run(), rows.inputs(0, batch).tokens_per_sample());
  at::Tensor sums = at::zeros({2}, at::dtype(at::kDouble));
  std::vector<at::Tensor> kept;
  for (std::int64_t row = 0; row < batch; row += step) {
    const std::int64_t count = std::min(step, batch - row);
    const at::Tensor logits = network.forward(rows.inputs(row, count).to(network.options().device()), {});
    if (!network.is_leader()) continue;
    sums += loss_sums(logits, rows.labels.narrow(0, row, count));
    if (keep_logits) kept.push_back(logits.cpu());
  }
  sums = sums.to(network.options().device());
  network.broadcast_from_leader(sums, "evaluate / loss");
  return {to_score(sums), kept.empty() ? at::Tensor() : at::cat(kept)};
}

Score score_data(InferenceModel& network, const data::Batches& batches, std::int64_t samples) {
  progress().set_phase("evaluate");
  comm::Communicators& ranks = network.ranks();
  const config::Run& run = network.run();
  const std::int64_t replicas = ranks.mesh().size(kReplicas),
                     replica = ranks.mesh().index(ranks.rank(), kReplicas);
  const bool in_lockstep = layout::dispatches_tokens(run.model, run.parallel);
  const std::int64_t length = sequence_length(run) + run.training.decoder_seq_length;
  const std::int64_t step =
      std::min(rows_per_pass(run, length), std::max<std::int64_t>(1, (samples + replicas - 1) / replicas));
  at::Tensor sums = at::zeros({4}, network.options().dtype(at::kDouble));
  for (std::int64_t start = 0; start < samples; start += replicas * step) {
    const std::int64_t first = start + replica * step;
    const std::int64_t own = std::clamp<std::int64_t>(samples - first, 0, step);
    if (own == 0 && !in_lockstep) break;
    const job::PaddedRows rows{.first = first, .own = own, .all = in_lockstep ? step : own, .padding = 0};
    const tensor::Batch batch = job::to_batch(job::padded_rows(batches, rows)).to(network.options().device());
    const at::Tensor loss = network.forward(batch, {.output = tensor::Output::kLoss});
    if (!loss.defined() || ranks.coord(Axis::kTp) != 0) continue;
    const auto reported = job::token_loss(loss, batch, /*per_token=*/true).report;
    sums.narrow(0, 0, 2) += reported.at("lm_loss");
    const auto sop = reported.find("sop_loss");
    if (sop != reported.end()) sums.narrow(0, 2, 2) += sop->second;
  }
  ranks.world().all_reduce(sums, "evaluate / losses").wait();
  return to_score(sums);
}

SplitData open_split(const config::Run& given, data::Split split) {
  progress().set_phase("data");
  config::Run run = given;
  run.training.seq_length = sequence_length(run);
  run.data.dataloader_type = "single";  // every sample once, in any order
  const auto index = static_cast<std::size_t>(split);
  // A single data set with a weight is no blend.
  std::vector<std::string>& paths = paths_of(run.data, index);
  if (data::Blend blend = data::parse_blend(paths); blend.prefixes.size() == 1)
    paths = std::move(blend.prefixes);
  const bool one_pass = paths.size() == 1 && !run.given.contains("eval_iters");
  const std::int64_t wanted =
      run.training.eval_iters * std::max<std::int64_t>(1, run.training.global_batch_size);
  data::SampleCounts counts{0, 0, 0};
  counts[index] = one_pass ? 1 : wanted;
  data::Splits splits = open_samples(run, counts);
  if (splits[index] == nullptr)
    throw DataError(fmt::format(
        "data: the {} split must contain samples; got none; correct --split, --split-name or the paths",
        data::kSplitNames[index]));
  const std::int64_t size = splits[index]->size();
  return {std::move(splits[index]), one_pass ? size : std::min(size, wanted)};
}

}  // namespace colonnade::inference
