// A BERT over four processes trains, validates and resumes as one process does, on sentences of a real
// dataset.
#include <gtest/gtest.h>

#include <cmath>

#include "program.h"
#include "support/vectors.h"

namespace colonnade::e2e {
namespace {

const Words kModel{"--num-layers=4",       "--hidden-size=64",      "--num-attention-heads=4",
                   "--seq-length=96",      "--vocab-size=2102",     "--max-position-embeddings=96",
                   "--micro-batch-size=2", "--global-batch-size=8", "--tokenizer-type=NullTokenizer"};

Words settings(const TempFolder& folder, const std::string& name) {
  return Words{"pretrain", "bert"} + kModel +
         Words{"--lr=1e-3",
               "--train-iters=20",
               "--data-path",
               test::vectors() + "/indexed/bert_uint16",
               "--split=8,1,1",
               "--data-cache-path",
               (folder / "cache").string(),
               "--eval-interval=20",
               "--eval-iters=1",
               "--save-interval=10",
               "--save",
               (folder / name).string()};
}

const Words kLosses{"lm_loss", "sop_loss"};

TEST(Bert, FourProcessesTrainAndResumeAsOne) {
  const TempFolder folder;
  const Words full{"--full-validation"};
  const Result one = run(colonnade(settings(folder, "one") + full));
  ASSERT_EQ(one.code, 0) << one.text;
  const auto expected = metrics(folder / "one");
  ASSERT_EQ(expected.size(), 20U);
  EXPECT_LT(expected.back().at("lm_loss"), expected.front().at("lm_loss"));

  const Result four =
      run(launch(4, folder.path(),
                 settings(folder, "four") + full +
                     Words{"--pipeline-model-parallel-size=2", "--use-distributed-optimizer",
                           "--num-layers-per-virtual-pipeline-stage=1", "--overlap-grad-reduce"}));
  ASSERT_EQ(four.code, 0) << four.text;
  expect_equal_ends(expected, metrics(folder / "four"), 20, kLosses);
  const auto validated = [&](const char* name) {
    return validations(folder / name).at(0).at("sop_loss").get<double>();
  };
  EXPECT_NEAR(validated("one"), std::log(2), 0.1);  // 20 steps learn nothing
  EXPECT_NEAR(validated("four"), validated("one"), 2e-5);
  EXPECT_NE(one.text.find(" samples each time"), std::string::npos) << one.text;

  const Result two =
      run(launch(2, folder.path(),
                 settings(folder, "two") + Words{"--tensor-model-parallel-size=2", "--sequence-parallel",
                                                 "--load", (folder / "four").string(), "--ckpt-step=10"}));
  ASSERT_EQ(two.code, 0) << two.text;
  expect_equal_ends(expected, metrics(folder / "two"), 10, kLosses);
}

/// `evaluate` gives the loss of the run's validation, on the same samples and masks, in any layout.
TEST(Bert, EvaluateMatchesTheValidationOfARun) {
  const TempFolder folder;
  const Words own = settings(folder, "run") + Words{"--train-iters=10", "--seed=77", "--short-seq-prob=0.3"};
  ASSERT_EQ(run(colonnade(own)).code, 0);
  const Words load{"--load", (folder / "run").string()}, samples{"--eval-iters=2"};
  const Result skipped =
      run(colonnade(own + load + samples + Words{"--skip-train", "--save", (folder / "skipped").string()}));
  ASSERT_EQ(skipped.code, 0) << skipped.text;
  const auto records = validations(folder / "skipped");
  ASSERT_EQ(records.size(), 2U);
  const Words evaluate = Words{"evaluate"} + load + samples +
                         Words{"--global-batch-size=8", "--data-cache-path", (folder / "cache").string()};
  const Words in_two{"--pipeline-model-parallel-size=2", "--micro-batch-size=3"};
  for (const auto& [record, split] : {std::pair{0, "valid"}, std::pair{1, "test"}})
    for (const Words& command : {colonnade(evaluate + Words{"--split-name", split}),
                                 launch(2, folder.path(), evaluate + in_two + Words{"--split-name", split}),
                                 launch(2, folder.path(), evaluate + Words{"--split-name", split})}) {
      const Evaluated got = evaluated(command);
      EXPECT_NEAR(got.loss, records[record].at("loss"), 3e-6) << split;
      EXPECT_NEAR(got.sop_loss, records[record].at("sop_loss"), 3e-6) << split;
    }
  EXPECT_GT(std::abs(evaluated(colonnade(evaluate + Words{"--seed=78"})).loss -
                     records[0].at("loss").get<double>()),
            1e-4)
      << "other tokens are masked";
}

TEST(Bert, GuideCommandsWork) {
  const TempFolder folder;
  const Result result = shell(folder, commands_of_guide("bert.md"));
  ASSERT_EQ(result.code, 0) << result.text;
  EXPECT_NE(result.text.find("step   20/20"), std::string::npos) << result.text;
}

TEST(Bert, DryRunMatchesThePlan) {
  const Result planned = run(colonnade(Words{"plan", "bert"} + kModel +
                                       Words{"--world-size=8", "--tensor-model-parallel-size=2",
                                             "--sequence-parallel", "--pipeline-model-parallel-size=2",
                                             "--use-distributed-optimizer", "--dry-run", "--all"}));
  EXPECT_EQ(planned.code, 0) << planned.text;
}

TEST(Bert, UnsupportedFeaturesAreReported) {
  const std::string folder = test::vectors() + "/hf/bert";
  const auto refused = [](const Words& words, const char* why) {
    const Result result = run(colonnade(words));
    EXPECT_EQ(result.code, 2) << result.text;
    EXPECT_NE(result.text.find(why), std::string::npos) << result.text;
  };
  refused({"generate", "--pretrained-checkpoint", folder, "--prompt", "1"},
          "generate supports decoder-only models; got a bert");
  refused(Words{"plan", "bert"} + kModel + Words{"--world-size=2", "--context-parallel-size=2"},
          "--context-parallel-size must not be set with bert");
  refused({"evaluate", "--load", folder, "--mock-data", "--sft"},
          "--sft requires a GPT model; got bert; remove the flag [sft-model]");
  refused(Words{"plan", "gpt"} + kModel + Words{"--num-tokentypes=2"},
          "--num-tokentypes must be used with a BERT model");
}

}  // namespace
}  // namespace colonnade::e2e
