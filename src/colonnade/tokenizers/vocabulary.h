// A vocabulary (texts and ids) and a prefix trie.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace colonnade::tokenizers {

/// A fast hash of bytes, the same on every machine.
[[nodiscard]] std::uint64_t hash_bytes(std::string_view bytes);

/// The treatment of a text that occurs again with another id.
enum class Duplicates : std::uint8_t { kReject, kLastWins };

/// Texts with ids from 0; there may be unused ids.
class Vocabulary {
 public:
  Vocabulary() = default;
  /// Throws DataError that starts with `where` for two texts with the same id; a duplicate text (with
  /// kLastWins, id_of() gives its last id, and text_of() knows all); a text of more than 4096 bytes; texts of
  /// more than 8 MiB in total; an id outside [0, 2^24) or not below twice the number of texts + 65536.
  Vocabulary(const std::vector<std::pair<std::string_view, std::int64_t>>& tokens, const std::string& where,
             Duplicates duplicates = Duplicates::kReject);

  [[nodiscard]] std::int32_t id_of(std::string_view text) const;  ///< -1 if there is none
  /// The text of an id; nullopt for an unused id.
  [[nodiscard]] std::optional<std::string_view> text_of(std::int32_t id) const;
  [[nodiscard]] std::size_t size() const { return size_; }  ///< number of texts
  [[nodiscard]] std::int64_t end() const {
    return static_cast<std::int64_t>(entries_.size());
  }                                                                   ///< largest id + 1
  [[nodiscard]] std::size_t max_bytes() const { return max_bytes_; }  ///< bytes of the longest text

 private:
  struct Entry {
    std::size_t offset = 0;
    std::int64_t length = -1;  ///< -1 for an unused id
  };
  std::string bytes_;
  std::vector<Entry> entries_;       ///< by id
  std::vector<std::int32_t> slots_;  ///< hash table of ids; -1 if empty
  std::size_t size_ = 0, max_bytes_ = 0;
};

/// A trie over byte strings, each with a value.
class ByteTrie {
 public:
  /// Adds a text. A later value replaces the earlier one of the same text; empty texts are ignored.
  void add(std::string_view text, std::int32_t value);
  /// Calls use(length, value) for every prefix of `text` in the trie, the shortest first.
  template <typename Use>
  void for_each_prefix(std::string_view text, Use&& use) const {
    std::uint32_t node = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      node = child(node, static_cast<unsigned char>(text[i]));
      if (node == 0) return;
      if (values_[node] >= 0) use(i + 1, values_[node]);
    }
  }

 private:
  struct Edge {
    std::uint64_t key = 0;  ///< (node << 8 | byte) + 1; 0 if empty
    std::uint32_t node = 0;
  };
  [[nodiscard]] std::uint32_t child(std::uint32_t node, unsigned char byte) const;
  void grow();

  std::vector<Edge> edges_;
  std::vector<std::int32_t> values_{-1};  ///< by node; -1 if no text ends there
};

}  // namespace colonnade::tokenizers
