// The guide chapters on data and for users of Megatron: their commands, run one after the other.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <sstream>

#include "../support/recorded_curve.h"
#include "program.h"
#include "support/vectors.h"

namespace colonnade::e2e {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

const fs::path kVectors = test::vectors();

/// Writes a Hugging Face folder: a tokenizer.json of the vectors with more special tokens, and its end of
/// text.
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

/// Writes `count` documents of a few thousand words.
void write_books(const fs::path& path, int count) {
  std::ofstream file(path);
  for (int i = 0; i < count; ++i) {
    std::string text;
    for (int k = 0; k < 600; ++k)
      text += "The ship number " + std::to_string(i * 7 + k * k % 1000) + " waits for the sea. ";
    file << nlohmann::json{{"text", text}} << "\n";
  }
}

/// Writes BERT's vocabulary file, one line per id.
void write_bert_vocab(const fs::path& path) {
  const auto bert = nlohmann::json::parse(read_text(kVectors / "tokenizers/bert_wordpiece.json"));
  std::vector<std::string> words(bert["model"]["vocab"].size());
  for (const auto& [word, id] : bert["model"]["vocab"].items()) words.at(id) = word;
  std::ofstream vocab(path);
  for (const std::string& word : words) vocab << word << "\n";
}

/// Creates the files that data.md and tokenizers.md use.
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
  write_bert_vocab(folder / "vocab.txt");
}

/// Creates the datasets and the run that data.md uses without creating them.
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

TEST(Guides, DataCommandsWork) {
  const TempFolder folder;
  make_files_of_guides(folder);
  const Result result = shell(folder, kBeforeData + commands_of_guide("data.md"));
  ASSERT_EQ(result.code, 0) << result.text;
  EXPECT_THAT(result.text, HasSubstr("done: 16 documents"));
  EXPECT_THAT(result.text, HasSubstr("done: 2 data sets"));
  EXPECT_THAT(result.text, testing::Not(HasSubstr("does nothing")));
}

TEST(Guides, TokenizerCommandsWork) {
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
  EXPECT_THAT(result.text, HasSubstr("the run resumes after iteration 20"));
  EXPECT_THAT(result.text, HasSubstr("runs/texts: 60 steps, 240 samples"));
  EXPECT_THAT(result.text, HasSubstr("all 2 unchanged"));
  const auto lines = metrics(folder / "runs/texts");
  ASSERT_EQ(lines.size(), 60U);
  EXPECT_LT(lines.back().at("lm_loss"), 0.4 * lines.front().at("lm_loss").get<double>());
}

/// The code block of a page that starts with "```bash NAME".
std::string file_of_guide(const std::string& page, const std::string& name) {
  const std::string text = read_text(fs::path(COLONNADE_DOCS) / "guide" / page);
  const std::string fence = "```bash " + name + "\n";
  const std::size_t begin = text.find(fence) + fence.size();
  return text.substr(begin, text.find("```", begin) - begin);
}

/// Writes GPT-2's two tokenizer files, with the ids of the recorded data.
void write_gpt2_files(const TempFolder& folder) {
  const auto file = nlohmann::json::parse(read_text(kVectors / "tokenizers/gpt2_bpe.json"));
  auto vocab = file["model"]["vocab"];
  for (const auto& token : file["added_tokens"]) vocab[token["content"].get<std::string>()] = token["id"];
  write_text(folder / "gpt2-vocab.json", vocab.dump());
  std::ofstream merges(folder / "gpt2-merges.txt");
  merges << "#version: 0.2\n";
  for (const auto& merge : file["model"]["merges"])
    merges << merge[0].get<std::string>() << " " << merge[1].get<std::string>() << "\n";
}

/// Writes the recorded curve as lines of Megatron's training_log.
void write_megatron_log(const fs::path& path) {
  std::ofstream log(path);
  const auto recorded = test::recorded_curve("tp1", "llama");
  for (std::size_t i = 0; i < recorded.size(); ++i)
    log << fmt::format(
        " [2026-01-01 12:00:00.000000] iteration {:8d}/{:8d} | consumed samples: {:12d} | lm loss: {:.6E} | "
        "loss scale: 1.0 | grad norm: {:.3f} | number of skipped iterations:   0 |\n",
        i + 1, recorded.size(), 8 * (i + 1), recorded[i].loss, recorded[i].grad_norm);
}

const char* const kNestedYaml = R"(language_model:
  num_layers: 2
  hidden_size: 64
  num_attention_heads: 4
model_parallel:
  tensor_model_parallel_size: 2
  bf16: True
micro_batch_size: 2
global_batch_size: 8
seq_length: 64
max_position_embeddings: 64
vocab_size: 1152
)";

