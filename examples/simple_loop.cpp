// The simple training loop: two tensor-parallel ranks, mock data, five steps, save, five more; then a
// second job loads and repeats the last five. The counterpart of Megatron Core's run_simple_mcore_train_loop.
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
  // Settings as on the command line; fields of col::config::Run can also be set directly.
  col::config::Run settings =
      col::config::parse({"gpt", "--num-layers=2", "--hidden-size=12", "--num-attention-heads=4",
                          "--seq-length=64", "--max-position-embeddings=64", "--micro-batch-size=8",
                          "--train-iters=10", "--lr=1e-3", "--tensor-model-parallel-size=2", "--mock-data",
                          "--tokenizer-type=NullTokenizer", "--vocab-size=128"});

  // Check the settings, connect to the other rank, build this rank's shard of the model.
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

  // A second job resumes from the checkpoint, possibly in another layout, with equal losses.
  col::job::Job resumed(run, ranks);
  col::job::restore(resumed, col::checkpoint::CheckpointReader::open_native(saved.folder),
                    col::job::Restore::kResume);
  train(resumed, 5);
  return 0;
}

// Exits with 2 and a message for invalid settings, with 4 for a lost rank, as all programs of Colonnade.
int main(int argc, char** argv) {
  return col::run_as_program([&] { return simple_loop(argc > 1 ? argv[1] : "simple_loop_run"); });
}
