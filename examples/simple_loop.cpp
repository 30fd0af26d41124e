// The simple training loop: two tensor-parallel ranks, mock data, five steps, save, five more; then a
// second job loads and walks the last five again. What Megatron Core shows as run_simple_mcore_train_loop.
//
//   colonnade launch --nproc-per-node 2 -- ./simple_loop [FOLDER]
#include <fmt/format.h>

#include <filesystem>

#include "colonnade/base/error.h"
#include "colonnade/base/program.h"
#include "colonnade/config/parse.h"
#include "colonnade/data/samples/gpt/gpt_batches.h"
#include "colonnade/job/checkpoint.h"
#include "colonnade/job/job.h"
#include "colonnade/job/start.h"
#include "colonnade/job/token_steps.h"

namespace col = colonnade;

int simple_loop(const std::filesystem::path& folder) {
  // Settings as on the command line; every field of col::config::Run can be set by hand instead.
  col::config::Run settings =
      col::config::parse({"gpt", "--num-layers=2", "--hidden-size=12", "--num-attention-heads=4",
                          "--seq-length=64", "--max-position-embeddings=64", "--micro-batch-size=8",
                          "--train-iters=10", "--lr=1e-3", "--tensor-model-parallel-size=2", "--mock-data",
                          "--tokenizer-type=NullTokenizer", "--vocab-size=128"});

  // Find the other rank, check the settings, build this rank's part of the model.
  auto [run, world, ranks, seen] = col::job::start(std::move(settings), col::rules::Purpose::kTrain);
  const auto data = col::data::open_gpt_batches(run.data, run.training, {.vocab_size = run.model.vocab_size});
  const auto train = [&](col::job::Job& job, int steps) {
    col::job::TokenStream stream(*data[0], job, job.counters.consumed_samples);
    for (int i = 0; i < steps; ++i) {
      const auto report = job.train_step(stream.next(), {.learning_rate = 1e-3, .weight_decay = 0.01});
      if (job.ranks.rank() == 0)
        fmt::print("iteration {}: loss {:.6f}\n", job.counters.iteration, report.losses.at("lm_loss"));
    }
  };

  col::job::Job job(run, ranks);
  train(job, 5);
  const auto saved = col::job::save(job, folder);
  if (!saved.ok) throw col::Error(saved.problem);
  train(job, 5);

  // A second job goes on where the first one saved; it could have any other layout. Its losses are equal.
  col::job::Job again(run, ranks);
  col::job::restore(again, col::checkpoint::Source::open_native(saved.folder), col::job::Restore::kContinue);
  train(again, 5);
  return 0;
}

// Wrong settings end with 2 and a line that says why, a lost rank with 4, as in every program of Colonnade.
int main(int argc, char** argv) {
  return col::run_as_program([&] { return simple_loop(argc > 1 ? argv[1] : "simple_loop_run"); });
}