/// Stubs for Slurm: a job starts at once with the sizes of the test, and has two tasks on this machine.
const char* const kSbatch = R"(#!/bin/bash
while [[ $1 == -* ]]; do shift; done
exec bash "$1" $TRIAL
)";
const char* const kSrun = R"(#!/bin/bash
while [[ $1 == -* ]]; do shift; done
export SLURM_JOB_ID=4711 SLURM_STEP_ID=0 SLURM_NTASKS=2 SLURM_NTASKS_PER_NODE=2 SLURM_NNODES=1
export SLURM_JOB_NUM_NODES=1 SLURM_NODELIST=localhost SLURM_STEP_NODELIST=localhost
SLURM_PROCID=1 SLURM_LOCALID=1 "$@" &
SLURM_PROCID=0 SLURM_LOCALID=0 "$@" || exit
wait $!
)";

void write_script(const fs::path& path, const std::string& text) {
  write_text(path, text);
  fs::permissions(path, fs::perms::owner_all);
}

/// Creates the files of from_megatron.md: the script, tokenizer files, data, a nested YAML, launchers, the
/// sources.
void make_files_of_megatron(const TempFolder& folder) {
  write_text(folder / "train_gpt.sh", file_of_guide("from_megatron.md", "train_gpt.sh"));
  write_gpt2_files(folder);
  write_bert_vocab(folder / "bert-vocab.txt");
  for (const char* name : {"data", "runs", "tests"}) fs::create_directories(folder / name);
  for (const std::string end : {".bin", ".idx"})
    fs::copy_file(kVectors / ("indexed/gpt2_uint16" + end), folder / ("data/books_text_document" + end));
  write_text(folder / "gpt.yaml", kNestedYaml);
  fs::create_symlink(COLONNADE_PYTHON_BIN "/torchrun", folder / "torchrun");
  write_script(folder / "sbatch", kSbatch);
  write_script(folder / "srun", kSrun);
  fs::create_directory_symlink(fs::absolute(kVectors), folder / "tests/vectors");
  fs::create_directory_symlink(test::sources() + "/tools", folder / "tools");
  write_megatron_log(folder / "megatron.log");
  fs::create_directory_symlink("curve", folder / "runs/mine");
}

TEST(Guides, MegatronLaunchScriptRuns) {
  const TempFolder folder;
  make_files_of_megatron(folder);
  const std::string commands = commands_of_guide("from_megatron.md");
  for (const char* step : {"plan_gpt.sh", "--model bert", "--model t5", "--yaml-cfg", "sbatch"})
    ASSERT_THAT(commands, HasSubstr(step));
  const Result result = shell(folder, "export TRIAL MASTER_PORT=" + free_port() + "\n" + commands);
  ASSERT_EQ(result.code, 0) << result.text;
  EXPECT_THAT(result.text, HasSubstr("fits: "));
  EXPECT_THAT(result.text, HasSubstr("--async-save: saves are synchronous"));
  EXPECT_THAT(result.text, HasSubstr("fp32: 40 steps, "));
  EXPECT_THAT(result.text, HasSubstr("bf16: 40 steps, "));
  const auto by_torchrun = metrics(folder / "runs/trial");
  ASSERT_EQ(by_torchrun.size(), 4U);
  for (const char* name : {"runs/launched", "runs/gpt"}) {  // by the launcher, by srun
    SCOPED_TRACE(name);
    const auto lines = metrics(folder / name);
    ASSERT_EQ(lines.size(), by_torchrun.size());
    for (std::size_t i = 0; i < lines.size(); ++i)
      EXPECT_EQ(lines[i].at("lm_loss"), by_torchrun[i].at("lm_loss")) << i;
  }
}

TEST(Guides, UnsupportedMegatronFlagsAreRejectedByName) {
  const std::string page = read_text(fs::path(COLONNADE_DOCS) / "guide/from_megatron.md");
  const std::size_t begin = page.find("### Missing features");
  ASSERT_NE(begin, std::string::npos);
  const std::string section = page.substr(begin, page.find("\n## ", begin) - begin);
  static const std::regex kFlag("`(--[^`]*)`");
  Words flags, words;
  for (std::sregex_iterator at(section.begin(), section.end(), kFlag), end; at != end; ++at) {
    std::istringstream typed((*at)[1].str());
    for (std::string word; typed >> word;) {
      if (word.starts_with("--")) flags.push_back(word);
      words.push_back(word);
    }
  }
  ASSERT_GE(flags.size(), 29U);
  const Result result = run(colonnade({"plan", "--model", "gpt"}) + words);
  EXPECT_EQ(result.code, 2);
  for (const std::string& flag : flags)
    EXPECT_THAT(result.text, HasSubstr(flag + ": this version has no ")) << flag;
}

}  // namespace
}  // namespace colonnade::e2e
