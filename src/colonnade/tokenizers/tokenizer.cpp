// See tokenizer.h: NullTokenizer and the factory of all tokenizers.
#include "colonnade/tokenizers/tokenizer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iterator>
#include <limits>
#include <vector>

#include "colonnade/base/error.h"
#include "colonnade/tokenizers/hf_folder.h"
#include "colonnade/tokenizers/sentencepiece_tokenizer.h"
#include "colonnade/tokenizers/vocab_files.h"

namespace colonnade::tokenizers {
namespace {

class NullTokenizer final : public Tokenizer {
 public:
  explicit NullTokenizer(std::int64_t vocab_size) : vocab_size_(vocab_size) {
    if (vocab_size < 1 || vocab_size > std::numeric_limits<std::int32_t>::max())
      throw ConfigError(fmt::format("--vocab-size must be 1 to {} for NullTokenizer; got {}; set it",
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
        throw DataError(fmt::format("NullTokenizer: ids must be 0 to {}; got {}; use a larger --vocab-size",
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
  const SpecialIds special_ids = special();
  if (special_ids.bos >= 0) ids.insert(ids.begin(), special_ids.bos);
  if (special_ids.eos >= 0) ids.push_back(special_ids.eos);
  return ids;
}

std::vector<std::int32_t> encode_prompt(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::int32_t> ids = tokenizer.encode(text);
  const std::vector<std::int32_t> with_bos = tokenizer.encode_with_bos(text);
  const auto inside = std::search(with_bos.begin(), with_bos.end(), ids.begin(), ids.end());
  if (ids.empty() || inside == with_bos.end()) return ids;
  const std::span<const std::int32_t> before(with_bos.begin(), inside);
  if (std::ranges::mismatch(before, ids).in1 != before.end())
    ids.insert(ids.begin(), before.begin(), before.end());
  return ids;
}

namespace {

/// The path of a file: the value of its flag, `name` in the folder --tokenizer-model, or a .txt file named
/// there.
std::string path_of(const std::string& type, const char* flag, const std::string& given,
                    const std::string& model, const char* name) {
  if (!given.empty()) return given;
  if (std::filesystem::is_directory(model)) return (std::filesystem::path(model) / name).string();
  if (model.ends_with(".txt")) return model;
  throw ConfigError(fmt::format(
      "{} must name a {} for {}; got none; give it, or its folder by --tokenizer-model", flag, name, type));
}

std::unique_ptr<Tokenizer> null_tokenizer(const TokenizerOptions& o) {
  return std::make_unique<NullTokenizer>(o.vocab_size);
}
std::unique_ptr<Tokenizer> sentencepiece(const TokenizerOptions& o) { return load_sentencepiece(o.model); }
std::unique_ptr<Tokenizer> hugging_face(const TokenizerOptions& o) {
  return load_hugging_face(o.model, o.special_in_documents);
}
std::unique_ptr<Tokenizer> gpt2(const TokenizerOptions& o) {
  const std::string vocab = path_of(o.type, "--vocab-file", o.vocab_file, o.model, "vocab.json");
  return load_gpt2(vocab, path_of(o.type, "--merge-file", o.merge_file, o.model, "merges.txt"));
}
std::unique_ptr<Tokenizer> bert(const TokenizerOptions& o) {
  return load_bert(path_of(o.type, "--vocab-file", o.vocab_file, o.model, "vocab.txt"),
                   o.type == "BertWordPieceLowerCase");
}
std::unique_ptr<Tokenizer> tiktoken(const TokenizerOptions& o) {
  return load_tiktoken(o.model, {o.tiktoken_pattern, o.tiktoken_num_special, o.vocab_size});
}

/// Options that not every type accepts.
enum Option : unsigned { kVocabSize = 1, kVocabFile = 2, kMergeFile = 4, kDocuments = 8, kTiktoken = 16 };

struct Type {
  const char* name;
  std::unique_ptr<Tokenizer> (*make)(const TokenizerOptions&);
  unsigned accepts = 0;
};
constexpr Type kTypes[] = {
    {"HuggingFaceTokenizer", hugging_face, kDocuments},
    {"GPT2BPETokenizer", gpt2, kVocabFile | kMergeFile},
    {"SentencePieceTokenizer", sentencepiece},
    {"GPTSentencePieceTokenizer", sentencepiece},
    {"Llama2Tokenizer", sentencepiece},
    {"TikTokenizer", tiktoken, kTiktoken | kVocabSize},
    {"BertWordPieceLowerCase", bert, kVocabFile},
    {"BertWordPieceCase", bert, kVocabFile},
    {"NullTokenizer", null_tokenizer, kVocabSize},
    {"SFTTokenizer", hugging_face, kDocuments},
};

std::string type_names(unsigned option) {
  std::vector<std::string_view> names;
  for (const Type& type : kTypes)
    if (option == 0 || (type.accepts & option) != 0) names.emplace_back(type.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

/// Throws ConfigError for an option that the type does not accept.
void check_options(const Type& type, const TokenizerOptions& o) {
  const struct {
    Option option;
    const char* flag;
    bool given;
    std::string value;
  } options[] = {
      {kVocabSize, "--vocab-size", o.vocab_size != 0, fmt::format("{}", o.vocab_size)},
      {kVocabFile, "--vocab-file", !o.vocab_file.empty(), o.vocab_file},
      {kMergeFile, "--merge-file", !o.merge_file.empty(), o.merge_file},
      {kDocuments, "--tokenizer-hf-no-include-special-tokens", !o.special_in_documents, "it"},
      {kTiktoken, "--tiktoken-pattern", !o.tiktoken_pattern.empty(), o.tiktoken_pattern},
      {kTiktoken, "--tiktoken-num-special-tokens", o.tiktoken_num_special != 1000,
       fmt::format("{}", o.tiktoken_num_special)},
  };
  for (const auto& [option, flag, given, value] : options)
    if (given && (type.accepts & option) == 0)
      throw ConfigError(fmt::format(
          "{} requires --tokenizer-type {}; got {} with {}; remove the flag, or change --tokenizer-type",
          flag, type_names(option), value, type.name));
}

const Type* type_of(std::string_view name) {
  const auto* type = std::ranges::find(kTypes, name, &Type::name);
  return type == std::end(kTypes) ? nullptr : type;
}

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerOptions& o) {
  const Type* type = type_of(o.type);
  if (type == nullptr)
    throw ConfigError(
        fmt::format("--tokenizer-type must be one of {}; got '{}'; choose one", type_names(0), o.type));
  check_options(*type, o);
  return type->make(o);
}

bool accepts_vocab_size(std::string_view name) {
  const Type* type = type_of(name);
  return type != nullptr && (type->accepts & kVocabSize) != 0;
}

std::string tokenizer_file(const std::string& model) { return main_file(model); }

}  // namespace colonnade::tokenizers
