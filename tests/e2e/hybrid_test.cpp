// Four processes with hybrid context parallelism train, validate and resume as one process with packed
// samples and document masks.
#include <gtest/gtest.h>

#include "program.h"
#include "support/vectors.h"

namespace colonnade::e2e {
namespace {

const Words kHybrid{"--hybrid-context-parallel", "--max-seqlen-per-dp-cp-rank=16",
                    "--cp-comm-type=all_gather"};

Words settings(const TempFolder& folder, const std::string& name) {
  return {"pretrain",
          "gpt",
          "--num-layers=2",
          "--hidden-size=64",
          "--num-attention-heads=4",
          "--seq-length=64",
          "--max-position-embeddings=64",
          "--micro-batch-size=1",
          "--global-batch-size=8",
          "--hidden-dropout=0",
          "--attention-dropout=0",
          "--lr=1e-3",
          "--train-iters=4",
          "--data-path",
          test::vectors() + "/indexed/gpt_uint16",
          "--split=8,1,1",
          "--data-cache-path",
          (folder / "cache").string(),
          "--tokenizer-type=NullTokenizer",
          "--vocab-size=1025",  // the last id is the data's end of document
          "--reset-position-ids",
          "--reset-attention-mask",
          "--calculate-per-token-loss",
          "--eval-interval=4",
          "--eval-iters=1",  // for the test split
          "--full-validation",
          "--save-interval=2",
          "--save",
          (folder / name).string()};
}

TEST(Hybrid, FourProcessesComputeTheSameAsOne) {
  const TempFolder folder;
  const Result one = run(colonnade(settings(folder, "one")));
  ASSERT_EQ(one.code, 0) << one.text;
  const Result four = run(launch(4, folder.path(), settings(folder, "four") + kHybrid));
  ASSERT_EQ(four.code, 0) << four.text;
  const auto expected = metrics(folder / "one"), got = metrics(folder / "four");
  ASSERT_EQ(got.size(), 4U);
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double loss = expected[i].at("lm_loss"), norm = expected[i].at("grad_norm");
    EXPECT_NEAR(got[i].at("lm_loss"), loss, 2e-5 * loss);
    EXPECT_NEAR(got[i].at("grad_norm"), norm, 1e-4 * norm);
    EXPECT_EQ(got[i].at("consumed_samples"), expected[i].at("consumed_samples"));
    EXPECT_GE(got[i].at("attention_longest_over_mean").get<double>(), 1);
    EXPECT_FALSE(expected[i].contains("attention_longest_over_mean"));
  }
  const auto validated = [&](const std::string& name) {
    const std::string text = read_text(folder / (name + "/validation.jsonl"));
    return nlohmann::json::parse(text.substr(0, text.find('\n'))).at("loss").get<double>();
  };
  EXPECT_NEAR(validated("four"), validated("one"), 2e-5 * validated("one"));

  const Result two = run(launch(
      2, folder.path(),
      settings(folder, "two") + kHybrid +
          Words{"--max-seqlen-per-dp-cp-rank=32", "--load", (folder / "four").string(), "--ckpt-step=2"}));
  ASSERT_EQ(two.code, 0) << two.text;
  const auto resumed = metrics(folder / "two");
  ASSERT_EQ(resumed.size(), 2U);
  for (std::size_t i = 0; i < resumed.size(); ++i) {
    const double loss = got[i + 2].at("lm_loss");
    EXPECT_NEAR(resumed[i].at("lm_loss"), loss, 2e-5 * loss) << "two ranks resume with the same samples";
  }
}

TEST(Hybrid, PlanPrintsItsAssumptionsAndItsDryRunAgrees) {
  const TempFolder folder;
  Words words = settings(folder, "plan") + kHybrid + Words{"--world-size=8", "--dry-run", "--all"};
  words.erase(words.begin(), words.begin() + 2);
  const Result planned = run(colonnade(Words{"plan"} + words));
  EXPECT_EQ(planned.code, 0) << planned.text;
  EXPECT_NE(planned.text.find("one sequence per sample, on 4 of 8"), std::string::npos) << planned.text;
}

}  // namespace
}  // namespace colonnade::e2e
