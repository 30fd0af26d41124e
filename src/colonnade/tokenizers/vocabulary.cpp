// See vocabulary.h.
#include "colonnade/tokenizers/vocabulary.h"

#include <bit>
#include <cstring>

#include "colonnade/base/error.h"

namespace colonnade::tokenizers {
namespace {

constexpr std::int64_t kMaxIds = 1 << 24;
constexpr std::size_t kMaxTextBytes = 4096;
constexpr std::size_t kMaxTotalBytes = std::size_t{8} << 20;  // a trie over them takes 70 times as many
constexpr std::uint64_t kMix = 0x9E3779B97F4A7C15ULL;

std::uint64_t mixed(std::uint64_t value) {
  value = (value ^ (value >> 32)) * kMix;
  return value ^ (value >> 29);
}

std::string shown(std::string_view text) { return std::string(text.substr(0, 60)); }

}  // namespace

std::uint64_t hash_bytes(std::string_view bytes) {
  std::uint64_t hash = bytes.size() * kMix;
  while (bytes.size() >= 8) {
    std::uint64_t eight = 0;
    std::memcpy(&eight, bytes.data(), 8);
    hash = mixed(hash ^ eight) * kMix;
    bytes.remove_prefix(8);
  }
  std::uint64_t rest = 0;
  if (!bytes.empty()) std::memcpy(&rest, bytes.data(), bytes.size());
  return mixed(hash ^ rest);
}

Vocabulary::Vocabulary(const std::vector<std::pair<std::string_view, std::int64_t>>& tokens,
                       const std::string& where, Duplicates duplicates)
    : size_(tokens.size()) {
  const std::int64_t max_ids = std::min(kMaxIds, static_cast<std::int64_t>(2 * tokens.size() + 65536));
  std::int64_t end = 0;
  std::size_t bytes = 0;
  for (const auto& [text, id] : tokens) {
    if (text.size() > kMaxTextBytes || (bytes += text.size()) > kMaxTotalBytes)
      throw DataError(fmt::format(
          "{} must have tokens of at most {} bytes, {} in all; got one of {} bytes, and {} so far; fix the file",
          where, kMaxTextBytes, kMaxTotalBytes, text.size(), bytes));
    if (id < 0 || id >= max_ids)
      throw DataError(fmt::format("{}: ids must be 0 to {} for {} tokens; got {} for '{}'; fix the file",
                                  where, max_ids - 1, tokens.size(), id, shown(text)));
    end = std::max(end, id + 1);
  }
  entries_.resize(static_cast<std::size_t>(end));
  slots_.assign(std::bit_ceil(tokens.size() * 2 + 2), -1);
  for (const auto& [text, id] : tokens) {
    Entry& entry = entries_[static_cast<std::size_t>(id)];
    if (entry.length >= 0)
      throw DataError(
          fmt::format("{}: every id must have one token; got {} for '{}' and for '{}'; fix the file", where,
                      id, shown(*text_of(static_cast<std::int32_t>(id))), shown(text)));
    const bool is_duplicate = id_of(text) >= 0;
    if (is_duplicate && duplicates == Duplicates::kReject)
      throw DataError(fmt::format("{}: every token must have one id; got {} and {} for '{}'; fix the file",
                                  where, id_of(text), id, shown(text)));
    entry = {bytes_.size(), static_cast<std::int64_t>(text.size())};
    bytes_ += text;
    max_bytes_ = std::max(max_bytes_, text.size());
    std::size_t slot = hash_bytes(text) & (slots_.size() - 1);
    while (slots_[slot] >= 0 && !(is_duplicate && *text_of(slots_[slot]) == text))
      slot = (slot + 1) & (slots_.size() - 1);
    slots_[slot] = static_cast<std::int32_t>(id);
  }
}

std::int32_t Vocabulary::id_of(std::string_view text) const {
  if (slots_.empty()) return -1;
  for (std::size_t slot = hash_bytes(text) & (slots_.size() - 1); slots_[slot] >= 0;
       slot = (slot + 1) & (slots_.size() - 1))
    if (*text_of(slots_[slot]) == text) return slots_[slot];
  return -1;
}

std::optional<std::string_view> Vocabulary::text_of(std::int32_t id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= entries_.size()) return std::nullopt;
  const Entry& entry = entries_[static_cast<std::size_t>(id)];
  if (entry.length < 0) return std::nullopt;
  return std::string_view(bytes_).substr(entry.offset, static_cast<std::size_t>(entry.length));
}

void ByteTrie::add(std::string_view text, std::int32_t value) {
  std::uint32_t node = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    std::uint32_t next = child(node, byte);
    if (next == 0) {
      if (edges_.size() < 2 * values_.size() + 2) grow();
      next = static_cast<std::uint32_t>(values_.size());
      values_.push_back(-1);
      const std::uint64_t key = ((std::uint64_t{node} << 8) | byte) + 1;
      std::size_t slot = mixed(key) & (edges_.size() - 1);
      while (edges_[slot].key != 0) slot = (slot + 1) & (edges_.size() - 1);
      edges_[slot] = {key, next};
    }
    node = next;
  }
  if (node != 0) values_[node] = value;
}

std::uint32_t ByteTrie::child(std::uint32_t node, unsigned char byte) const {
  if (edges_.empty()) return 0;
  const std::uint64_t key = ((std::uint64_t{node} << 8) | byte) + 1;
  for (std::size_t slot = mixed(key) & (edges_.size() - 1); edges_[slot].key != 0;
       slot = (slot + 1) & (edges_.size() - 1))
    if (edges_[slot].key == key) return edges_[slot].node;
  return 0;
}

void ByteTrie::grow() {
  std::vector<Edge> old(edges_.size() < 64 ? 64 : edges_.size() * 2);
  old.swap(edges_);
  for (const Edge& edge : old) {
    if (edge.key == 0) continue;
    std::size_t slot = mixed(edge.key) & (edges_.size() - 1);
    while (edges_[slot].key != 0) slot = (slot + 1) & (edges_.size() - 1);
    edges_[slot] = edge;
  }
}

}  // namespace colonnade::tokenizers
