// A BERT over four processes trains, validates and goes on as one process does, on sentences of a real data
// set.
#include <gtest/gtest.h>

#include <cmath>

#include "program.h"

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
               std::string(COLONNADE_VECTORS) + "/indexed/bert_uint16",
               "--split=8,1,1",
               "--data-cache-path",
               (folder / "cache").string(),
               "--eval-interval=20",
               "--eval-iters=1",
               "--save-interval=10",
               "--save",
               (folder / name).string()};
}

/// Losses and norm of the last `count` steps.
void expect_equal_ends(const std::vector<nlohmann::json>& expected, const std::vector<nlohmann::json>& got,
                       std::size_t count) {
  ASSERT_GE(got.size(), count);
  for (std::size_t i = 1; i <= count; ++i) {
    const auto &a = expected[expected.size() - i], &b = got[got.size() - i];
    for (const char* loss : {"lm_loss", "sop_loss"})
      EXPECT_NEAR(b.at(loss), a.at(loss).get<double>(), 2e-5 * a.at(loss).get<double>())
          << loss << " " << a.at("iteration");
    const double norm = a.at("grad_norm");
    EXPECT_NEAR(b.at("grad_norm"), norm, 1e-4 * norm) << a.at("iteration");
  }
}

TEST(Bert, FourProcessesTrainAsOneAndGoOn) {
  const TempFolder folder;
  const Result one = run(colonnade(settings(folder, "one")));
  ASSERT_EQ(one.code, 0) << one.text;
  const auto expected = metrics(folder / "one");
  ASSERT_EQ(expected.size(), 20U);
  EXPECT_LT(expected.back().at("lm_loss"), expected.front().at("lm_loss"));

  const Result four =
      run(launch(4, folder.path(),
                 settings(folder, "four") +
                     Words{"--pipeline-model-parallel-size=2", "--use-distributed-optimizer",
                           "--num-layers-per-virtual-pipeline-stage=1", "--overlap-grad-reduce"}));
  ASSERT_EQ(four.code, 0) << four.text;
  expect_equal_ends(expected, metrics(folder / "four"), 20);
  const auto validated = [&](const char* name) {
    const std::string lines = read_text(folder / name / "validation.jsonl");
    return nlohmann::json::parse(lines.substr(0, lines.find('\n'))).at("sop_loss").get<double>();
  };
  EXPECT_NEAR(validated("one"), std::log(2), 0.1);  // nothing is learned in 20 steps
  EXPECT_NEAR(validated("four"), validated("one"), 2e-5);

  const Result two =
      run(launch(2, folder.path(),
                 settings(folder, "two") + Words{"--tensor-model-parallel-size=2", "--sequence-parallel",
                                                 "--load", (folder / "four").string(), "--ckpt-step=10"}));
  ASSERT_EQ(two.code, 0) << two.text;
  expect_equal_ends(expected, metrics(folder / "two"), 10);
}

TEST(Bert, ThePlansDryRunAgrees) {
  const Result planned = run(colonnade(Words{"plan", "bert"} + kModel +
                                       Words{"--world-size=8", "--tensor-model-parallel-size=2",
                                             "--sequence-parallel", "--pipeline-model-parallel-size=2",
                                             "--use-distributed-optimizer", "--dry-run", "--all"}));
  EXPECT_EQ(planned.code, 0) << planned.text;
}

TEST(Bert, WhatItDoesNotDoIsSaid) {
  const std::string folder = std::string(COLONNADE_VECTORS) + "/hf/bert";
  const auto refused = [](const Words& words, const char* why) {
    const Result result = run(colonnade(words));
    EXPECT_EQ(result.code, 2) << result.text;
    EXPECT_NE(result.text.find(why), std::string::npos) << result.text;
  };
  refused({"generate", "--pretrained-checkpoint", folder, "--prompt", "1"},
          "generate: text is written by models without an encoder; got a bert");
  refused({"evaluate", "--pretrained-checkpoint", folder, "--mock-data"},
          "score given tokens with --tokens FILE");
  refused(Words{"plan", "bert"} + kModel + Words{"--world-size=2", "--context-parallel-size=2"},
          "--context-parallel-size: must be left out with bert");
  refused(Words{"plan", "gpt"} + kModel + Words{"--num-tokentypes=2"}, "--num-tokentypes: belongs to bert");
}

}  // namespace
}  // namespace colonnade::e2e
