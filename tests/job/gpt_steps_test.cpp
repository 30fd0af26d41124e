// The stream of micro-batches gives each to the one who asks for it.
#include "colonnade/job/gpt_steps.h"

#include "colonnade/base/error.h"
#include "job/runs.h"

namespace colonnade::job {
namespace {

using test::operator+;

TEST(GptStream, GivesMicroBatchesInOrderAndNoOther) {
  const config::Run run = test::settings(
      1,
      test::words("--num-layers 1 --hidden-size 16 --num-attention-heads 2 --vocab-size 37 --seq-length 8 "
                  "--max-position-embeddings 8 --micro-batch-size 1 --global-batch-size 4 --eval-iters 0"));
  test::on_jobs(run, [&](Job& job) {
    const auto data = data::open_gpt_batches(run.data, run.training, {.vocab_size = 37, .eod = 36});
    GptStream stream(*data[0], job, 4);
    for (int step = 1; step < 3; ++step) {
      const auto steps = stream.next();
      for (int m = 0; m < 2; ++m)
        EXPECT_EQ(steps.batch(m).at("samples").item<std::int64_t>(), 4 * step + m) << step;
      EXPECT_THROW((void)steps.batch(0), Error);
      EXPECT_THROW((void)steps.batch(3), Error);
      for (int m = 2; m < 4; ++m) (void)steps.batch(m);
    }
  });
}

}  // namespace
}  // namespace colonnade::job
