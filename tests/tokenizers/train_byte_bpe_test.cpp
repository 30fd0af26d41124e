// Training of byte-level BPE: the order of merges, the resulting tokenizer, the input files and the memory.
#include "colonnade/tokenizers/train_byte_bpe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "colonnade/base/error.h"
#include "colonnade/preprocess/training_texts.h"
#include "colonnade/tokenizers/tokenizer.h"
#include "colonnade/tokenizers/tokenizer_json.h"
#include "support/files.h"
#include "tokenizers/training_texts.h"

namespace colonnade::tokenizers {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> all(const NextText& next) {
  std::vector<std::string> texts;
  while (const auto text = next()) texts.emplace_back(*text);
  return texts;
}

TEST(TrainByteBpe, MergesTheMostFrequentPairFirst) {
  const json file =
      json::parse(train_byte_bpe(stream_of({"abab cab", "ab"}), {.vocab_size = 259, .special_tokens = {}}));
  // "ab" occurs 4 times; then, of the pairs that occur once, the one with the smallest ids
  EXPECT_EQ(file["model"]["merges"][0], json::array({"a", "b"}));
  EXPECT_EQ(file["model"]["vocab"]["ab"], 256);
  EXPECT_EQ(file["model"]["merges"].size(), 3U);
  EXPECT_EQ(file["model"]["vocab"].size(), 259U);
}

TEST(TrainByteBpe, StopsAtRarePairsAndWithoutPairs) {
  EXPECT_EQ(json::parse(train_byte_bpe(stream_of({"ab"}), {.vocab_size = 1000}))["model"]["merges"].size(),
            1U);
  EXPECT_EQ(json::parse(train_byte_bpe(stream_of({"ab ab ab ac"}),
                                       {.vocab_size = 1000, .min_frequency = 2}))["model"]["merges"]
                .size(),
            2U)
      << "ab, then a space and ab";
  EXPECT_THROW((void)train_byte_bpe(stream_of({"ab"}), {.vocab_size = 256}), ConfigError);
  EXPECT_THROW((void)train_byte_bpe(stream_of({"\xff"}), {.vocab_size = 300}), DataError);
  EXPECT_THAT(test::message_of<DataError>([] {
                (void)train_byte_bpe(stream_of({"", ""}), {.vocab_size = 300});
              }),
              HasSubstr("must get text to train on; got none"));
}

TEST(TrainByteBpe, TrainedTokenizersAreLosslessAndDeterministic) {
  std::vector<std::string> texts;
  std::ifstream in(test::vector_path("indexed/corpus_gpt2.jsonl"));
  for (std::string line; std::getline(in, line);) texts.push_back(json::parse(line)["text"]);
  for (const SplitPattern pattern : {SplitPattern::kGpt2, SplitPattern::kO200k}) {
    const std::string file = train_byte_bpe(stream_of(texts), {.vocab_size = 700, .pattern = pattern});
    EXPECT_TRUE(file == train_byte_bpe(stream_of(texts), {.vocab_size = 700, .pattern = pattern}));
    const test::TempFolder folder;
    std::ofstream(folder / "tokenizer.json") << file;
    const auto tokenizer = read_tokenizer_json(folder / "tokenizer.json");
    EXPECT_EQ(tokenizer->vocab_size(), 700);
    EXPECT_EQ(tokenizer->id_of("<|endoftext|>"), 0);
    const std::string text = texts[3] + " \xE2\x82\xAC\n\n new";
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
    EXPECT_LT(tokenizer->encode(texts[0]).size(), texts[0].size() / 2);
  }
}

TEST(TrainingTexts, ComeFromJsonLinesAndTextFiles) {
  const test::TempFolder folder;
  std::ofstream(folder / "a.jsonl") << "{\"text\": \"one\"}\n\n{\"text\": [\"two\", \"2\"]}\n";
  std::ofstream(folder / "empty.jsonl") << "";
  std::ofstream(folder / "b.txt") << "three\nfour\n";
  EXPECT_THAT(
      all(preprocess::read_texts({folder / "a.jsonl", folder / "empty.jsonl", folder / "b.txt"}, "text")),
      ElementsAre("one", "two", "2", "three", "four"));
  std::ofstream(folder / "bad.jsonl") << "{\"text\": \"one\"}\n{\"tex\n";
  for (const auto& train : std::initializer_list<std::function<void(const NextText&)>>{
           [](const NextText& next) { (void)train_byte_bpe(next, {.vocab_size = 260}); },
           [](const NextText& next) { (void)train_sentencepiece(next, {.vocab_size = 400}); }})
    EXPECT_THAT(
        test::message_of<DataError>([&] { train(preprocess::read_texts({folder / "bad.jsonl"}, "text")); }),
        HasSubstr("bad.jsonl line 2 must be a JSON object"));
}

TEST(TrainingTexts, RejectALeadingByteOrderMark) {
  const test::TempFolder folder;
  for (const char* name : {"marked.txt", "marked.jsonl"}) {
    std::ofstream(folder / name) << "\xef\xbb\xbf{\"text\": \"one\"}\n";
    EXPECT_THAT(
        test::message_of<DataError>([&] { (void)all(preprocess::read_texts({folder / name}, "text")); }),
        testing::AllOf(HasSubstr(std::string(name) + " line 1 must be "),
                       HasSubstr("got a byte order mark (U+FEFF) before it; remove it with sed")));
  }
  std::ofstream(folder / "later.txt") << "one\n\xef\xbb\xbftwo\n";
  EXPECT_THAT(all(preprocess::read_texts({folder / "later.txt"}, "text")),
              ElementsAre("one", "\xef\xbb\xbftwo"))
      << "a character of the text";
}

/// KiB that `use` adds to the peak memory of a separate process; -1 if it fails.
std::int64_t peak_kib(const std::function<void()>& use) {
  int ends[2];
  if (::pipe(ends) != 0) return -1;
  const pid_t child = ::fork();
  if (child == 0) {
    rusage before{}, after{};
    ::getrusage(RUSAGE_SELF, &before);
    try {
      use();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      ::_exit(1);
    }
    ::getrusage(RUSAGE_SELF, &after);
    const std::int64_t more = after.ru_maxrss - before.ru_maxrss;
    ::_exit(::write(ends[1], &more, sizeof more) == sizeof more ? 0 : 1);
  }
  ::close(ends[1]);
  std::int64_t more = -1;
  if (::read(ends[0], &more, sizeof more) != sizeof more) more = -1;
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return more;
}

TEST(TrainingTexts, TrainingMemoryDoesNotGrowWithThem) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "freed memory stays resident here";
#endif
  const test::TempFolder folder;
  {
    std::ofstream out(folder / "in.jsonl");
    for (int line = 0; line < 60000; ++line) {
      out << R"({"text": ")";
      for (int word = 0; word < 50; ++word) out << (line * word) % 3000 << " words ";
      out << "\"}\n";
    }
  }
  EXPECT_GT(std::filesystem::file_size(folder / "in.jsonl"), 28'000'000);
  const auto texts = [&] { return preprocess::read_texts({folder / "in.jsonl"}, "text"); };
  const std::int64_t bytes =
      peak_kib([&] { (void)train_byte_bpe(texts(), {.vocab_size = 300, .pattern = SplitPattern::kQwen2}); });
  EXPECT_GT(bytes, 0);
  EXPECT_LT(bytes, 12'000);
  const std::int64_t pieces =
      peak_kib([&] { (void)train_sentencepiece(texts(), {.vocab_size = 280, .max_lines = 500}); });
  EXPECT_GT(pieces, 0);
  EXPECT_LT(pieces, 12'000);
}

}  // namespace
}  // namespace colonnade::tokenizers
