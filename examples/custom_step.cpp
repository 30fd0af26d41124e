// Custom data, forward and loss steps around the GPT model, under every layout: NeMo's MegatronParallel calls
// them data step, forward step and loss reduction. Here: counting down from a random number, with a loss that
// weights later tokens more, and a second value reported with it.
//
//   colonnade launch --nproc-per-node 2 -- ./custom_step --tensor-model-parallel-size 2
#include <ATen/ATen.h>
#include <fmt/format.h>

#include "colonnade/base/program.h"
#include "colonnade/config/parse.h"
#include "colonnade/job/job.h"
#include "colonnade/job/start.h"

namespace col = colonnade;

/// Data step: a pure function of the sample number; every rank generates its own micro-batches.
col::tensor::Batch count_down(const col::config::Run& run, std::int64_t first_sample) {
  const std::int64_t size = run.training.micro_batch_size, sequence = run.training.seq_length;
  const at::Tensor samples = at::arange(first_sample, first_sample + size);
  const at::Tensor from = (samples * 7919).unsqueeze(1);
  const at::Tensor rows = at::remainder(from - at::arange(sequence + 1), run.model.vocab_size);
  using col::tensor::Field;
  return col::tensor::Batch({{Field::kTokens, rows.narrow(1, 0, sequence).contiguous()},
                             {Field::kLabels, rows.narrow(1, 1, sequence).contiguous()},
                             {Field::kSamples, samples}});
}

/// Loss reduction: `losses` [b, s] are the model's cross-entropies on the last stage.
col::pipeline::Loss weigh(const at::Tensor& losses, const col::tensor::Batch&) {
  const at::Tensor weights = at::linspace(0.5, 1.5, losses.size(1), losses.options());
  const at::Tensor mean = (losses * weights).mean();
  const at::Tensor sure = (losses < 0.693).to(at::kDouble);  // more likely than not
  return {mean,
          {{"lm_loss", col::pipeline::metric_sum(losses.sum(), at::ones({}) * losses.numel())},
           {"sure_tokens", col::pipeline::metric_sum(sure.sum(), at::ones({}) * sure.numel())}}};
}

int train(const std::vector<std::string>& more) {
  std::vector<std::string> words = {"gpt",
                                    "--num-layers=2",
                                    "--hidden-size=32",
                                    "--num-attention-heads=4",
                                    "--seq-length=16",
                                    "--max-position-embeddings=16",
                                    "--micro-batch-size=4",
                                    "--global-batch-size=16",
                                    "--train-iters=40",
                                    "--lr=1e-2",
                                    "--hidden-dropout=0",
                                    "--attention-dropout=0",
                                    "--mock-data",
                                    "--tokenizer-type=NullTokenizer",
                                    "--vocab-size=64"};
  words.insert(words.end(), more.begin(), more.end());
  auto [run, world, ranks, seen] = col::job::start(col::config::parse(words), col::rules::Purpose::kTrain);
  col::job::Job job(run, ranks);

  col::pipeline::Steps steps;
  steps.batch = [&](int microbatch) {
    const std::int64_t size = job.run.training.micro_batch_size;
    const std::int64_t number = microbatch * job.data_ranks() + job.data_rank();
    return count_down(job.run, job.counters.consumed_samples + number * size);
  };
  // Forward step: this is the default; custom code goes here.
  steps.forward = [](col::tensor::Stage& stage, const at::Tensor& x, const col::tensor::Pass& pass) {
    return stage.forward(x, pass);
  };
  steps.loss = weigh;

  for (int step = 1; step <= 40; ++step) {
    const auto report = job.train_step(steps, {.learning_rate = 1e-2, .weight_decay = 0.01});
    if (ranks.rank() == 0 && step % 10 == 0)
      fmt::print("step {:2}: loss {:.5f}, sure of {:.0f} % of the tokens\n", step,
                 report.losses.at("lm_loss"), 100 * report.losses.at("sure_tokens"));
  }
  return 0;
}

int main(int argc, char** argv) {
  return col::run_as_program([&] { return train({argv + 1, argv + argc}); });
}
