// See charsmap.h.
#include "colonnade/tokenizers/charsmap.h"

#include <cstring>

#include "colonnade/base/error.h"
#include "colonnade/tokenizers/unicode.h"

namespace colonnade::tokenizers {
namespace {

constexpr std::size_t kLongestCluster = 5;

// Fields of a unit of a Darts-clone array.
bool has_leaf(std::uint32_t unit) { return (unit >> 8 & 1) != 0; }
std::uint32_t value(std::uint32_t unit) { return unit & 0x7FFFFFFFU; }
std::uint32_t label(std::uint32_t unit) { return unit & 0x800000FFU; }
std::uint32_t offset(std::uint32_t unit) { return unit >> 10 << ((unit & 0x200U) >> 6); }

}  // namespace

Charsmap::Charsmap(std::string_view bytes, const std::string& where) {
  const auto reject = [&](const std::string& got) {
    throw DataError(
        fmt::format("{} must be a SentencePiece charsmap; got {}; copy the file again", where, got));
  };
  std::uint32_t size = 0;
  if (bytes.size() < 4) reject(fmt::format("{} bytes", bytes.size()));
  std::memcpy(&size, bytes.data(), 4);
  if (size == 0 || size % 4 != 0 || size > bytes.size() - 4)
    reject(fmt::format("an array of {} bytes in {}", size, bytes.size()));
  units_.resize(size / 4);
  std::memcpy(units_.data(), bytes.data() + 4, size);
  texts_ = bytes.substr(4 + size);
  if (texts_.empty() || texts_.back() != '\0') texts_.push_back('\0');
  if (!is_utf8(texts_)) reject("texts that are not UTF-8");
}

const char* Charsmap::find(std::string_view part) const {
  std::size_t at = offset(units_[0]);
  for (const char c : part) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte == 0) return nullptr;
    at ^= byte;
    if (at >= units_.size() || label(units_[at]) != byte) return nullptr;
    const std::uint32_t unit = units_[at];
    at ^= offset(unit);
    if (!has_leaf(unit)) continue;
    if (at >= units_.size() || value(units_[at]) >= texts_.size()) return nullptr;
    const char* text = texts_.data() + value(units_[at]);
    return (*text & 0xC0) == 0x80 ? nullptr : text;  // never inside a character
  }
  return nullptr;
}

std::string Charsmap::apply(std::string_view text, const GrowthLimit& limit) const {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    limit.check(result.size());
    std::string_view cluster = text.substr(0, grapheme_cluster_size(text));
    text.remove_prefix(cluster.size());
    const char* whole = cluster.size() <= kLongestCluster ? find(cluster) : nullptr;
    if (whole != nullptr) {
      result += whole;
      continue;
    }
    for_each_char(cluster, [&](char32_t, std::string_view bytes) {
      const char* one = find(bytes);
      result += one != nullptr ? std::string_view(one) : bytes;
    });
  }
  return result;
}

}  // namespace colonnade::tokenizers
