// The tokenizer of a checkpoint or folder, and its copies when the original files are missing.
#include "colonnade/job/tokenizer_source.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "checkpoint/fixtures.h"
#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/config/dump.h"
#include "colonnade/job/prepare.h"
#include "colonnade/job/resume_policy.h"
#include "colonnade/tokenizers/tokenizer.h"
#include "job/runs.h"
#include "support/vectors.h"

namespace colonnade::job {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// A folder of a published Llama, to which tests add tokenizers.
class AdoptedTokenizer : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"config.json", "model.safetensors"})
      std::filesystem::copy_file(vectors() / "hf/llama" / name, folder() / name);
  }
  static std::filesystem::path vectors() { return test::vectors(); }
  [[nodiscard]] std::filesystem::path folder() const { return folder_.path(); }
  void add(const std::string& vector, const std::string& name) const {
    std::filesystem::copy_file(vectors() / "tokenizers" / vector, folder() / name);
  }
  /// Adds a tokenizer.json with `size` ids followed by `added` added tokens; the model has 320 ids.
  void add_json(int size = 300, int added = 0) const {
    json vocabulary, behind = json::array();
    for (int id = 0; id < size; ++id) vocabulary[fmt::format("t{}", id)] = id;
    for (int id = size; id < size + added; ++id)
      behind.push_back({{"id", id},
                        {"content", fmt::format("<a{}>", id)},
                        {"single_word", false},
                        {"lstrip", false},
                        {"rstrip", false},
                        {"normalized", false},
                        {"special", true}});
    write_file_atomically(folder() / "tokenizer.json",
                          json{{"added_tokens", behind},
                               {"model", {{"type", "WordLevel"}, {"vocab", vocabulary}, {"unk_token", "t0"}}}}
                              .dump());
  }
  [[nodiscard]] config::Run adopted(const std::string& flags = "") const {
    config::Run run = config::parse(test::words("gpt " + flags));
    adopt_tokenizer(run, checkpoint::CheckpointReader::open_hugging_face(folder()));
    return run;
  }
  checkpoint::test::TempFolder folder_;
};

TEST_F(AdoptedTokenizer, FolderProvidesItsOwnUnlessOneIsNamed) {
  EXPECT_EQ(adopted().data.tokenizer_type, "");
  add_json();
  const config::Run run = adopted();
  EXPECT_EQ(run.data.tokenizer_type, "HuggingFaceTokenizer");
  EXPECT_EQ(run.data.tokenizer_model, folder().string());
  EXPECT_THAT(run.notes, ElementsAre(AllOf(HasSubstr("HuggingFaceTokenizer of " + folder().string()),
                                           HasSubstr("--tokenizer-type"))));
  EXPECT_EQ(adopted("--tokenizer-type NullTokenizer").data.tokenizer_type, "NullTokenizer");
  EXPECT_EQ(adopted("--tokenizer-model x").data.tokenizer_type, "");
  EXPECT_EQ(adopted("--mock-data").data.tokenizer_type, "") << "no text is read";
}

TEST_F(AdoptedTokenizer, FolderTokenizerIsIgnoredOrReplacesTheNamedOneOnRequest) {
  add_json();
  EXPECT_EQ(adopted("--no-use-tokenizer-model-from-checkpoint-args").data.tokenizer_type, "");
  const config::Run run =
      adopted("--use-checkpoint-args --tokenizer-type GPT2BPETokenizer --vocab-file v --merge-file m");
  EXPECT_EQ(run.data.tokenizer_type, "HuggingFaceTokenizer");
  EXPECT_EQ(run.data.tokenizer_model, folder().string());
  EXPECT_EQ(run.data.vocab_file + run.data.merge_file, "");
  EXPECT_THAT(run.notes, Contains(AllOf(HasSubstr("--tokenizer-type: --use-checkpoint-args takes "),
                                        HasSubstr("got GPT2BPETokenizer from the command line"))));
  EXPECT_EQ(adopted("--use-checkpoint-args --no-use-tokenizer-model-from-checkpoint-args "
                    "--tokenizer-type NullTokenizer")
                .data.tokenizer_type,
            "NullTokenizer");
}

TEST_F(AdoptedTokenizer, UnreadableFilesAreReported) {
  add("llama2_sp_bpe.model", "tokenizer.model");
  EXPECT_EQ(adopted().data.tokenizer_type, "SentencePieceTokenizer");
  write_file_atomically(folder() / "added_tokens.json", R"({"<|im_end|>": 2048})");
  const config::Run run = adopted();
  EXPECT_EQ(run.data.tokenizer_type, "");
  EXPECT_THAT(run.notes,
              ElementsAre(AllOf(HasSubstr("its tokenizer cannot be read"), HasSubstr("<|im_end|>"))));
}

