// A T5 over four processes, stages of its encoder and of its decoder among them, trains, validates and goes
// on as one process does, on sentences of a real data set.
#include <gtest/gtest.h>

#include <fstream>

#include "program.h"

namespace colonnade::e2e {
namespace {

const Words kModel{"--encoder-num-layers=3",  "--num-layers=3",          "--hidden-size=64",
                   "--ffn-hidden-size=160",   "--num-attention-heads=4", "--position-embedding-type=relative",
                   "--normalization=RMSNorm", "--activation=geglu-tanh", "--disable-bias-linear",
                   "--seq-length=96",         "--decoder-seq-length=48", "--tokenizer-type=NullTokenizer",
                   "--vocab-size=2102",       "--vocab-extra-ids=100",   "--micro-batch-size=2",
                   "--global-batch-size=8"};
/// Three stages: the middle one holds the encoder's last layer and the decoder's first.
const Words kFour{"--pipeline-model-parallel-size=2", "--pipeline-model-parallel-layout=Eee|et|t|tL",
                  "--use-distributed-optimizer", "--overlap-grad-reduce"};

Words settings(const TempFolder& folder, const std::string& name) {
  return Words{"pretrain", "t5"} + kModel +
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

/// Loss and norm of the last `count` steps.
void expect_equal_ends(const std::vector<nlohmann::json>& expected, const std::vector<nlohmann::json>& got,
                       std::size_t count) {
  ASSERT_GE(got.size(), count);
  for (std::size_t i = 1; i <= count; ++i) {
    const auto &a = expected[expected.size() - i], &b = got[got.size() - i];
    const double loss = a.at("lm_loss"), norm = a.at("grad_norm");
    EXPECT_NEAR(b.at("lm_loss"), loss, 2e-5 * loss) << a.at("iteration");
    EXPECT_NEAR(b.at("grad_norm"), norm, 1e-4 * norm) << a.at("iteration");
    EXPECT_EQ(b.at("consumed_tokens"), a.at("consumed_tokens"));
  }
}

TEST(Encoder, FourProcessesTrainAsOneAndGoOn) {
  const TempFolder folder;
  const Result one = run(colonnade(settings(folder, "one")));
  ASSERT_EQ(one.code, 0) << one.text;
  const auto expected = metrics(folder / "one");
  ASSERT_EQ(expected.size(), 20U);
  EXPECT_LT(expected.back().at("lm_loss"), expected.front().at("lm_loss"));
  EXPECT_EQ(expected.back().at("consumed_tokens"), 20 * 8 * (96 + 48));

  const Result four = run(launch(4, folder.path(), settings(folder, "four") + kFour));
  ASSERT_EQ(four.code, 0) << four.text;
  expect_equal_ends(expected, metrics(folder / "four"), 20);

  const Result two =
      run(launch(2, folder.path(),
                 settings(folder, "two") + Words{"--tensor-model-parallel-size=2", "--sequence-parallel",
                                                 "--load", (folder / "four").string(), "--ckpt-step=10"}));
  ASSERT_EQ(two.code, 0) << two.text;
  expect_equal_ends(expected, metrics(folder / "two"), 10);
}

TEST(Encoder, ThePlanNamesTheLayersOfEachAndItsDryRunAgrees) {
  const Result planned =
      run(colonnade(Words{"plan", "t5"} + kModel + kFour + Words{"--world-size=4", "--dry-run", "--all"}));
  EXPECT_EQ(planned.code, 0) << planned.text;
  EXPECT_NE(planned.text.find("layer of the encoder 2, layer of the decoder 0"), std::string::npos)
      << planned.text;
}

/// What cannot be read of a model is told once: not its sizes too, which it would have said.
TEST(Encoder, AFolderOfAnotherModelIsOneFault) {
  const TempFolder folder;
  std::filesystem::copy(std::string(COLONNADE_VECTORS) + "/hf/t5", folder / "mt5");
  nlohmann::json config = nlohmann::json::parse(std::ifstream(folder / "mt5/config.json"));
  config["model_type"] = "mt5";
  std::ofstream(folder / "mt5/config.json") << config;
  const Words training{"--seq-length=96",
                       "--decoder-seq-length=48",
                       "--tokenizer-type=NullTokenizer",
                       "--vocab-extra-ids=20",
                       "--micro-batch-size=2",
                       "--lr=1e-3",
                       "--train-iters=2",
                       "--mock-data"};
  const auto faults = [](const Words& words) {
    const Result result = run(colonnade(words));
    EXPECT_EQ(result.code, 2) << result.text;
    return result.text;
  };
  const std::string weights = (folder / "mt5").string();
  EXPECT_EQ(faults({"evaluate", "--load", weights, "--tokens", "x"}).find("model_type must be one of"),
            weights.size() + std::string("error: /config.json: ").size());
  EXPECT_EQ(faults(Words{"pretrain", "t5", "--pretrained-checkpoint", weights} + training)
                .find("error: " + weights + "/config.json: model_type must be one of"),
            0U);
  EXPECT_EQ(
      faults(Words{"pretrain", "t5", "--load", weights} + training)
          .find("error: --load: must name a run folder; got " + weights + " with weights of Hugging Face"),
      0U);
  const std::string other =
      faults(Words{"pretrain", "gpt", "--pretrained-checkpoint", std::string(COLONNADE_VECTORS) + "/hf/t5",
                   "--seq-length=96", "--micro-batch-size=2", "--lr=1e-3", "--train-iters=2", "--mock-data"});
  EXPECT_EQ(other.find("error: model: must agree with "), 0U) << other;
  EXPECT_NE(other.find("write t5 in its place"), std::string::npos) << other;
}

TEST(Encoder, WhatReadsNoEncoderSaysSo) {
  const std::string folder = std::string(COLONNADE_VECTORS) + "/hf/t5";
  const Result text = run(colonnade({"generate", "--pretrained-checkpoint", folder, "--prompt", "1"}));
  EXPECT_EQ(text.code, 2) << text.text;
  EXPECT_NE(text.text.find("generate: text is written by models without an encoder"), std::string::npos);
  const Result data = run(colonnade({"evaluate", "--pretrained-checkpoint", folder, "--mock-data"}));
  EXPECT_EQ(data.code, 2) << data.text;
  EXPECT_NE(data.text.find("score given tokens with --tokens FILE"), std::string::npos) << data.text;
}

}  // namespace
}  // namespace colonnade::e2e
