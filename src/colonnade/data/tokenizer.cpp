// See tokenizer.h: the choice of a tokenizer, and the one whose text is numbers.
#include "colonnade/data/tokenizer.h"

#include <charconv>
#include <limits>

#include "colonnade/base/error.h"
#include "colonnade/data/sentencepiece_tokenizer.h"

namespace colonnade::data {
namespace {

class NullTokenizer final : public Tokenizer {
 public:
  explicit NullTokenizer(std::int64_t vocab_size) : vocab_size_(vocab_size) {
    if (vocab_size < 1 || vocab_size > std::numeric_limits<std::int32_t>::max())
      throw ConfigError(fmt::format("NullTokenizer: needs --vocab-size between 1 and {}; got {}; give it",
                                    std::numeric_limits<std::int32_t>::max(), vocab_size));
  }

  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text) const override {
    constexpr std::string_view kSpace = " \t\r\n";
    std::vector<std::int32_t> ids;
    for (std::size_t at = text.find_first_not_of(kSpace); at != std::string_view::npos;
         at = text.find_first_not_of(kSpace, at)) {
      const std::string_view word = text.substr(at, text.find_first_of(kSpace, at) - at);
      std::int32_t id = 0;
      const auto [end, status] = std::from_chars(word.data(), word.data() + word.size(), id);
      if (status != std::errc() || end != word.data() + word.size() || id < 0 || id >= vocab_size_)
        throw DataError(fmt::format(
            "NullTokenizer: text must be integers from 0 to {} separated by spaces; got '{}'; use "
            "another --tokenizer-type or a larger --vocab-size",
            vocab_size_ - 1, word.substr(0, 40)));
      ids.push_back(id);
      at += word.size();
    }
    return ids;
  }

  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const override {
    std::string text;
    for (const std::int32_t id : ids) {
      if (id < 0 || id >= vocab_size_)
        throw DataError(fmt::format("NullTokenizer: ids are 0 to {}; got {}; use a larger --vocab-size",
                                    vocab_size_ - 1, id));
      if (!text.empty()) text.push_back(' ');
      text += std::to_string(id);
    }
    return text;
  }

  [[nodiscard]] std::int64_t vocab_size() const override { return vocab_size_; }
  [[nodiscard]] SpecialIds special() const override { return {}; }
  [[nodiscard]] std::int32_t eod() const override { return static_cast<std::int32_t>(vocab_size_ - 1); }

 private:
  std::int64_t vocab_size_;
};

}  // namespace

std::vector<std::int32_t> Tokenizer::encode_with_special(std::string_view text) const {
  std::vector<std::int32_t> ids = encode(text);
  const SpecialIds ends = special();
  if (ends.bos >= 0) ids.insert(ids.begin(), ends.bos);
  if (ends.eos >= 0) ids.push_back(ends.eos);
  return ids;
}

std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerOptions& options) {
  if (options.type == "NullTokenizer") return std::make_unique<NullTokenizer>(options.vocab_size);
  for (const char* type : {"SentencePieceTokenizer", "GPTSentencePieceTokenizer", "Llama2Tokenizer"})
    if (options.type == type) return load_sentencepiece(options.model);
  throw ConfigError(fmt::format(
      "--tokenizer-type: must be NullTokenizer, SentencePieceTokenizer, GPTSentencePieceTokenizer or "
      "Llama2Tokenizer; got '{}'; choose one",
      options.type));
}

}  // namespace colonnade::data
