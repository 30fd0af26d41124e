// The small files in the step folders of a run.
#include "colonnade/job/step_files.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "checkpoint/fixtures.h"
#include "colonnade/base/files.h"
#include "colonnade/job/prepare.h"
#include "job/runs.h"
#include "support/vectors.h"

namespace colonnade::job {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::UnorderedElementsAre;

class StepFilesTest : public testing::Test {
 protected:
  static std::string vector_file(const std::string& name) { return test::vectors() + "/tokenizers/" + name; }
  [[nodiscard]] std::filesystem::path folder() const { return folder_.path(); }
  void write(const char* name, const std::string& text) const {
    write_file_atomically(folder() / name, text);
  }
  static StepFiles made(const std::string& flags, const checkpoint::CheckpointReader* source = nullptr) {
    const config::Run run = config::parse(test::words(flags));
    return step_files(run, tokenizer_of(run).get(), source);
  }
  static std::vector<std::string> names(const StepFiles& files) {
    std::vector<std::string> all;
    for (const auto& [name, bytes] : files.files) all.push_back(name);
    return all;
  }
  /// A published folder with a tokenizer.json, a chat template and several eos ids.
  [[nodiscard]] checkpoint::CheckpointReader source() const {
    const std::filesystem::path llama = test::vectors() + "/hf/llama";
    std::filesystem::copy_file(llama / "model.safetensors", folder() / "model.safetensors");
    json config = json::parse(read_file(llama / "config.json"));
    config["eos_token_id"] = {2, 3};
    write("config.json", config.dump());
    std::filesystem::copy_file(vector_file("qwen2_bpe.json"), folder() / "tokenizer.json");
    write("tokenizer_config.json", R"({"tokenizer_class": "PreTrainedTokenizerFast"})");
    write("chat_template.jinja", "{{ messages }}");
    write("generation_config.json", R"({"eos_token_id": [2, 3], "do_sample": true})");
    write("README.md", "not of a tokenizer");
    return checkpoint::CheckpointReader::open_hugging_face(folder());
  }
  checkpoint::test::TempFolder folder_;
};

TEST_F(StepFilesTest, RunWithoutATokenizerHasNone) {
  EXPECT_THAT(names(made("gpt")), ElementsAre());
  EXPECT_THAT(names(made("gpt --tokenizer-type NullTokenizer --vocab-size 9")), ElementsAre());
}

TEST_F(StepFilesTest, FilesHaveTheNamesThatTransformersReads) {
  const StepFiles pieces =
      made("gpt --tokenizer-type Llama2Tokenizer --tokenizer-model " + vector_file("llama2_sp_bpe.model"));
  EXPECT_EQ(pieces.files.at("tokenizer.model"), read_file(vector_file("llama2_sp_bpe.model")));
  EXPECT_EQ(pieces.copies, (json{{"tokenizer_model", "tokenizer.model"}}));
  const json config = json::parse(pieces.files.at("tokenizer_config.json"));
  EXPECT_EQ(config.at("tokenizer_class"), "SentencePieceBackend");
  EXPECT_EQ(config.at("eos_token"), "</s>");
  EXPECT_EQ(json::parse(pieces.files.at("generation_config.json")), (json{{"eos_token_id", 2}}));

  write("v.json", R"({"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3})");
  write("m.txt", "#version: 0.2\na b\n");
  const StepFiles gpt2 =
      made("gpt --tokenizer-type GPT2BPETokenizer --vocab-file " + (folder() / "v.json").string() +
           " --merge-file " + (folder() / "m.txt").string());
  EXPECT_THAT(names(gpt2), UnorderedElementsAre("vocab.json", "merges.txt", "tokenizer_config.json",
                                                "generation_config.json"));
  EXPECT_EQ(gpt2.copies, (json{{"vocab_file", "vocab.json"}, {"merge_file", "merges.txt"}}));
}

TEST_F(StepFilesTest, SourceWithTheSameTokenizerProvidesAllItsFiles) {
  const checkpoint::CheckpointReader from = source();
  const auto everything = UnorderedElementsAre("tokenizer.json", "tokenizer_config.json",
                                               "chat_template.jinja", "generation_config.json");
  for (const std::string& flags :
       {std::string("gpt"), std::string("gpt --tokenizer-type NullTokenizer --vocab-size 9"),
        "gpt --tokenizer-type HuggingFaceTokenizer --tokenizer-model " + folder().string(),
        "gpt --tokenizer-type HuggingFaceTokenizer --tokenizer-model " + vector_file("qwen2_bpe.json")}) {
    const StepFiles files = made(flags, &from);
    EXPECT_THAT(names(files), everything) << flags;
    EXPECT_EQ(files.files.at("generation_config.json"), read_file(folder() / "generation_config.json"))
        << flags;
    EXPECT_EQ(files.config_ids.at("eos_token_id"), (json{2, 3})) << flags;
  }
}

TEST_F(StepFilesTest, SourceWithAnotherTokenizerProvidesNothing) {
  const checkpoint::CheckpointReader from = source();
  const StepFiles files = made(
      "gpt --tokenizer-type HuggingFaceTokenizer --tokenizer-model " + vector_file("llama3_bpe.json"), &from);
  EXPECT_THAT(names(files),
              UnorderedElementsAre("tokenizer.json", "tokenizer_config.json", "generation_config.json"));
  EXPECT_EQ(files.files.at("tokenizer.json"), read_file(vector_file("llama3_bpe.json")));
  EXPECT_TRUE(files.config_ids.empty());
  EXPECT_TRUE(json::parse(files.files.at("generation_config.json")).at("eos_token_id").is_number());
}

TEST_F(StepFilesTest, ChatTemplateIsTheOneOfTheMessages) {
  const checkpoint::CheckpointReader from = source();
  write("mine.jinja", "{% for m in messages %}{{ m.content }}{% endfor %}");
  const StepFiles files =
      made("gpt --sft --tokenizer-type HuggingFaceTokenizer --tokenizer-model " + folder().string() +
               " --chat-template " + (folder() / "mine.jinja").string(),
           &from);
  EXPECT_EQ(files.files.at("chat_template.jinja"), read_file(folder() / "mine.jinja"));
  EXPECT_EQ(files.copies, (json{{"tokenizer_model", "."}, {"chat_template", "chat_template.jinja"}}));
}

}  // namespace
}  // namespace colonnade::job
