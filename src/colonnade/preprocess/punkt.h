// Sentence splitting with Punkt (Kiss and Strunk, "Unsupervised Multilingual Sentence Boundary Detection",
// Computational Linguistics 32, 2006), with a model in NLTK's punkt_tab format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace colonnade::preprocess {

class Punkt {
 public:
  /// `folder` holds abbrev_types.txt, collocations.tab, sent_starters.txt and ortho_context.tab. Throws
  /// DataError if one is missing or malformed. With `keep_newlines` sentences include their trailing white
  /// space, as with Megatron's --keep-newlines.
  Punkt(const std::filesystem::path& folder, bool keep_newlines);

  /// The sentences of NLTK 3.10's PunktSentenceTokenizer as views into `text` (UTF-8), applied to blocks of a
  /// million characters as in Megatron's preprocess_data.py. Thread-safe.
  [[nodiscard]] std::vector<std::string_view> split(std::string_view text) const;

 private:
  struct Token;
  struct Break;
  struct Slice;

  [[nodiscard]] std::vector<Slice> slices(std::u32string_view text) const;
  [[nodiscard]] std::vector<Break> candidates(std::u32string_view text) const;
  static std::vector<Break> candidates_before_space(std::u32string_view text);
  static std::vector<Break> candidates_with_space(std::u32string_view text);
  static Break break_at(std::u32string_view text, std::size_t begin, std::size_t end, std::size_t after,
                        std::size_t next);
  static std::size_t closing_marks(std::u32string_view text, const Slice& next);
  void split_block(std::u32string_view text, const std::function<void(std::size_t, std::size_t)>& add) const;
  [[nodiscard]] bool contains_break(std::u32string_view context) const;
  [[nodiscard]] Token annotate(std::u32string_view text) const;
  void annotate_with_next(Token& token, const Token& next) const;
  [[nodiscard]] std::uint32_t cases_of(const std::string& type) const;

  bool keep_newlines_;
  std::unordered_set<std::string> abbreviations_, starters_, collocations_;  // collocations: "first\tsecond"
  std::unordered_map<std::string, std::uint32_t> cases_;
};

}  // namespace colonnade::preprocess
