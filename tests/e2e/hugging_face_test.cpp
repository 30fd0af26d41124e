// Hugging Face folders from the user's side: recorded logits, dropout of continued training, the class that
// a run exports to, invalid config.json files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "program.h"
#include "support/vectors.h"

namespace colonnade::e2e {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

const std::string kVectors = test::vectors();

/// Copies a recorded folder with a changed config.json.
void copy_with(const fs::path& to, const std::string& folder, const json& change) {
  fs::copy(kVectors + "/hf/" + folder, to);
  json config = json::parse(read_text(to / "config.json"));
  config.update(change);
  fs::remove(to / "config.json");
  write_text(to / "config.json", config.dump());
}

Words pretrain(const fs::path& folder, const Words& more) {
  return colonnade(Words{"pretrain", "gpt", "--pretrained-checkpoint", folder.string(), "--mock-data",
                         "--tokenizer-type", "NullTokenizer", "--seq-length", "16", "--micro-batch-size", "1",
                         "--global-batch-size", "1", "--train-iters", "1", "--lr", "1e-5", "--eval-iters",
                         "0"} +
                   more);
}

// Logits of transformers 5.23 for folders with position settings in unusual places: rope_theta within
// rope_scaling, the old context length at the top level.
TEST(HuggingFace, PositionSettingsInUnusualPlacesGiveTheRecordedLogits) {
  const TempFolder folder;
  for (const char* name : {"theta-in-rope-scaling", "deepseek-theta-in-rope-scaling", "llama3-length-at-top",
                           "yarn-length-at-top"}) {
    const std::string recorded = kVectors + "/cases/" + name;
    const fs::path out = folder / (std::string(name) + ".safetensors");
    const Result result = run(colonnade({"evaluate", "--load", recorded + "/hf", "--tokens",
                                         recorded + "/in.safetensors", "--logits-out", out.string()}));
    ASSERT_EQ(result.code, 0) << result.text;
    const auto logits = read_tensor<float>(out, "logits");
    const auto expected = read_tensor<float>(recorded + "/expected.safetensors", "logits");
    ASSERT_EQ(logits.size(), expected.size());
    for (std::size_t i = 0; i < logits.size(); ++i)
      ASSERT_NEAR(logits[i], expected[i], 2e-5 + 1e-4 * std::fabs(expected[i])) << name << " " << i;
  }
}

TEST(HuggingFace, DropoutOfTheFolderIsUsedUnlessAFlagIsGiven) {
  const TempFolder folder;
  const std::string llama = kVectors + "/hf/llama_plain";
  const fs::path saved = folder / "run";
  Result result = run(pretrain(llama, {"--save", saved.string(), "--save-interval", "1"}));
  ASSERT_EQ(result.code, 0) << result.text;
  const std::string file = llama + "/config.json";
  EXPECT_THAT(result.text,
              HasSubstr("dropout: --hidden-dropout 0 from " + file + ", --attention-dropout 0 from " + file));
  EXPECT_THAT(result.text, HasSubstr("exports to: LlamaForCausalLM\n"));
  EXPECT_EQ(json::parse(read_text(saved / "checkpoints/step_00000001/config.json")).at("attention_dropout"),
            0);
  // The run resumes with it without the folder.
  result = run(colonnade({"pretrain",    "gpt",
                          "--load",      saved.string(),
                          "--save",      saved.string(),
                          "--mock-data", "--micro-batch-size",
                          "1",           "--global-batch-size",
                          "1",           "--train-iters",
                          "2",           "--lr",
                          "1e-5",        "--eval-iters",
                          "0",           "--save-interval",
                          "1",           "--override-opt-param-scheduler"}));
  ASSERT_EQ(result.code, 0) << result.text;
  EXPECT_EQ(json::parse(read_text(saved / "checkpoints/step_00000002/config.json")).at("attention_dropout"),
            0);
  EXPECT_EQ(result.text.find("-dropout: was"), std::string::npos) << result.text;

  // So does training from the run's weights.
  for (const Words& more : {Words{}, Words{"--load", saved.string(), "--finetune"}}) {
    result = run(pretrain(saved, more));
    ASSERT_EQ(result.code, 0) << result.text;
    EXPECT_THAT(result.text, HasSubstr("dropout: --hidden-dropout 0 from " + saved.string()));
  }
  result = run(pretrain(llama, {"--attention-dropout", "0.25"}));
  ASSERT_EQ(result.code, 0) << result.text;
  EXPECT_THAT(result.text, HasSubstr("--attention-dropout 0.25 from the command line"));
}

TEST(HuggingFace, TwoDropoutsOfOneSettingAreRejectedForTrainingOnly) {
  const TempFolder folder;
  copy_with(folder / "gpt2", "gpt2", {{"embd_pdrop", 0.2}});
  Result result = run(pretrain(folder / "gpt2", {}));
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.text,
              HasSubstr("(embd_pdrop) and of layers (resid_pdrop) must be equal for training; got "
                        "0.2 and 0; set --hidden-dropout"));
  result = run(pretrain(folder / "gpt2", {"--hidden-dropout", "0.1"}));
  EXPECT_EQ(result.code, 0) << result.text;
  result = run(colonnade(
      {"generate", "--load", (folder / "gpt2").string(), "--prompt", "1 2", "--max-new-tokens", "1"}));
  EXPECT_EQ(result.code, 0) << result.text;
}

