// Shared by tests of complete jobs: settings, samples generated from their index, and short training runs on
// thread ranks.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "colonnade/comm/thread_ranks.h"
#include "colonnade/config/derive.h"
#include "colonnade/config/parse.h"
#include "colonnade/config/stacks.h"
#include "colonnade/job/job.h"
#include "colonnade/job/model.h"
#include "colonnade/job/token_steps.h"
#include "colonnade/rules/rules.h"
#include "support/dtypes.h"

namespace colonnade::test {

using Words = std::vector<std::string>;

inline Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// Splits a command line at blanks.
inline Words words(const std::string& text) {
  Words all;
  std::istringstream in(text);
  for (std::string word; in >> word;) all.push_back(word);
  return all;
}

/// Flags that distribute a run over `world` ranks.
struct Layout {
  const char* name;
  int world;
  const char* flags;
};

/// Model-parallel layouts for four layers and eight heads; every rank reads the same samples.
inline constexpr std::array kModelParallelLayouts{
    Layout{"Tp2", 2, "--tensor-model-parallel-size 2"},
    Layout{"Tp4SpMoreRanksThanGroups", 4, "--tensor-model-parallel-size 4 --sequence-parallel"},
    Layout{"Pp2", 2, "--pipeline-model-parallel-size 2"},
    Layout{"Pp2Virtual2", 2, "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 1"}};

/// kModelParallelLayouts and `more`.
inline std::vector<Layout> with_model_parallel(std::vector<Layout> more) {
  more.insert(more.begin(), kModelParallelLayouts.begin(), kModelParallelLayouts.end());
  return more;
}

/// A complete, checked run. Later flags override earlier ones; the word t5 or bert among them selects that
/// model.
inline config::Run settings(
    int world, Words flags, const std::function<void(config::Run&)>& fill = [](config::Run&) {}) {
  std::string family = "gpt";
  for (const char* other : {"t5", "bert"})
    if (std::erase(flags, other) > 0) family = other;
  config::Run run = config::parse(
      words(family + " --mock-data --tokenizer-type NullTokenizer --train-iters 10 --lr 0.001") + flags);
  run.parallel.world_size = world;
  fill(run);
  config::derive(run);
  rules::require(run);
  return run;
}

/// Sample `number`: `length` random tokens.
inline at::Tensor sample(const config::Run& run, std::int64_t number, std::int64_t length) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(number) + 99);
  return at::randint(0, run.model.vocab_size, {length}, generator, at::kLong);
}

/// The micro-batch of samples [first, first + micro_batch_size); every seventh token has no loss. Encoder and
/// BERT samples differ: sample i has i % 4 padding tokens at its end. In BERT samples every third token is of
/// the second segment, and sample i is swapped where i is odd.
inline tensor::Batch batch_of(const config::Run& run, std::int64_t first) {
  std::vector<at::Tensor> rows, encoder_rows, padding;
  const auto size = run.training.micro_batch_size;
  const bool encoder = config::has_several_stacks(run.model);
  const auto s = encoder ? run.training.decoder_seq_length : run.training.seq_length;
  for (std::int64_t i = first; i < first + size; ++i) {
    rows.push_back(sample(run, i, s + 1));
    encoder_rows.push_back(sample(run, i + 1000, run.training.seq_length));
    padding.push_back(at::arange(run.training.seq_length) >= run.training.seq_length - i % 4);
  }
  const at::Tensor all = at::stack(rows);
  tensor::Batch batch;
  if (encoder) {
    batch.set(tensor::Field::kEncoderTokens, at::stack(encoder_rows));
    batch.set(tensor::Field::kEncoderPadding, at::stack(padding));
  }
  if (run.model.bidirectional) {
    batch.set(tensor::Field::kPadding, at::stack(padding));
    batch.set(tensor::Field::kTokenTypes, (all.narrow(1, 0, s) % 3 == 0).to(at::kLong));
    batch.set(tensor::Field::kSwapped, at::arange(first, first + size, at::kLong) % 2);
  }
  batch.set(tensor::Field::kTokens, all.narrow(1, 0, s).contiguous());
  batch.set(tensor::Field::kLabels, all.narrow(1, 1, s).contiguous());
  batch.set(tensor::Field::kLossMask, (all.narrow(1, 1, s) % 7 != 0).to(at::kFloat));
  batch.set(tensor::Field::kSamples, at::arange(first, first + size, at::kLong));
  return batch;
}

/// The global batch after `consumed` samples.
inline pipeline::Steps steps_after(const job::Job& job, std::int64_t consumed) {
  pipeline::Steps steps;
  steps.batch = [&job, consumed](int microbatch) {
    const auto first =
        consumed + (microbatch * job.data_ranks() + job.data_rank()) * job.run.training.micro_batch_size;
    return job::context_shard(batch_of(job.run, first), job.ranks.coord(layout::Axis::kCp),
                              job.run.parallel.context_parallel_size, job.run.model.mtp_num_layers);
  };
  steps.loss = [&job](const at::Tensor& y, const tensor::Batch& b) {
    return job::token_loss(y, b, job.run.training.calculate_per_token_loss);
  };
  return steps;
}

struct Curve {
  std::vector<double> loss, grad_norm;
  friend bool operator==(const Curve&, const Curve&) = default;
};

/// Trains `count` more steps of the job.
inline Curve train(job::Job& job, int count) {
  Curve curve;
  for (int i = 0; i < count; ++i) {
    const auto report = job.train_step(steps_after(job, job.counters.consumed_samples),
                                       {.learning_rate = 1e-3, .weight_decay = 0.1});
    curve.loss.push_back(report.losses.at("lm_loss"));
    curve.grad_norm.push_back(report.optimizer.grad_norm);
  }
  return curve;
}

/// Runs `body` with a fresh job on every rank; `dtypes` as in Job.
inline void on_jobs(const config::Run& run, const std::function<void(job::Job&)>& body,
                    const std::optional<config::Dtypes>& dtypes = {}) {
  comm::run_ranks(run.parallel, [&](comm::Communicators& ranks) {
    job::Job job(run, ranks, job::build_model, job::InitialValues::kRandom, dtypes);
    body(job);
  });
}

/// Bound on the relative difference of the losses of two layouts with the same weights: that of fp32 runs, or
/// one rounding of the 16-bit dtype of activations.
inline double loss_bound(const config::Run& run) {
  const config::Dtype dtype = config::dtypes_of(run).activation;
  return dtype == config::Dtype::kBfloat16 ? 0x1p-9 : dtype == config::Dtype::kFloat16 ? 0x1p-12 : 2e-5;
}

/// Curve of `count` steps from the initial weights, equal on all ranks.
inline Curve train(const config::Run& run, int count) {
  Curve curve;
  on_jobs(run, [&](job::Job& job) {
    const Curve mine = train(job, count);
    if (job.ranks.rank() == 0) curve = mine;
  });
  return curve;
}

}  // namespace colonnade::test
