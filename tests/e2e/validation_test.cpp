// The losses that a run writes down are those of its validation and test splits, new samples each time, with
// documents apart from each other.
#include <gtest/gtest.h>

#include <cmath>

#include "program.h"

namespace colonnade::e2e {
namespace {

/// The losses of the first samples of a split that count, by `colonnade evaluate` at the weights of a step.
Evaluated score(const TempFolder& folder, int step, const std::string& split, int batches,
                const Words& more = {}) {
  return evaluated(
      colonnade(Words{"evaluate", "--load", (folder / "run").string(), "--ckpt-step", std::to_string(step),
                      "--split-name", split, "--global-batch-size=4", "--eval-iters", std::to_string(batches),
                      "--data-cache-path", (folder / "cache").string()} +
                more));
}

TEST(Validation, ReadsTheNextSamplesOfItsSplitEachTime) {
  const TempFolder folder;
  const std::string run_folder = (folder / "run").string();
  const Result trained = run(launch(2, folder.path(),
                                    {"pretrain",
                                     "gpt",
                                     "--num-layers=2",
                                     "--hidden-size=64",
                                     "--num-attention-heads=4",
                                     "--seq-length=32",
                                     "--max-position-embeddings=32",
                                     "--micro-batch-size=1",
                                     "--global-batch-size=4",
                                     "--lr=1e-3",
                                     "--train-iters=4",
                                     "--data-path",
                                     std::string(COLONNADE_VECTORS) + "/indexed/gpt_uint16",
                                     "--split=2,1,1",
                                     "--data-cache-path",
                                     (folder / "cache").string(),
                                     "--tokenizer-type=NullTokenizer",
                                     "--vocab-size=1025",  // its last id is the data's end of document
                                     "--reset-position-ids",
                                     "--reset-attention-mask",
                                     "--eod-mask-loss",
                                     "--eval-interval=2",
                                     "--eval-iters=2",
                                     "--save-interval=2",
                                     "--save",
                                     run_folder}));
  ASSERT_EQ(trained.code, 0) << trained.text;
  const std::vector<nlohmann::json> records = validations(folder / "run");
  ASSERT_EQ(records.size(), 3U);
  constexpr double kRounding = 2e-6;  // of the printed loss and of the mean below
  EXPECT_EQ(records[0].at("set"), "validation");
  EXPECT_NEAR(records[0].at("loss"), score(folder, 2, "valid", 2).loss, kRounding);
  EXPECT_EQ(records[1].at("iteration"), 4);
  const auto [all, all_tokens, none] = score(folder, 4, "valid", 4);
  const auto [first, first_tokens, neither] = score(folder, 4, "valid", 2);
  EXPECT_EQ(none + neither, 0) << "no order of sentences";
  EXPECT_LT(first_tokens, 2 * 4 * 32) << "the ends of documents do not count";
  EXPECT_NEAR(records[1].at("loss"), (all * all_tokens - first * first_tokens) / (all_tokens - first_tokens),
              3 * kRounding)
      << "the third and fourth batch";
  EXPECT_EQ(records[2].at("set"), "test");
  EXPECT_NEAR(records[2].at("loss"), score(folder, 4, "test", 2).loss, kRounding);
  // What was told about documents is told to `evaluate` by the checkpoint.
  for (const char* other : {"--no-reset-position-ids", "--no-reset-attention-mask", "--no-eod-mask-loss"})
    EXPECT_GT(std::abs(score(folder, 4, "valid", 2, {other}).loss - first), 3 * kRounding) << other;
}

}  // namespace
}  // namespace colonnade::e2e