TEST_F(AdoptedTokenizer, MismatchReportsHowToNameAnother) {
  const auto prepared = [&](const std::string& flags = "--data-path x") -> std::string {
    config::Run run =
        config::parse(test::words("gpt --pretrained-checkpoint " + folder().string() +
                                  " --seq-length 32 --micro-batch-size 1 --train-iters 1 --lr 1 " + flags));
    try {
      prepare(run, rules::Purpose::kTrain);
    } catch (const Error& error) {
      return error.what();
    }
    return run.data.tokenizer_type;
  };
  add_json(330);
  EXPECT_THAT(prepared(), AllOf(HasSubstr("330 tokens in " + folder().string()),
                                HasSubstr("choose another tokenizer with --tokenizer-type")));
  write_file_atomically(folder() / "tokenizer.json", "{");
  EXPECT_THAT(prepared(),
              AllOf(HasSubstr("tokenizer.json"), HasSubstr("--tokenizer-type NullTokenizer for ids")));
  EXPECT_EQ(prepared("--data-path x --tokenizer-type NullTokenizer"), "NullTokenizer");
  EXPECT_EQ(prepared("--mock-data"), "");
}

TEST_F(AdoptedTokenizer, AddedTokensWithoutEmbeddingsAreReported) {
  add_json(320, 2);
  config::Run run = config::parse(test::words("gpt --pretrained-checkpoint " + folder().string() +
                                              " --seq-length 32 --micro-batch-size 1 --train-iters 1 --lr 1 "
                                              "--data-path x"));
  prepare(run, rules::Purpose::kTrain);
  EXPECT_THAT(run.notes, Contains(AllOf(HasSubstr("ids from 320 to 321"), HasSubstr("without embeddings"))));
  EXPECT_EQ(run.model.vocab_size, 320);
}

TEST_F(AdoptedTokenizer, PromptsWithoutATokenizerAreIds) {
  write_file_atomically(folder() / "tekken.json", "{}");
  config::Run run = adopted("--pretrained-checkpoint " + folder().string());
  EXPECT_EQ(run.data.tokenizer_type, "");
  const auto ids_alone = tokenizers::make_tokenizer({.type = "NullTokenizer", .vocab_size = 64});
  EXPECT_THAT(prompt_ids(run, *ids_alone, "5 6 63"), ElementsAre(5, 6, 63));
  const auto fault = [&](const std::string& text) -> std::string {
    try {
      (void)prompt_ids(run, *ids_alone, text);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(fault("the quick"), AllOf(HasSubstr("ids from 0 to 63"), HasSubstr("got 'the quick'"),
                                        HasSubstr(folder().string() + " holds no readable tokenizer"),
                                        HasSubstr("--tokenizer-type and --tokenizer-model")));
  EXPECT_THAT(fault("64"), HasSubstr("text must be integers from 0 to 63"));
  run.data.tokenizer_type = "NullTokenizer";
  EXPECT_THAT(fault("the quick"), HasSubstr("NullTokenizer: text must be integers from 0 to 63"));
}

TEST_F(AdoptedTokenizer, CopiesReplaceMissingFiles) {
  const checkpoint::test::TempFolder step;
  add("sp_unigram.model", "t.model");
  std::filesystem::copy_file(folder() / "t.model", step.path() / "tokenizer.model");
  const config::Run was = config::parse(test::words(
      "gpt --tokenizer-type SentencePieceTokenizer --tokenizer-model " + (folder() / "t.model").string()));
  const json state{{"settings", config::values(was)},
                   {"tokenizer", tokenizer_state(was, tokenizer_of(was).get())},
                   {"tokenizer_files", {{"tokenizer_model", "tokenizer.model"}}}};
  const auto resumed = [&](const json& from, const std::string& flags = "") {
    config::Run run = config::parse(test::words("gpt " + flags));
    std::vector<std::string> faults;
    resume_settings(run, from, step.path().string(), faults);
    EXPECT_THAT(faults, IsEmpty());
    return run;
  };
  const std::string original = was.data.tokenizer_model, copy = (step.path() / "tokenizer.model").string();
  EXPECT_EQ(resumed(state).data.tokenizer_model, original);
  write_file_atomically(original, read_file(original) + std::string("\xa0\x06\x01", 3));
  EXPECT_EQ(resumed(state).data.tokenizer_model, copy);
  std::filesystem::remove(original);
  const config::Run run = resumed(state);
  EXPECT_EQ(run.data.tokenizer_model, copy);
  EXPECT_THAT(run.notes, ElementsAre(HasSubstr("their copies in " + step.path().string() + " are read")));
  EXPECT_EQ(resumed(state, "--tokenizer-type SentencePieceTokenizer --tokenizer-model " + copy).notes.size(),
            0U);
  const std::string by_file = "--tokenizer-type SentencePieceTokenizer --tokenizer-model " + original;
  EXPECT_EQ(resumed(state, by_file).data.tokenizer_model, copy) << "as config.yaml of the run names it";
  json malicious = state;
  malicious["tokenizer_files"]["tokenizer_model"] = "../secret";
  EXPECT_THROW(resumed(malicious), DataError);
}

}  // namespace
}  // namespace colonnade::job
