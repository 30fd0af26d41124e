// Published folders: every verb reads the folders that Transformers reads, or reports the kind of folder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "program.h"
#include "support/vectors.h"

namespace colonnade::e2e {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::string kCases = test::vectors() + "/cases/";
const std::string kPointer =
    "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a21\nsize 440449768\n";

/// A recorded folder, and the expected message.
struct Case {
  const char* name;
  const char* note;
};
constexpr Case kRecorded[] = {
    {"gpt2_as_published", "not read: 2 buffers (transformer.h.0.attn.bias, transformer.h.1.attn.bias)"},
    {"llama_tied_other_head", "lm_head.weight differs from model.embed_tokens.weight"},
    {"gpt2_tied_other_head", "lm_head.weight differs from transformer.wte.weight"},
    {"llama_base", ""},
    {"llama_language_model", ""},
    {"llama_head_alone", ""},
    {"mixtral_fused", ""},
    {"qwen3_moe_fused", ""},
    {"deepseek_v3_fused", ""},
    {"t5_other_head", "lm_head.weight differs from shared.weight"},
    {"bert_other_head", "cls.predictions.decoder.weight differs from bert.embeddings.word_embeddings.weight"},
};

TEST(Folders, GiveTheLogitsOfTransformersInEverySpelling) {
  const TempFolder out;
  for (const auto& [name, note] : kRecorded) {
    SCOPED_TRACE(name);
    const std::string folder = kCases + name;
    const fs::path file = out / (std::string(name) + ".safetensors");
    const Result result = run(colonnade({"evaluate", "--load", folder, "--tokens", folder + "/in.safetensors",
                                         "--logits-out", file.string()}));
    ASSERT_EQ(result.code, 0) << result.text;
    EXPECT_THAT(result.text, HasSubstr(note));
    if (*note == '\0') {
      EXPECT_THAT(result.text, AllOf(Not(HasSubstr("not read")), Not(HasSubstr("differs"))));
    }
    const auto logits = read_tensor<float>(file, "logits");
    const auto expected = read_tensor<float>(folder + "/expected.safetensors", "logits");
    ASSERT_EQ(logits.size(), expected.size());
    float largest = 0;
    for (std::size_t i = 0; i < logits.size(); ++i)
      largest = std::max(largest, std::fabs(logits[i] - expected[i]));
    EXPECT_LT(largest, 1e-4F);
  }
}

TEST(Folders, TrainAndGenerateFromThem) {
  const TempFolder folder;
  const std::string weights = kCases + "llama_tied_other_head";
  const Words train{"pretrain",
                    "gpt",
                    "--vocab-size",
                    "32",
                    "--pretrained-checkpoint",
                    weights,
                    "--mock-data",
                    "--tokenizer-type",
                    "NullTokenizer",
                    "--seq-length",
                    "16",
                    "--train-iters",
                    "1",
                    "--lr",
                    "1e-6",
                    "--micro-batch-size",
                    "1",
                    "--save",
                    (folder / "run").string(),
                    "--save-interval",
                    "1",
                    "--eval-iters",
                    "0"};
  const Result trained = run(colonnade(train));
  ASSERT_EQ(trained.code, 0) << trained.text;
  EXPECT_THAT(trained.text, HasSubstr("lm_head.weight differs from model.embed_tokens.weight"));
  const std::string step = "/checkpoints/step_00000001/model.safetensors";
  const auto saved = read_tensor<float>(folder.path() / ("run" + step), "lm_head.weight");
  const auto given = read_tensor<float>(weights + "/model.safetensors", "lm_head.weight");
  ASSERT_EQ(saved.size(), given.size());
  for (std::size_t i = 0; i < saved.size(); ++i) ASSERT_NEAR(saved[i], given[i], 1e-5) << i;
  const Result text = run(colonnade({"generate", "--load", kCases + "gpt2_as_published", "--tokenizer-type",
                                     "NullTokenizer", "--prompt", "3 4 5", "--max-new-tokens", "2"}));
  EXPECT_EQ(text.code, 0) << text.text;
}

/// Verbs that read the weights of `folder`.
std::vector<Words> verbs(const std::string& folder) {
  return {{"evaluate", "--load", folder, "--tokens", kCases + "llama_base/in.safetensors"},
          {"generate", "--load", folder, "--prompt", "3 4"},
          {"generate", "--pretrained-checkpoint", folder, "--prompt", "3 4"},
          small_gpt() + Words{"--train-iters", "1", "--load", folder},
          {"checkpoint", "inspect", folder}};
}

TEST(Folders, UnsupportedFormatsAreNamedByEveryVerb) {
  const TempFolder folder;
  const auto put = [&](const std::string& name, const std::string& text) {
    fs::create_directories((folder / name).parent_path());
    write_text(folder / name, text);
  };
  const std::string config = read_text(kCases + "llama_base/config.json");
  for (const char* name : {"pickle", "adapter", "empty", "inner"})
    put(std::string(name) + "/config.json", config);
  put("pickle/pytorch_model.bin", "PK\x03\x04");
  put("adapter/adapter_model.safetensors", "");
  put("inner/deep/model.safetensors", "");
  put("gguf/model.Q4.gguf", "GGUF");
  for (const auto& [name, says] :
       {std::pair{"pickle",
                  "got pytorch_model.bin, a PyTorch pickle, which is not supported; save "
                  "them as safetensors"},
        std::pair{"adapter", "the weights of a PEFT adapter"},
        std::pair{"empty", "got no weights; download them"}, std::pair{"inner", "got weights in"},
        std::pair{"gguf", "a GGUF file"}})
    for (const Words& words : verbs((folder / name).string())) {
      const Result result = run(colonnade(words), {}, folder.path());
      EXPECT_THAT(result.code, testing::AnyOf(2, 3)) << result.text;
      EXPECT_THAT(result.text, AllOf(HasSubstr("error: "), HasSubstr(says))) << words[0];
    }
}

TEST(Folders, LfsPointersAreReportedForEveryFile) {
  for (const char* file :
       {"model.safetensors", "config.json", "model.safetensors.index.json", "tokenizer.json"}) {
    const TempFolder folder;
    for (const char* name : {"config.json", "model.safetensors"})
      write_text(folder / name, read_text(kCases + "llama_base/" + name));
    if (std::string(file).ends_with("index.json")) fs::remove(folder / "model.safetensors");
    write_text(folder / file, kPointer);
    Words words{"generate", "--load", folder.path().string(), "--prompt", "3 4"};
    if (std::string(file) == "tokenizer.json")
      words = words +
              Words{"--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model", folder.path().string()};
    const Result result = run(colonnade(words));
    EXPECT_THAT(result.code, testing::AnyOf(2, 3)) << result.text;
    EXPECT_THAT(result.text,
                AllOf(HasSubstr(file), HasSubstr("got a Git LFS pointer"), HasSubstr("git lfs pull")));
  }
}

TEST(Folders, LfsPointersInPlaceOfDataAreReported) {
  const TempFolder folder;
  for (const char* name : {"d.idx", "d.bin", "text.jsonl"}) write_text(folder / name, kPointer);
  Words train = small_gpt() + Words{"--train-iters", "1", "--data-path", (folder / "d").string()};
  std::erase(train, "--mock-data");
  for (const Words& words : {train, Words{"preprocess", "--input", (folder / "text.jsonl").string(),
                                          "--output-prefix", (folder / "out").string(), "--tokenizer-type",
                                          "NullTokenizer", "--vocab-size", "100"}}) {
    const Result result = run(colonnade(words), {}, folder.path());
    EXPECT_EQ(result.code, 3) << result.text;
    EXPECT_THAT(result.text, AllOf(HasSubstr("got a Git LFS pointer"), HasSubstr("git lfs pull")));
  }
}

TEST(Folders, UnexpectedFilesForSettingsAreNamed) {
  const TempFolder folder;
  for (const auto& [text, says] : {std::pair{"[model]\nnum_layers = 2\n", "got a TOML or INI file"},
                                   std::pair{kPointer.c_str(), "got a Git LFS pointer"},
                                   std::pair{"<!DOCTYPE html><html></html>", "got an HTML page"}}) {
    write_text(folder / "run.yaml", text);
    const Result result = run(colonnade({"plan", "--config", (folder / "run.yaml").string()}));
    EXPECT_EQ(result.code, 2) << result.text;
    EXPECT_THAT(result.text, AllOf(HasSubstr("run.yaml"), HasSubstr(says)));
    const Result load =
        run(colonnade({"evaluate", "--load", (folder / "run.yaml").string(), "--tokens", "x"}));
    EXPECT_THAT(load.code, testing::AnyOf(2, 3)) << load.text;
    EXPECT_THAT(load.text, AllOf(HasSubstr("must be a folder"), HasSubstr(says)));
  }
}

TEST(Folders, BaseModelWithoutItsOutputLayerIsRejected) {
  const TempFolder folder;
  auto config = nlohmann::json::parse(read_text(kCases + "llama_base/config.json"));
  config["tie_word_embeddings"] = false;
  write_text(folder / "config.json", config.dump());
  write_text(folder / "model.safetensors", read_text(kCases + "llama_base/model.safetensors"));
  const Result result = run(colonnade(
      {"evaluate", "--load", folder.path().string(), "--tokens", kCases + "llama_base/in.safetensors"}));
  EXPECT_EQ(result.code, 3) << result.text;
  EXPECT_THAT(result.text,
              HasSubstr("got no lm_head.weight: the folder holds the base model without its output layer"));
}

}  // namespace
}  // namespace colonnade::e2e
