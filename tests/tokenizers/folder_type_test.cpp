// Detection of the tokenizer in a folder, and the reasons for rejecting it.
#include "colonnade/tokenizers/folder_type.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "colonnade/base/files.h"
#include "support/files.h"

namespace colonnade::tokenizers {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class FolderTypeTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("folder_type_test_{}", ::getpid());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  void write(const char* name, const std::string& text) const { write_file_atomically(folder_ / name, text); }
  void copy(const std::string& vector, const char* name) const {
    fs::copy_file(test::vector_path("tokenizers/" + vector), folder_ / name);
  }
  [[nodiscard]] FolderType found(const std::string& model_type = "") const {
    return detect_tokenizer(folder_, model_type);
  }
  fs::path folder_;
};

TEST_F(FolderTypeTest, TokenizerJsonTakesPrecedence) {
  EXPECT_EQ(found("llama").type + found("llama").reason, "");
  write("tokenizer.model", "x");
  write("tokenizer.json", "x");
  EXPECT_EQ(found("llama").type, "HuggingFaceTokenizer");
}

TEST_F(FolderTypeTest, OtherFilesRequireAMatchingClass) {
  copy("llama2_sp_bpe.model", "tokenizer.model");
  EXPECT_EQ(found("llama").type, "SentencePieceTokenizer");
  EXPECT_THAT(found("xglm").reason,
              HasSubstr("no --tokenizer-type reads tokenizer.model as the tokenizer of xglm"));
  write("tokenizer_config.json", R"({"tokenizer_class": "LlamaTokenizerFast"})");
  EXPECT_EQ(found("xglm").type, "SentencePieceTokenizer");
  write("tokenizer_config.json", R"({"tokenizer_class": "XGLMTokenizer"})");
  EXPECT_THAT(found("llama").reason, HasSubstr("as XGLMTokenizer does"));
}

TEST_F(FolderTypeTest, RejectsFilesThatLackAddedTokens) {
  copy("llama2_sp_bpe.model", "tokenizer.model");
  write("tokenizer_config.json",
        R"({"tokenizer_class": "LlamaTokenizer", "added_tokens_decoder": {"1": {"content": "<s>"}}})");
  EXPECT_EQ(found().type, "SentencePieceTokenizer");
  write("added_tokens.json", R"({"<|im_end|>": 32000})");
  EXPECT_EQ(found().type, "");
  EXPECT_THAT(found().reason, HasSubstr("'<|im_end|>', which tokenizer.model cannot hold"));
}

TEST_F(FolderTypeTest, WordPieceRequiresLowerCase) {
  write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n");
  EXPECT_EQ(found("bert").type, "BertWordPieceLowerCase");
  write("tokenizer_config.json", R"({"do_lower_case": false})");
  EXPECT_THAT(found("bert").reason, HasSubstr("do_lower_case is false"));
}

TEST_F(FolderTypeTest, DamagedFilesGiveAReasonInsteadOfAnError) {
  write("tokenizer.model", "version https://git-lfs.github.com/spec/v1\n");
  EXPECT_THAT(found("llama").reason, HasSubstr("got a Git LFS pointer"));
  write("tokenizer_config.json", "{");
  EXPECT_THAT(found("llama").reason, HasSubstr("tokenizer_config.json"));
}

}  // namespace
}  // namespace colonnade::tokenizers
