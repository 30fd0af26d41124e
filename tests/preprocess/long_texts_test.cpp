// Long texts: block-wise encoding gives the same ids, in bounded memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <random>

#include "colonnade/base/error.h"
#include "colonnade/preprocess/preprocess.h"
#include "support/files.h"
#include "support/long.h"

namespace colonnade::tokenizers {
namespace {

using ::testing::HasSubstr;

std::string repeated(std::string_view text, std::size_t count) {
  std::string all;
  all.reserve(text.size() * count);
  for (std::size_t i = 0; i < count; ++i) all += text;
  return all;
}

std::unique_ptr<Tokenizer> tokenizer_of(const std::string& file) {
  const bool pieces = file.ends_with(".model");
  return make_tokenizer({.type = pieces ? "SentencePieceTokenizer" : "HuggingFaceTokenizer",
                         .model = test::vector_path("tokenizers/" + file)});
}

class LongTexts : public ::testing::TestWithParam<std::string> {};

// Long texts are encoded in blocks: wherever these end, the ids are those of the single words.
TEST_P(LongTexts, HaveTheIdsOfTheirWords) {
  const auto tokenizer = tokenizer_of(GetParam());
  std::mt19937 random(1);
  const std::vector<std::string> words{"the",  "sea",    "a",     "Wörter",          "ﬁne",
                                       "x1,5", "日本語", "naïve", "\xf0\x9f\x98\x80"};
  std::string text;
  std::vector<std::int32_t> expected;
  while (text.size() < 300'000) {
    const std::string& word = words[random() % words.size()];
    text += (text.empty() ? "" : " ") + word;
    const auto ids = tokenizer->encode(word);
    expected.insert(expected.end(), ids.begin(), ids.end());
  }
  EXPECT_TRUE(tokenizer->encode(text) == expected);
}
INSTANTIATE_TEST_SUITE_P(Of, LongTexts,
                         ::testing::Values("sp_unigram.model", "llama2_sp_bpe.model", "t5_unigram.json",
                                           "bert_wordpiece.json"),
                         [](const auto& info) { return info.param.substr(0, info.param.find('.')); });

// Line ends end words in some models and are split positions in others; decoding restores the text.
TEST(LongTextsOfSentencePiece, WithoutSpacesRoundTrip) {
  const auto tokenizer = tokenizer_of("llama2_sp_bpe.model");
  const std::string lines = repeated("eine Zeile\n日本語のテキスト\n\n", 20'000);
  EXPECT_TRUE(tokenizer->decode(tokenizer->encode(lines)) == lines);
  const auto unigram = tokenizer_of("sp_unigram.model");
  const std::string run(200'000, 'a');
  EXPECT_EQ(unigram->decode(unigram->encode(run)), run);
}

TEST(LongTextsOfSentencePiece, AreRejectedIfTheyCannotBeSplitAndGrow) {
  const auto tokenizer = tokenizer_of("sp_unigram.model");
  EXPECT_THAT(
      test::message_of<DataError>([&] { (void)tokenizer->encode(repeated("\xef\xb7\xba", 100'000)); }),
      HasSubstr(
          "text without a boundary to split at, such as a space, must have at most 2097152 bytes once it is "
          "normalized; got 3300000; split the document"));
}

/// Peak memory in MiB of a process that preprocesses the texts, one per line; -1 if it failed.
std::int64_t peak_memory(const std::string& tokenizer, const std::vector<std::string>& texts, int workers) {
  const test::TempFolder folder;
  {
    std::ofstream file(folder / "in.jsonl");
    for (const std::string& text : texts) file << R"({"text": ")" << text << "\"}\n";
  }
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      const auto own = tokenizer_of(tokenizer);
      preprocess::preprocess(
          {.inputs = {folder / "in.jsonl"}, .output_prefix = folder / "out", .workers = workers}, *own);
    } catch (const Error&) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  int status = 0;
  rusage usage{};
  ::wait4(child, &status, 0, &usage);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? static_cast<std::int64_t>(usage.ru_maxrss) >> 10
                                                       : -1;
}

// Each case used more than 1 GB once. In the full family texts have the size of the default
// --max-document-mb, or just less; otherwise a quarter, which needed more than a quarter of that.
TEST(LongTextsMemory, StaysBelowOneGigabyte) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need additional memory";
#endif
  const bool whole = test::full_families();
  const std::size_t part = whole ? 1 : 4, size = 16'500'000 / part;
  const std::int64_t most = whole ? 700 : 270, most_of_merges = whole ? 900 : 300;
  const auto expect_less = [](std::int64_t limit, const std::string& tokenizer,
                              const std::vector<std::string>& texts, int workers = 2) {
    const std::int64_t memory = peak_memory(tokenizer, texts, workers);
    EXPECT_GT(memory, 0);
    EXPECT_LT(memory, limit) << "MiB of " << tokenizer << " with " << texts[0].substr(0, 9);
  };
  const std::string letters(size, 'a'), ligatures = repeated("\xef\xb7\xba", size / 3),
                                        alone = repeated("a b c ", size / 6);
  expect_less(most, "t5_unigram.json", {ligatures});
  expect_less(most, "t5_unigram.json", {letters});
  expect_less(most, "t5_unigram.json", {alone, alone});
  expect_less(most, "bert_wordpiece.json", {alone});
  expect_less(most, "sp_unigram.model", {letters});
  expect_less(most, "llama2_sp_bpe.model", {alone});
  expect_less(most_of_merges, "llama2_sp_bpe.model", {std::string(2'000'000 / part, 'a')});
  // Short texts that grow by normalization: each needs little, and not all are encoded at once.
  const std::vector<std::string> grow(32, repeated("\xef\xb7\xba", 20'000 / part));
  expect_less(most_of_merges, "sp_unigram.model", grow, 16);
}

}  // namespace
}  // namespace colonnade::tokenizers
