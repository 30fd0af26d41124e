// See text_stream.h.
#include "colonnade/inference/text_stream.h"

#include <algorithm>
#include <string_view>

namespace colonnade::inference {
namespace {

std::size_t settled(const std::string& text) {
  constexpr std::string_view kIncomplete = "\xEF\xBF\xBD";
  constexpr std::size_t kMay = 6;  // bytes that may change: " n ' t" becomes "n't"
  if (text.ends_with(kIncomplete)) return 0;
  const std::size_t at = text.find_first_of(" '", text.size() - std::min(text.size(), kMay));
  return at == std::string::npos ? text.size() : at;
}

}  // namespace

TextStream::TextStream(const tokenizers::Tokenizer& tokenizer, const std::vector<std::int32_t>& prompt)
    : tokenizer_(tokenizer), ids_(prompt), given_(tokenizer.decode(prompt)) {}

std::string TextStream::add(std::int32_t id) {
  ids_.push_back(id);
  const std::string text = tokenizer_.decode(ids_);
  return give(text, settled(text));
}

std::string TextStream::finish() {
  const std::string text = tokenizer_.decode(ids_);
  return give(text, text.size());
}

/// Where a text changes in front of that (only a prompt's end may), it goes on from the change.
std::string TextStream::give(const std::string& text, std::size_t end) {
  auto same = static_cast<std::size_t>(std::ranges::mismatch(given_, text).in1 - given_.begin());
  if (same < given_.size())
    while (same > 0 && (static_cast<unsigned char>(text[same]) & 0xC0U) == 0x80U) --same;
  if (end <= same) return "";
  given_ = text.substr(0, end);
  return text.substr(same, end - same);
}

}  // namespace colonnade::inference
