// Invalid settings, data, tokenizers and files: one clear message with a fix, exit code 2 or 3, and
// no partial files.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "program.h"
#include "support/vectors.h"

namespace colonnade::e2e {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::string kVectors = test::vectors();

std::size_t lines_of(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

/// A small GPT without data and tokenizer.
Words model() {
  return {"pretrain",
          "gpt",
          "--num-layers",
          "2",
          "--hidden-size",
          "64",
          "--num-attention-heads",
          "4",
          "--seq-length",
          "32",
          "--lr",
          "1e-3",
          "--train-iters",
          "2",
          "--max-position-embeddings",
          "32",
          "--micro-batch-size",
          "1",
          "--global-batch-size",
          "4",
          "--eval-iters",
          "0",
          "--save-interval",
          "2"};
}

/// Runs `words` with --save: expects exit code `code`, all of `parts` in at most `most_lines` lines, no run
/// folder.
void expect_rejected(const Words& words, int code, const std::vector<std::string>& parts,
                     std::size_t most_lines = 1) {
  const TempFolder folder;
  const Result result = run(colonnade(words + Words{"--save", (folder / "run").string()}), {}, folder.path());
  EXPECT_EQ(result.code, code) << result.text;
  for (const std::string& part : parts) EXPECT_THAT(result.text, HasSubstr(part));
  EXPECT_THAT(result.text, HasSubstr("error: "));
  EXPECT_THAT(result.text, Not(HasSubstr("terminate")));
  EXPECT_LE(lines_of(result.text), most_lines) << result.text;
  EXPECT_FALSE(fs::exists(folder / "run"));
  EXPECT_FALSE(fs::exists(folder / "runs"));
}

TEST(BadInput, ImpossibleSizesAreReportedTogether) {
  expect_rejected({"pretrain",
                   "gpt",
                   "--num-layers",
                   "3",
                   "--hidden-size",
                   "65",
                   "--num-attention-heads",
                   "4",
                   "--seq-length",
                   "32",
                   "--max-position-embeddings",
                   "16",
                   "--micro-batch-size",
                   "3",
                   "--global-batch-size",
                   "4",
                   "--lr",
                   "1e-3",
                   "--train-iters",
                   "2",
                   "--save-interval",
                   "2",
                   "--mock-data",
                   "--tokenizer-type",
                   "NullTokenizer",
                   "--vocab-size",
                   "128"},
                  2,
                  {"settings are wrong", "heads-hidden", "set --hidden-size 68", "[batch]",
                   "set --global-batch-size", "max-positions", "set --max-position-embeddings 32"},
                  10);
}

TEST(BadInput, LayoutsThatFitNeitherModelNorWorldAreReportedTogether) {
  expect_rejected(
      small_gpt() + Words{"--train-iters", "2", "--num-layers", "3", "--pipeline-model-parallel-size", "2",
                          "--tensor-model-parallel-size", "3"},
      2, {"settings are wrong", "heads-tensor", "pipeline-split", "[world]", "start 6 ranks"}, 10);
}

TEST(BadInput, UnknownAndConflictingFlags) {
  const Words good = small_gpt() + Words{"--train-iters", "2"};
  expect_rejected(good + Words{"--hiden-size", "64"}, 2, {"--hiden-size", "did you mean --hidden-size?"});
  expect_rejected(good + Words{"--bf16", "--fp16"}, 2, {"--bf16 and --fp16", "remove one"});
  expect_rejected(good + Words{"--train-samples", "64"}, 2,
                  {"--train-iters", "--train-samples", "remove one of them"}, 3);
  expect_rejected(good + Words{"--tensor-model-parallel-size", "2"}, 2,
                  {"must be a multiple of tensor", "start 2 ranks"});
  expect_rejected(good + Words{"--data-path", "somewhere"}, 2,
                  {"--data-path", "--mock-data", "remove all but one"});
  expect_rejected(good + Words{"--num-layers", "two"}, 2, {"--num-layers", "\"two\"", "integer"}, 3);
  expect_rejected(good + Words{"--num-layers"}, 2, {"--num-layers", "needs a value"}, 3);
  expect_rejected(good + Words{"--context-parallel-size", "2"}, 2, {"context"}, 3);
}

TEST(BadInput, BrokenYaml) {
  const TempFolder folder;
  const auto file = [&](const std::string& text) {
    write_text(folder / "run.yaml", text);
    return Words{"pretrain", "--config", (folder / "run.yaml").string()};
  };
  expect_rejected(file("num_layers: [1, 2\nhidden_size: 64\n"), 2,
                  {"run.yaml:", "must be YAML", "fix that line"});
  expect_rejected(file("- a\n- b\n"), 2, {"run.yaml", "key: value", "a list"});
  expect_rejected(file(std::string(4096, '\xff')), 2, {"run.yaml"});
  expect_rejected({"pretrain", "--config", (folder / "none.yaml").string()}, 2,
                  {"none.yaml", "No such file", "choose another"});
  expect_rejected({"pretrain", "--config", folder.path().string()}, 2, {"a folder", "name a file"});
  const Words good = small_gpt() + Words{"--train-iters", "2"};
  const auto also = [&](const std::string& text) {
    const Words words = file(text);
    return good + Words(words.begin() + 1, words.end());
  };
  expect_rejected(also("hiden_size: 4\n"), 2, {"run.yaml:1: hiden_size", "did you mean --hidden-size?"});
  expect_rejected(also("optimizer:\n  lr: 1\n"), 2, {"run.yaml:1: optimizer", "must be one value"});
  expect_rejected(also("clip_grad: much\n"), 2, {"run.yaml:1: clip_grad", "\"much\""});
  expect_rejected(also("seed: 1\nseed: 2\n"), 2, {"run.yaml:2: seed", "remove one"});
}

TEST(BadInput, UnreadableYamlFileIsTheOnlyFault) {
  const TempFolder folder;
  const fs::path file = folder / "run.yaml";
  write_text(file, "num_layers: [1, 2\n");
  for (const char* verb : {"pretrain", "evaluate", "generate", "plan"}) {
    const Result result = run(colonnade({verb, "--config", file.string()}));
    EXPECT_EQ(result.code, 2) << result.text;
    EXPECT_THAT(result.text, AllOf(HasSubstr("run.yaml:"), HasSubstr("must be YAML")));
    EXPECT_EQ(lines_of(result.text), 1U) << verb << " judges what the file may say: " << result.text;
  }
}

/// Data files for tests to damage: little-endian numbers, as on this machine.
class BadInputData : public testing::Test {
 protected:
  [[nodiscard]] Words words(const Words& more = {}) const {
    return model() + Words{"--tokenizer-type", "NullTokenizer", "--vocab-size", "1152",
                           "--split",          "1,0,0",         "--data-path",  (folder_ / "d").string()} +
           more;
  }
  void write(const std::string& idx, const std::string& bin) const {
    write_text(folder_ / "d.idx", idx);
    write_text(folder_ / "d.bin", bin);
  }
  void expect_files_refused(const std::string& idx, const std::string& bin,
                            const std::vector<std::string>& parts) const {
    write(idx, bin);
    expect_rejected(words(), 3, parts);
  }
  template <typename T>
  [[nodiscard]] std::string with(std::size_t at, T value) const {
    std::string idx = idx_;
    std::memcpy(idx.data() + at, &value, sizeof value);
    return idx;
  }
  [[nodiscard]] std::uint64_t sequences() const {
    std::uint64_t n;
    std::memcpy(&n, idx_.data() + 18, sizeof n);
    return n;
  }

  /// uint16 documents of `length` tokens 1, 2, 3, ...
  void make(int documents, int length) const {
    std::string idx("MMIDIDX\0\0\1\0\0\0\0\0\0\0\x08", 18), bin;
    const auto put = [](std::string& to, auto value) {
      to.append(reinterpret_cast<const char*>(&value), sizeof value);
    };
    put(idx, static_cast<std::uint64_t>(documents));
    put(idx, static_cast<std::uint64_t>(documents) + 1);
    for (int d = 0; d < documents; ++d) put(idx, static_cast<std::int32_t>(length));
    for (int d = 0; d < documents; ++d) put(idx, std::int64_t{2} * d * length);
    for (int d = 0; d <= documents; ++d) put(idx, static_cast<std::int64_t>(d));
    for (int t = 0; t < documents * length; ++t) put(bin, static_cast<std::uint16_t>(t % 1000 + 1));
    write(idx, bin);
  }

  TempFolder folder_;
  const std::string idx_ = read_text(kVectors + "/indexed/gpt_uint16.idx");
  const std::string bin_ = read_text(kVectors + "/indexed/gpt_uint16.bin");
};

TEST_F(BadInputData, MissingFiles) {
  expect_rejected(words(), 3, {"d.idx", "no such file", "colonnade preprocess"});
  write_text(folder_ / "d.idx", idx_);
  expect_rejected(words(), 3, {"d.bin", "no such file"});
}

TEST_F(BadInputData, FilesOfTheWrongLength) {
  expect_files_refused("", bin_, {"d.idx", "header", "copy it again"});
  expect_files_refused(idx_.substr(0, 20), bin_, {"d.idx", "truncated"});
  expect_files_refused(idx_.substr(0, idx_.size() / 2), bin_, {"d.idx", "truncated"});
  expect_files_refused(idx_ + "12345678", bin_, {"d.idx", "damaged or overwritten"});
  expect_files_refused(idx_, "", {"d.idx", "end of the .bin", "copy both again"});
  expect_files_refused(idx_, bin_.substr(0, bin_.size() - 2), {"d.idx", "truncated"});
  expect_files_refused(idx_, bin_ + "12", {"d.bin", "do not belong together"});
}

TEST_F(BadInputData, InconsistentIndex) {
  const std::size_t pointers = 34 + 4 * sequences();
  const std::size_t documents = pointers + 8 * sequences();
  expect_files_refused(with(0, 'X'), bin_, {"MMIDIDX"});
  expect_files_refused(with(9, std::uint64_t{2}), bin_, {"version must be 1", "got 2"});
  expect_files_refused(with(17, std::uint8_t{99}), bin_, {"type code", "99"});
  expect_files_refused(with(17, std::uint8_t{4}), bin_, {"tokens of 4 bytes"});
  expect_files_refused(with(18, std::uint64_t{1} << 62), bin_, {"impossibly many"});
  expect_files_refused(with(26, ~std::uint64_t{0}), bin_, {"impossibly many"});
  expect_files_refused(with(18, sequences() + 1), bin_, {"truncated"});
  expect_files_refused(with(34, std::int32_t{-5}), bin_, {"-5 tokens"});
  expect_files_refused(with(34, std::numeric_limits<std::int32_t>::max()), bin_, {"2147483647 tokens"});
  expect_files_refused(with(pointers + 8, std::int64_t{1} << 60), bin_, {"sequence 1"});
  expect_files_refused(with(pointers + 8, std::int64_t{-2}), bin_, {"byte -2"});
  expect_files_refused(with(documents + 8, std::int64_t{1} << 40), bin_, {"document starts must ascend"});
}

TEST_F(BadInputData, TooLittleForOneSample) {
  make(1, 3);
  expect_rejected(words(), 3, {"one sample of 33 tokens", "got 3 tokens", "lower --seq-length"});
  make(1, 32);
  expect_rejected(words(), 3, {"got 32 tokens"});
  make(0, 0);
  expect_rejected(words(), 3, {"got 0 tokens"});
}

TEST_F(BadInputData, ShortDocumentsAndFewTokensAreRepeatedWithANote) {
  make(12, 3);  // 36 tokens: one sample an epoch, 8 are asked for
  const Result result = run(colonnade(words({"--save", (folder_ / "run").string()})));
  EXPECT_EQ(result.code, 0) << result.text;
  EXPECT_EQ(iterations(folder_ / "run").size(), 2U);
  EXPECT_THAT(result.text,
              HasSubstr("has fewer tokens than the train samples require; it is read for 8 epochs"));
}

TEST_F(BadInputData, SplitsAndBlends) {
  make(40, 30);
  expect_rejected(words({"--split", "0,1,0"}), 2, {"training split", "got none", "--split"});
  expect_rejected(words({"--split", "a,b"}), 2, {"--split", "a,b", "969,30,1"}, 3);
  expect_rejected(words({"--split", "1,2,x", "--data-path", "0.3", (folder_ / "d").string(), "x"}), 2,
                  {"--split must be", "('x')", "come in pairs", "the number 0.3 among 3 words"}, 3);
  expect_rejected(words({"--data-path", "-1", (folder_ / "d").string(), "2", (folder_ / "d").string()}), 2,
                  {"weights must be above 0", "-1"});
}

TEST_F(BadInputData, TokenizerThatDoesNotFitTheData) {
  write(idx_, bin_);
  expect_rejected(words({"--vocab-size", "100"}), 3,
                  {"token ids must be 0 to 99", "another tokenizer", "--vocab-size"}, 3);
}

TEST(BadInput, MissingDamagedOrTooLargeTokenizers) {
  const TempFolder folder;
  const Words mock =
      model() + Words{"--mock-data", "--tokenizer-type", "SentencePieceTokenizer", "--tokenizer-model"};
  write_text(folder / "damaged.model", "no model");
  expect_rejected(mock + Words{(folder / "none.model").string()}, 3,
                  {"none.model", "no such file", "--tokenizer-model"});
  expect_rejected(mock + Words{(folder / "damaged.model").string()}, 3,
                  {"damaged.model", "SentencePiece", "tokenizer train"});
  expect_rejected(mock + Words{kVectors + "/tokenizers/sp_unigram.model", "--vocab-size", "100"}, 2,
                  {"2400 tokens", "--vocab-size 100"}, 3);
  expect_rejected(model() + Words{"--mock-data", "--tokenizer-type", "NullTokenizer"}, 2, {"--vocab-size"},
                  4);
}

TEST(BadInput, CheckpointThatDoesNotFit) {
  const TempFolder folder;
  const Words mock{"--mock-data", "--tokenizer-type", "NullTokenizer"};
  const Words llama = model() + mock + Words{"--pretrained-checkpoint", kVectors + "/trajectory/llama"};
  expect_rejected(llama + Words{"--num-layers", "3"}, 2, {"--num-layers", "3", "2", "config.json"}, 4);
  expect_rejected(llama + Words{"--vocab-size", "128"}, 2, {"vocab", "128", "1152"}, 4);
  expect_rejected(
      model() + mock + Words{"--vocab-size", "128", "--pretrained-checkpoint", (folder / "none").string()}, 3,
      {"none", "check the path"});
  expect_rejected(
      model() + mock +
          Words{"--vocab-size", "128", "--exit-on-missing-checkpoint", "--load", (folder / "none").string()},
      2, {"none", "--exit-on-missing-checkpoint"}, 2);
}

TEST(BadInput, TokenizerThatDoesNotFitTheCheckpoint) {
  const TempFolder folder;
  const std::string here = folder.path().string();
  ASSERT_EQ(
      run(colonnade(small_gpt() + Words{"--eval-iters", "0", "--train-iters", "2", "--save", here})).code, 0);
  const Words other{"--load",
                    here,
                    "--tokenizer-type",
                    "SentencePieceTokenizer",
                    "--tokenizer-model",
                    kVectors + "/tokenizers/sp_unigram.model"};
  for (const Words& verb : {Words{"evaluate"}, Words{"generate", "--prompt", "In"}}) {
    const Result result = run(colonnade(verb + other));
    EXPECT_EQ(result.code, 2) << result.text;
    EXPECT_THAT(result.text, AllOf(HasSubstr("2400 tokens"), HasSubstr("--vocab-size 128"),
                                   HasSubstr("choose another tokenizer")));
  }
}

TEST(BadInput, DamagedCheckpointsAreReportedAndNeverLoaded) {
  const TempFolder folder;
  const Words words = small_gpt() + Words{"--eval-iters",         "0",      "--save",
                                          folder.path().string(), "--load", folder.path().string()};
  ASSERT_EQ(run(colonnade(words + Words{"--train-iters", "4"})).code, 0);
  const auto damage = [&](const char* step) {
    const fs::path file = folder.path() / "checkpoints" / step / "model.safetensors";
    std::string bytes = read_text(file);
    bytes[bytes.size() / 2] ^= 1;
    write_text(file, bytes);
  };
  damage("step_00000004");
  const Result older = run(colonnade(words + Words{"--train-iters", "4"}));
  EXPECT_EQ(older.code, 0) << older.text;
  EXPECT_THAT(older.text, AllOf(HasSubstr("step_00000004"), HasSubstr("the run resumes after iteration 2")));
  damage("step_00000004");
  damage("step_00000002");
  const Result none = run(colonnade(words + Words{"--train-iters", "4"}));
  EXPECT_EQ(none.code, 3) << none.text;
  EXPECT_THAT(none.text, AllOf(HasSubstr("step_00000004"), HasSubstr("step_00000002")));
}

TEST(BadInput, NewRunInTheFolderOfAnother) {
  const TempFolder folder;
  const std::string here = folder.path().string(), other = (folder / "other").string();
  const Words words = small_gpt() + Words{"--eval-iters", "0", "--save", here};
  ASSERT_EQ(run(colonnade(words + Words{"--train-iters", "2"})).code, 0);
  for (const Words& more : {Words{}, Words{"--load", other}, Words{"--load", here, "--finetune"}}) {
    const Result refused =
        run(colonnade(words + more + Words{"--train-iters", "4", "--micro-batch-size", "3"}));
    EXPECT_EQ(refused.code, 2) << refused.text;
    const std::string way = more.empty() ? "add --load " + here + " to this command" : "write --load " + here;
    EXPECT_THAT(refused.text,
                AllOf(HasSubstr(here + " with checkpoints up to step 2"), HasSubstr(way + " and keep --save"),
                      HasSubstr("--global-batch-size must "), HasSubstr("[batch]")));  // all faults at once
  }
  EXPECT_EQ(iterations(folder.path()), (std::vector{1, 2}));
  const fs::path step = folder / "checkpoints/step_00000002";
  for (const std::string& load : {here, step.string()}) {
    const Result more = run(colonnade(words + Words{"--train-iters", "4", "--load", load}));
    EXPECT_EQ(more.code, 0) << more.text;
    EXPECT_EQ(iterations(folder.path()), (std::vector{1, 2, 3, 4}));
  }
}

TEST(BadInput, RecordsOfARunWithoutCheckpointsAreKept) {
  const TempFolder folder;
  const Words words =
      small_gpt() + Words{"--train-iters",   "3",  "--eval-iters", "0", "--save", folder.path().string(),
                          "--save-interval", "100"};
  const Result killed = run(colonnade(words), {{"COLONNADE_FAULT", "at=forward step=3"}});
  ASSERT_EQ(killed.code, 128 + 9) << killed.text;
  const Result again = run(colonnade(words));
  EXPECT_EQ(again.code, 0) << again.text;
  EXPECT_THAT(again.text, HasSubstr("renamed to " + (folder / "metrics.jsonl.1").string()));
  EXPECT_EQ(iterations(folder.path()), (std::vector{1, 2, 3}));
  EXPECT_EQ(lines_of(read_text(folder / "metrics.jsonl.1")), 2U);
}

TEST(BadInput, ImpossibleSaveFolder) {
  const TempFolder folder;
  write_text(folder / "file", "");
  const Words words = small_gpt() + Words{"--train-iters", "2"};
  for (const std::string& save :
       {(folder / "file").string(), (folder / "file").string() + "/run", std::string("/proc/run")}) {
    const Result result = run(colonnade(words + Words{"--save", save}));
    EXPECT_EQ(result.code, 2) << result.text;
    EXPECT_THAT(result.text, AllOf(HasSubstr("--save: the run folder must be writable"),
                                   HasSubstr("choose another folder")));
  }
  const Result ranks = run(launch(2, folder.path(), words + Words{"--save", (folder / "file").string()}));
  EXPECT_EQ(ranks.code, 2) << ranks.text;
}

/// A port on which this process listens.
class TakenPort {
 public:
  TakenPort() : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    socklen_t size = sizeof address;
    auto* const raw = reinterpret_cast<sockaddr*>(&address);
    if (::bind(fd_, raw, size) != 0 || ::listen(fd_, 8) != 0 || ::getsockname(fd_, raw, &size) != 0)
      throw std::runtime_error("no port");
    number_ = std::to_string(ntohs(address.sin_port));
  }
  ~TakenPort() { ::close(fd_); }
  TakenPort(const TakenPort&) = delete;
  TakenPort& operator=(const TakenPort&) = delete;
  [[nodiscard]] const std::string& number() const { return number_; }

 private:
  int fd_;
  std::string number_;
};

TEST(BadInput, ReadOnlyFolder) {
  const TempFolder folder;
  fs::permissions(folder.path(), fs::perms::owner_read | fs::perms::owner_exec);
  const Words words = small_gpt() + Words{"--train-iters", "2", "--save", (folder / "run").string()};
  const Result result = run(as_plain_user(colonnade(words)));
  EXPECT_EQ(result.code, 2) << result.text;
  EXPECT_THAT(result.text, AllOf(HasSubstr("--save: the run folder must be writable"),
                                 HasSubstr("Permission denied"), HasSubstr("choose another folder")));
  fs::permissions(folder.path(), fs::perms::owner_all);
}

TEST(BadInput, UnreadableFolder) {
  const TempFolder folder;
  for (const char* inside : {"a", "b/checkpoints"}) {
    const fs::path closed = folder / inside;
    fs::create_directories(closed);
    fs::permissions(closed, fs::perms::owner_read);
    const Words words = small_gpt() + Words{"--train-iters", "2",
                                            "--save",        (folder / "run").string(),
                                            "--load",        (folder / std::string(1, inside[0])).string()};
    const Result result = run(as_plain_user(colonnade(words)));
    EXPECT_EQ(result.code, 2) << result.text;
    EXPECT_THAT(result.text, AllOf(HasSubstr("--load: the folder must be readable"),
                                   HasSubstr("Permission denied"), HasSubstr("permissions")));
    EXPECT_FALSE(fs::exists(folder / "run"));
    fs::permissions(closed, fs::perms::owner_all);
  }
}

TEST(BadInput, PortInUse) {
  const TakenPort port;
  const TempFolder folder;
  const Words words = small_gpt() + Words{"--train-iters", "2", "--save", (folder / "run").string()};
  const Result result = run(launch(2, folder.path(), words, {"--master-port", port.number()}));
  EXPECT_EQ(result.code, 2) << result.text;
  EXPECT_THAT(result.text, AllOf(HasSubstr(port.number()), HasSubstr("MASTER_PORT")));
  EXPECT_FALSE(fs::exists(folder / "run"));
}

TEST(BadInput, RanksWithDifferentSettingsAreReported) {
  const TempFolder folder;
  const std::string script = "exec \"$0\" \"$@\" --seed $((7 + RANK / 2))";
  const Words words =
      Words{"/bin/bash", "-c", script, COLONNADE_EXECUTABLE} + small_gpt() +
      Words{"--train-iters", "2", "--tensor-model-parallel-size", "2", "--save", (folder / "run").string()};
  const Result result = run(launch(4, folder.path(), words));
  EXPECT_EQ(result.code, 2) << result.text;
  EXPECT_THAT(result.text, AllOf(HasSubstr("seed is '8' on rank 2 and '7' on rank 0"),
                                 HasSubstr("start all ranks with one command")));
  EXPECT_FALSE(fs::exists(folder / "run"));
}

}  // namespace
}  // namespace colonnade::e2e
