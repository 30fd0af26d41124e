// See tokenizer.h: the choice of a tokenizer, and the one whose text is numbers.
#include "colonnade/data/tokenizer.h"

#include <charconv>
#include <filesystem>
#include <limits>

#include "colonnade/base/error.h"
#include "colonnade/data/sentencepiece_tokenizer.h"
#include "colonnade/data/tokenizers/hf_folder.h"
#include "colonnade/data/tokenizers/vocab_files.h"

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

namespace {

/// The path a flag gives, or a file of that name in the folder that --tokenizer-model gives, or that file
/// itself.
std::string file_for(const std::string& type, const char* flag, const std::string& given,
                     const std::string& model, const char* name) {
  if (!given.empty()) return given;
  if (std::filesystem::is_directory(model)) return (std::filesystem::path(model) / name).string();
  if (model.ends_with(".txt")) return model;
  throw ConfigError(fmt::format("{}: {} needs a {}; got none; give it, or its folder by --tokenizer-model",
                                flag, type, name));
}

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerOptions& o) {
  if (o.type == "NullTokenizer") return std::make_unique<NullTokenizer>(o.vocab_size);
  for (const char* type : {"SentencePieceTokenizer", "GPTSentencePieceTokenizer", "Llama2Tokenizer"})
    if (o.type == type) return load_sentencepiece(o.model);
  if (o.type == "HuggingFaceTokenizer") return load_hugging_face(o.model, o.special_in_documents);
  if (o.type == "GPT2BPETokenizer") {
    const std::string vocab = file_for(o.type, "--vocab-file", o.vocab_file, o.model, "vocab.json");
    return load_gpt2(vocab, file_for(o.type, "--merge-file", o.merge_file, o.model, "merges.txt"));
  }
  if (o.type == "BertWordPieceLowerCase" || o.type == "BertWordPieceCase")
    return load_bert(file_for(o.type, "--vocab-file", o.vocab_file, o.model, "vocab.txt"),
                     o.type == "BertWordPieceLowerCase");
  if (o.type == "TikTokenizer")
    return load_tiktoken(o.model, {o.tiktoken_pattern, o.tiktoken_num_special, o.vocab_size});
  throw ConfigError(fmt::format(
      "--tokenizer-type: must be HuggingFaceTokenizer, GPT2BPETokenizer, SentencePieceTokenizer, "
      "GPTSentencePieceTokenizer, Llama2Tokenizer, TikTokenizer, BertWordPieceLowerCase, BertWordPieceCase or "
      "NullTokenizer; got '{}'; choose one",
      o.type));
}

std::string tokenizer_file(const std::string& model) { return main_file_of(model); }

}  // namespace colonnade::data