TEST(HuggingFace, RunWithoutAClassNamesTheFlagThatPreventsIt) {
  const Result result = run(colonnade(small_gpt() + Words{"--qk-layernorm", "--train-iters", "1"}));
  ASSERT_EQ(result.code, 0) << result.text;
  EXPECT_THAT(result.text, HasSubstr("exports to: no Hugging Face class: "));
  EXPECT_THAT(result.text, HasSubstr("without --qk-layernorm"));
}

TEST(HuggingFace, DuplicateKeyIsRejected) {
  const TempFolder folder;
  copy_with(folder / "llama", "llama_plain", json::object());
  std::string text = read_text(folder / "llama/config.json");
  text.insert(1, R"("rope_theta": 5000.0, )");
  write_text(folder / "llama/config.json", text);
  const Result result = run(pretrain(folder / "llama", {}));
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.text, HasSubstr("config.json must have each key once; got \"rope_theta\" twice"));
}

TEST(HuggingFace, InvalidModelTypeIsReportedByEveryVerb) {
  const TempFolder folder;
  copy_with(folder / "llama", "llama_plain", {{"model_type", nullptr}});
  for (const auto& words :
       {pretrain(folder / "llama", {}),
        colonnade({"generate", "--load", (folder / "llama").string(), "--prompt", "1"})}) {
    const Result result = run(words);
    EXPECT_EQ(result.code, 2) << result.text;
    EXPECT_THAT(result.text, HasSubstr("config.json: model_type must be"));
  }
}

// Megatron's multi-latent attention uses YaRN unless --rope-type is rope.
TEST(HuggingFace, ScalingWithLatentAttentionIsYarn) {
  Words words = {"plan",
                 "--num-layers",
                 "2",
                 "--hidden-size",
                 "64",
                 "--num-attention-heads",
                 "4",
                 "--seq-length",
                 "64",
                 "--max-position-embeddings",
                 "64",
                 "--micro-batch-size",
                 "1",
                 "--vocab-size",
                 "64",
                 "--multi-latent-attention",
                 "--kv-lora-rank",
                 "16",
                 "--qk-layernorm",
                 "--normalization",
                 "RMSNorm",
                 "--rotary-scaling-factor",
                 "40",
                 "--mscale",
                 "0.707",
                 "--mscale-all-dim",
                 "0.707",
                 "--position-embedding-type"};
  for (const char* positions : {"rope", "yarn", "learned_absolute", "none"}) {
    const Result result = run(colonnade(words + Words{positions}));
    EXPECT_EQ(result.code, 0) << positions << result.text;
    EXPECT_EQ(result.text.find("does nothing"), std::string::npos) << result.text;
  }
  const Result result = run(colonnade(words + Words{"yarn", "--rope-type", "rope"}));
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.text, HasSubstr("--rope-type must be yarn with --position-embedding-type yarn"));
}

}  // namespace
}  // namespace colonnade::e2e
