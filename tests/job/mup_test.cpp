// muP in complete runs. Its parts are tested with the layers, parameters and optimizer groups.
#include <gtest/gtest.h>

#include "job/runs.h"

namespace colonnade::job {
namespace {

constexpr const char* kMupRun =
    "--num-layers 2 --hidden-size 32 --ffn-hidden-size 48 --num-attention-heads 8 --vocab-size 61 --seq-length 16 "
    "--max-position-embeddings 16 --micro-batch-size 1 --global-batch-size 4 --hidden-dropout 0.1 "
    "--attention-dropout 0 --init-method-std 0.1 --mtp-num-layers 1 --position-embedding-type rope ";

config::Run mup_run(const std::string& flags) {
  return test::settings(1, test::words(std::string(kMupRun) + flags));
}

// The base model itself, with the usual scale of scores: 4 channels per head have an exact root.
TEST(Mup, OfWidthOneIsThePlainRun) {
  for (const char* flags : {"", "--untie-embeddings-and-output-weights ", "--optimizer sgd "}) {
    const test::Curve plain = test::train(mup_run(flags), 3);
    EXPECT_EQ(test::train(mup_run(fmt::format("{}--use-mup --mup-attn-scale-power 0.5 ", flags)), 3), plain);
    EXPECT_NE(test::train(mup_run(fmt::format(
                              "{}--use-mup --mup-attn-scale-power 0.5 --mup-base-hidden-size 8 ", flags)),
                          3),
              plain);
  }
}

TEST(Mup, WidthMultiplierReachesModelAndOptimizer) {
  const config::Run run =
      mup_run("--use-mup --mup-base-hidden-size 8 --decoupled-lr 1e-3 --mup-width-mult 7");
  EXPECT_EQ(run.model.width_mult(), 4);
  EXPECT_EQ(run.model.logit_multiplier(), 0.25);
  EXPECT_EQ(run.optimizer.mup, (config::MupOptimizer{.width_mult = 4, .decoupled_embeddings = true}));
  EXPECT_EQ(mup_run("--use-mup --mup-base-hidden-size 8 --mup-output-mult 3").model.logit_multiplier(), 3);
  const config::Run plain = mup_run("--decoupled-lr 1e-3");
  EXPECT_EQ(plain.optimizer.mup, config::MupOptimizer());
  EXPECT_EQ(plain.model.logit_multiplier(), 1);
}

}  // namespace
}  // namespace colonnade::job
