// The chapters of the guide on data: their commands, typed one after the other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "program.h"
#include "support/vectors.h"

namespace colonnade::e2e {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

const fs::path kVectors = test::vectors();

/// A folder of Hugging Face's: a tokenizer.json of the vectors with more special tokens, and its end of text.
void make_tokenizer_folder(const fs::path& folder, const std::string& name, const Words& special,
                           const std::string& eos) {
  fs::create_directories(folder);
  auto file = nlohmann::json::parse(read_text(kVectors / "tokenizers" / (name + ".json")));
  std::size_t next = file["model"]["vocab"].size() + file["added_tokens"].size();
  for (const std::string& token : special)
    file["added_tokens"].push_back({{"id", next++}, {"content", token}, {"special", true}});
  std::ofstream(folder / "tokenizer.json") << file;
  std::ofstream(folder / "tokenizer_config.json") << nlohmann::json{{"eos_token", eos}};
}

/// `count` documents of some thousand words.
void write_books(const fs::path& path, int count) {
  std::ofstream file(path);
  for (int i = 0; i < count; ++i) {
    std::string text;
    for (int k = 0; k < 600; ++k)
      text += "The ship number " + std::to_string(i * 7 + k * k % 1000) + " waits for the sea. ";
    file << nlohmann::json{{"text", text}} << "\n";
  }
}

/// What data.md and tokenizers.md name.
void make_files_of_guides(const TempFolder& folder) {
  make_tokenizer_folder(folder / "llama-3", "llama3_bpe", {}, "<|end_of_text|>");
  fs::copy_file(kVectors / "chat/templates/chatml.jinja", folder / "llama-3/chat_template.jinja");
  make_tokenizer_folder(folder / "starcoder", "gpt2_bpe",
                        {"<fim_prefix>", "<fim_middle>", "<fim_suffix>", "<fim_pad>"}, "<|endoftext|>");
  for (const char* name : {"books-1.jsonl.zst", "books-2.jsonl.zst", "code.jsonl", "books.jsonl"})
    write_books(folder / name, 8);
  for (const char* name : {"parts", "data", "chats", "t5"}) fs::create_directories(folder / name);
  for (const std::string name : {"a", "b"})
    for (const char* end : {".bin", ".idx"})
      fs::copy_file(kVectors / ("indexed/gpt_uint16" + std::string(end)), folder / ("parts/" + name + end));
  fs::copy_file(kVectors / "parquet/snappy.parquet", folder / "data/train-1.parquet");
  fs::copy_file(kVectors / "parquet/snappy.parquet", folder / "web-1.parquet");
  write_text(folder / "chats/a.jsonl",
             R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]})");
  fs::copy_file(kVectors / "tokenizers/sp_unigram.model", folder / "t5/spiece.model");
  fs::create_directories(folder / "nltk_data/tokenizers/punkt_tab");
  fs::create_directory_symlink(kVectors / "punkt", folder / "nltk_data/tokenizers/punkt_tab/english");
  const auto bert = nlohmann::json::parse(read_text(kVectors / "tokenizers/bert_wordpiece.json"));
  std::vector<std::string> words(bert["model"]["vocab"].size());
  for (const auto& [word, id] : bert["model"]["vocab"].items()) words.at(id) = word;
  std::ofstream vocab(folder / "vocab.txt");
  for (const std::string& word : words) vocab << word << "\n";
}

/// Data sets and a run that data.md names and does not make.
const char* const kBeforeData = R"(
export HOME=$PWD
colonnade preprocess --input code.jsonl --output-prefix code --append-eod \
    --tokenizer-type HuggingFaceTokenizer --tokenizer-model starcoder/
colonnade preprocess --input code.jsonl --output-prefix stories --split-sentences \
    --punkt-model nltk_data/tokenizers/punkt_tab/english \
    --tokenizer-type SentencePieceTokenizer --tokenizer-model t5/spiece.model
colonnade pretrain gpt --mock-data --vocab-size 100 --num-layers 1 --hidden-size 16 --num-attention-heads 2 \
    --seq-length 8 --max-position-embeddings 8 --micro-batch-size 512 --global-batch-size 1024 --train-iters 4 \
    --lr 1e-3 --eval-iters 0 --save runs/a --save-interval 4
colonnade preprocess --input books.jsonl --output-prefix other --append-eod \
    --tokenizer-type HuggingFaceTokenizer --tokenizer-model llama-3/
cat > model.yaml <<'END'
tokenizer-type: HuggingFaceTokenizer
tokenizer-model: llama-3/
num-layers: 1
hidden-size: 16
num-attention-heads: 2
seq-length: 32
max-position-embeddings: 32
micro-batch-size: 10
global-batch-size: 100
train-iters: 60
lr: 1e-3
attention-dropout: 0
hidden-dropout: 0
END
cp model.yaml run.yaml
cat >> run.yaml <<'END'
data-path: [1, books_text_document]
split: 80,10,10
eval-iters: 1
eval-interval: 60
END
)";

TEST(Guides, TheCommandsOnDataWork) {
  const TempFolder folder;
  make_files_of_guides(folder);
  const Result result = shell(folder, kBeforeData + commands_of_guide("data.md"));
  ASSERT_EQ(result.code, 0) << result.text;
  EXPECT_THAT(result.text, HasSubstr("done: 16 documents"));
  EXPECT_THAT(result.text, HasSubstr("done: 2 data sets"));
  EXPECT_THAT(result.text, testing::Not(HasSubstr("does nothing")));
}

TEST(Guides, TheCommandsOnTokenizersWork) {
  const TempFolder folder;
  make_files_of_guides(folder);
  std::string commands = commands_of_guide("tokenizers.md");
  for (std::size_t at = 0; (at = commands.find("32000", at)) != std::string::npos;)
    commands.replace(at, 5, "300");
  const Result result = shell(folder, commands);
  ASSERT_EQ(result.code, 0) << result.text;
  EXPECT_THAT(result.text, HasSubstr("wrote books.model with 300 pieces"));
  EXPECT_THAT(result.text, HasSubstr("wrote books.json with "));
}

TEST(Guides, FromAFolderOfTextToARun) {
  const TempFolder folder;
  const std::string commands = commands_of_guide("text_data.md");
  for (const char* step : {"tokenizer train", "colonnade preprocess", "data inspect", "pretrain gpt",
                           "--load", "evaluate", "generate", "data audit"})
    ASSERT_THAT(commands, HasSubstr(step));
  const Result result = shell(folder, commands);
  ASSERT_EQ(result.code, 0) << result.text;
  EXPECT_THAT(result.text, HasSubstr("done: 120 documents"));
  EXPECT_THAT(result.text, HasSubstr("the run goes on after iteration 20"));
  EXPECT_THAT(result.text, HasSubstr("runs/texts: 60 steps, 240 samples"));
  EXPECT_THAT(result.text, HasSubstr("all 2 unchanged"));
  const auto lines = metrics(folder / "runs/texts");
  ASSERT_EQ(lines.size(), 60U);
  EXPECT_LT(lines.back().at("lm_loss"), 0.4 * lines.front().at("lm_loss").get<double>());
}

}  // namespace
}  // namespace colonnade::e2e
