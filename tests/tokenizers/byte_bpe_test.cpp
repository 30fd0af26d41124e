// The fast path of byte-level BPE compared with plain merging, with a cold and a warm cache, and from many
// threads.
#include "colonnade/tokenizers/byte_bpe.h"

#include <gtest/gtest.h>

#include <thread>

#include "colonnade/tokenizers/tokenizer_json.h"
#include "support/files.h"

namespace colonnade::tokenizers {
namespace {

using Ids = std::vector<std::int32_t>;

/// Random words of all lengths, many of which share cache buckets.
std::string random_text(std::uint64_t seed) {
  std::string text;
  std::uint64_t state = seed;
  const auto next = [&state](std::uint64_t below) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (state >> 33) % below;
  };
  for (int word = 0; word < 20'000; ++word) {
    const std::uint64_t length = next(20) == 0 ? next(400) : 1 + next(18);
    for (std::uint64_t i = 0; i < length; ++i) {
      const std::uint64_t kind = next(30);
      text += kind == 0 ? "\xC3\xA9" : kind == 1 ? "\xE4\xB8\xAD" : std::string(1, "etaoinshrdlu"[next(12)]);
    }
    text += ' ';
  }
  return text;
}

/// The general path: word by word through the model.
Ids encode_slowly(const HfTokenizer& tokenizer, SplitPattern pattern, const std::string& text) {
  std::vector<Span> spans;
  split_by_pattern(pattern, text, spans);
  Ids ids;
  for (const Span& span : spans)
    tokenizer.components().model->encode(bytes_as_chars(text.substr(span.begin, span.end - span.begin)), ids);
  return ids;
}

TEST(ByteBpe, MatchesPlainMerging) {
  for (const auto& [name, pattern] :
       {std::pair{"gpt2_bpe", SplitPattern::kGpt2}, {"llama3_bpe", SplitPattern::kLlama3}}) {
    const auto tokenizer =
        read_tokenizer_json(test::vector_path(std::string("tokenizers/") + name + ".json"));
    for (const std::uint64_t seed : {1U, 2U, 1U}) {
      const std::string text = random_text(seed);
      EXPECT_TRUE(tokenizer->encode(text) == encode_slowly(*tokenizer, pattern, text)) << name << seed;
    }
    for (std::size_t size = 0; size < 40; ++size) {  // words at the end of an allocation
      const std::string text =
          std::string("the other text of an evening").substr(0, size % 28) + std::string(size / 28, ' ');
      const std::unique_ptr<char[]> exact(new char[text.size()]);
      std::copy(text.begin(), text.end(), exact.get());
      EXPECT_EQ(tokenizer->encode({exact.get(), text.size()}), encode_slowly(*tokenizer, pattern, text))
          << size;
    }
  }
}

TEST(ByteBpe, ThreadsEncodeConcurrently) {
  const auto tokenizer = read_tokenizer_json(test::vector_path("tokenizers/gpt2_bpe.json"));
  std::vector<std::string> texts;
  std::vector<Ids> alone, together(8);
  for (std::uint64_t i = 0; i < 8; ++i) {
    texts.push_back(random_text(i));
    alone.push_back(tokenizer->encode(texts.back()));
  }
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < 8; ++i)
      threads.emplace_back([&, i] { together[i] = tokenizer->encode(texts[i]); });
  }
  EXPECT_TRUE(alone == together);
}

}  // namespace
}  // namespace colonnade::tokenizers
