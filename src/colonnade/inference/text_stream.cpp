// See text_stream.h.
#include "colonnade/inference/text_stream.h"

#include <algorithm>
#include <string_view>

namespace colonnade::inference {
namespace {

std::size_t stable_length(const std::string& text) {
  constexpr std::string_view kIncomplete = "\xEF\xBF\xBD";
  constexpr std::size_t kMayChange = 6;  // trailing bytes that may change: " n ' t" becomes "n't"
  if (text.ends_with(kIncomplete)) return 0;
  const std::size_t at = text.find_first_of(" '", text.size() - std::min(text.size(), kMayChange));
  return at == std::string::npos ? text.size() : at;
}

}  // namespace

TextStream::TextStream(const tokenizers::Tokenizer& tokenizer, const std::vector<std::int32_t>& prompt)
    : tokenizer_(tokenizer), ids_(prompt), emitted_(tokenizer.decode(prompt)) {}

std::string TextStream::add(std::int32_t id) {
  ids_.push_back(id);
  const std::string text = tokenizer_.decode(ids_);
  return emit(text, stable_length(text));
}

std::string TextStream::finish() {
  const std::string text = tokenizer_.decode(ids_);
  return emit(text, text.size());
}

/// If emitted text changes, which can only happen at the end of a prompt, continues from the change.
std::string TextStream::emit(const std::string& text, std::size_t end) {
  auto same = static_cast<std::size_t>(std::ranges::mismatch(emitted_, text).in1 - emitted_.begin());
  if (same < emitted_.size())
    while (same > 0 && (static_cast<unsigned char>(text[same]) & 0xC0U) == 0x80U) --same;
  if (end <= same) return "";
  emitted_ = text.substr(0, end);
  return text.substr(same, end - same);
}

}  // namespace colonnade::inference
