// A T5 over four processes, with pipeline stages of its encoder and decoder, trains, validates and
// resumes as one process does, on sentences of a real dataset.
#include <gtest/gtest.h>

#include <fstream>

#include "program.h"
#include "support/vectors.h"

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

TEST(Encoder, FourProcessesTrainAndResumeAsOne) {
  const TempFolder folder;
  const Words full{"--full-validation"};
  const Result one = run(colonnade(settings(folder, "one") + full));
  ASSERT_EQ(one.code, 0) << one.text;
  const auto expected = metrics(folder / "one");
  ASSERT_EQ(expected.size(), 20U);
  EXPECT_LT(expected.back().at("lm_loss"), expected.front().at("lm_loss"));
  EXPECT_EQ(expected.back().at("consumed_tokens"), 20 * 8 * (96 + 48));

  const Result four = run(launch(4, folder.path(), settings(folder, "four") + kFour + full));
  ASSERT_EQ(four.code, 0) << four.text;
  expect_equal_ends(expected, metrics(folder / "four"), 20);
  const auto validated = [&](const char* name) {
    return validations(folder / name).at(0).at("loss").get<double>();
  };
  EXPECT_NEAR(validated("four"), validated("one"), 2e-5 * validated("one"));

  const Result two =
      run(launch(2, folder.path(),
                 settings(folder, "two") + Words{"--tensor-model-parallel-size=2", "--sequence-parallel",
                                                 "--load", (folder / "four").string(), "--ckpt-step=10"}));
  ASSERT_EQ(two.code, 0) << two.text;
  expect_equal_ends(expected, metrics(folder / "two"), 10);
}

/// For a native checkpoint in another layout, and for a Hugging Face folder.
TEST(Encoder, EvaluateMatchesTheValidationOfARun) {
  const TempFolder folder;
  const Words own = settings(folder, "run") + Words{"--train-iters=10", "--seed=77", "--mask-prob=0.2"};
  ASSERT_EQ(run(colonnade(own)).code, 0);
  const auto compare = [&](const Words& from, const Words& training, const Words& data,
                           const std::string& save) {
    const Result skipped = run(colonnade(
        training + from + Words{"--eval-iters=2", "--skip-train", "--save", (folder / save).string()}));
    ASSERT_EQ(skipped.code, 0) << skipped.text;
    const auto records = validations(folder / save);
    ASSERT_EQ(records.size(), 2U);
    const Words evaluate =
        Words{"evaluate"} + from + data +
        Words{"--eval-iters=2", "--global-batch-size=8", "--data-cache-path", (folder / "cache").string()};
    EXPECT_NEAR(evaluated(colonnade(evaluate)).loss, records[0].at("loss"), 3e-6);
    EXPECT_NEAR(evaluated(colonnade(evaluate + Words{"--split-name=test"})).loss, records[1].at("loss"),
                3e-6);
    EXPECT_NEAR(
        evaluated(launch(2, folder.path(), evaluate + Words{"--pipeline-model-parallel-size=2"})).loss,
        records[0].at("loss"), 3e-6);
  };
  compare({"--load", (folder / "run").string()}, own, {}, "skipped");
  const Words data{"--mock-data",          "--split=1,1,1",
                   "--seq-length=48",      "--decoder-seq-length=24",
                   "--vocab-extra-ids=20", "--tokenizer-type=NullTokenizer"};
  const Words shape{"--micro-batch-size=2", "--global-batch-size=8", "--lr=1e-3", "--train-iters=2"};
  compare({"--pretrained-checkpoint", test::vectors() + "/hf/t5"}, Words{"pretrain", "t5"} + data + shape,
          data, "from_hf");
}

TEST(Encoder, GuideCommandsWork) {
  const TempFolder folder;
  const Result result = shell(folder, commands_of_guide("encoder_decoder.md"));
  ASSERT_EQ(result.code, 0) << result.text;
  EXPECT_NE(result.text.find("step   20/20"), std::string::npos) << result.text;
}

TEST(Encoder, PlanListsTheLayersOfBothAndItsDryRunAgrees) {
  const Result planned =
      run(colonnade(Words{"plan", "t5"} + kModel + kFour + Words{"--world-size=4", "--dry-run", "--all"}));
  EXPECT_EQ(planned.code, 0) << planned.text;
  EXPECT_NE(planned.text.find("encoder layer 2, decoder layer 0"), std::string::npos) << planned.text;
}

/// An unreadable model is one fault: its missing sizes are not reported in addition.
TEST(Encoder, FolderOfAnotherModelIsOneFault) {
  const TempFolder folder;
  std::filesystem::copy(test::vectors() + "/hf/t5", folder / "mt5");
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
          .find("error: --load must name a run folder; got " + weights + " with weights of Hugging Face"),
      0U);
  const std::string other =
      faults(Words{"pretrain", "gpt", "--pretrained-checkpoint", test::vectors() + "/hf/t5",
                   "--seq-length=96", "--micro-batch-size=2", "--lr=1e-3", "--train-iters=2", "--mock-data"});
  EXPECT_EQ(other.find("error: model must agree with "), 0U) << other;
  EXPECT_NE(other.find("write t5 instead"), std::string::npos) << other;
}

TEST(Encoder, MissingSettingsAreReported) {
  const std::string folder = test::vectors() + "/hf/t5";
  const Result text = run(colonnade({"generate", "--pretrained-checkpoint", folder, "--prompt", "1"}));
  EXPECT_EQ(text.code, 2) << text.text;
  EXPECT_NE(text.text.find("generate supports decoder-only models"), std::string::npos);
  Words data{"evaluate", "--pretrained-checkpoint", folder, "--mock-data", "--vocab-extra-ids=20"};
  for (const char* length : {"--seq-length", "--decoder-seq-length"}) {
    const Result result = run(colonnade(data));
    EXPECT_EQ(result.code, 2) << result.text;
    EXPECT_EQ(result.text.find(std::string("error: ") + length + " must be "), 0U) << result.text;
    data.push_back(std::string(length) + "=48");
  }
}

}  // namespace
}  // namespace colonnade::e2e
