// The smallest trainer on an installed libcolonnade: one rank, two steps of a tiny GPT on mock data.
#include <fmt/format.h>

#include <cmath>

#include "colonnade/base/program.h"
#include "colonnade/config/parse.h"
#include "colonnade/data/samples/gpt/gpt_batches.h"
#include "colonnade/job/job.h"
#include "colonnade/job/start.h"
#include "colonnade/job/token_steps.h"
#include "colonnade/train/lr_schedule.h"

namespace col = colonnade;

int train() {
  auto [run, world, ranks, seen] = col::job::start(
      col::config::parse({"gpt", "--num-layers=2", "--hidden-size=32", "--num-attention-heads=4",
                          "--seq-length=16", "--max-position-embeddings=16", "--micro-batch-size=4",
                          "--train-iters=2", "--lr=1e-2", "--mock-data", "--tokenizer-type=NullTokenizer",
                          "--vocab-size=128"}),
      col::rules::Purpose::kTrain);
  const auto data = col::data::open_gpt_batches(run.data, run.training, {.vocab_size = run.model.vocab_size});
  const auto schedule = col::train::make_lr_plan(run.schedule, run.training, run.optimizer);
  col::job::Job job(run, ranks);
  col::job::TokenStream stream(*data[0], job, 0);
  double loss = 0;
  for (int i = 0; i < 2; ++i) {
    const double rate = col::train::learning_rate(schedule, job.counters.consumed_samples);
    loss = job.train_step(stream.next(), {.learning_rate = rate}).losses.at("lm_loss");
    fmt::print("loss {:.4f}\n", loss);
  }
  return std::abs(loss - std::log(128)) < 0.5 ? 0 : 1;  // nearly untrained: all tokens are equally likely
}

int main() { return col::run_as_program(train); }
