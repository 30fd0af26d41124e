// Texts and their ids, and the longest-match tree over texts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace colonnade::tokenizers {

/// A fast hash of bytes, the same on every machine.
[[nodiscard]] std::uint64_t hash_bytes(std::string_view bytes);

/// What becomes of a text that comes again with another id.
enum class Twice : std::uint8_t { kRefused, kLastCounts };

/// Texts with ids from 0 on, not all of which need to be taken.
class Vocabulary {
 public:
  Vocabulary() = default;
  /// Throws DataError, with `where` in front, for two texts with one id, a text twice unless its last id is
  /// to count (the others give the text too), one of more than 4096 bytes, texts of more than 8 MiB together,
  /// and an id outside of 0 to 2^24 or more than twice the number of texts + 65536.
  Vocabulary(const std::vector<std::pair<std::string_view, std::int64_t>>& tokens, const std::string& where,
             Twice twice = Twice::kRefused);

  [[nodiscard]] std::int32_t id_of(std::string_view text) const;  ///< -1: none
  /// The text of an id; nullopt: nothing has it.
  [[nodiscard]] std::optional<std::string_view> text_of(std::int32_t id) const;
  [[nodiscard]] std::size_t size() const { return size_; }  ///< texts
  [[nodiscard]] std::int64_t end() const {
    return static_cast<std::int64_t>(places_.size());
  }                                                               ///< largest id + 1
  [[nodiscard]] std::size_t longest() const { return longest_; }  ///< bytes

 private:
  struct Place {
    std::size_t offset = 0;
    std::int64_t length = -1;  ///< -1: no text
  };
  std::string bytes_;
  std::vector<Place> places_;        ///< by id
  std::vector<std::int32_t> slots_;  ///< by hash; -1: empty
  std::size_t size_ = 0, longest_ = 0;
};

/// A tree over byte strings, each with a number.
class ByteTree {
 public:
  /// Later numbers replace earlier ones of the same text. Empty texts are left out.
  void add(std::string_view text, std::int32_t number);
  /// Calls use(length, number) for every text that `text` begins with, the shortest first.
  template <typename Use>
  void prefixes(std::string_view text, Use&& use) const {
    std::uint32_t node = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      node = child(node, static_cast<unsigned char>(text[i]));
      if (node == 0) return;
      if (numbers_[node] >= 0) use(i + 1, numbers_[node]);
    }
  }

 private:
  struct Edge {
    std::uint64_t key = 0;  ///< node << 8 | byte, + 1; 0: empty
    std::uint32_t node = 0;
  };
  [[nodiscard]] std::uint32_t child(std::uint32_t node, unsigned char byte) const;
  void grow();

  std::vector<Edge> edges_;
  std::vector<std::int32_t> numbers_{-1};  ///< by node; -1: no text ends there
};

}  // namespace colonnade::tokenizers
