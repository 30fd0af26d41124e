// See added_tokens.h.
#include "colonnade/tokenizers/added_tokens.h"

#include <algorithm>
#include <utility>

#include "colonnade/base/error.h"
#include "colonnade/tokenizers/unicode.h"

namespace colonnade::tokenizers {
namespace {

/// The last character of a text that is not empty.
char32_t last_char(std::string_view text) {
  std::size_t at = text.size() - 1;
  while (at > 0 && (text[at] & 0xC0) == 0x80) --at;
  return decode_utf8(text.data() + at).value;
}

std::size_t end_without_space(std::string_view text) {
  while (!text.empty() && CharTable::get().is_space(last_char(text))) {
    std::size_t at = text.size() - 1;
    while (at > 0 && (text[at] & 0xC0) == 0x80) --at;
    text = text.substr(0, at);
  }
  return text.size();
}

std::size_t leading_space(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const Decoded c = decode_utf8(text.data() + at);
    if (!CharTable::get().is_space(c.value)) break;
    at += static_cast<std::size_t>(c.size);
  }
  return at;
}

}  // namespace

void AddedTokens::add(const AddedToken& token, std::string_view pattern) {
  if (pattern.empty()) return;
  tree_.prefixes(pattern, [&](std::size_t length, std::int32_t number) {
    if (length == pattern.size())
      throw DataError(fmt::format(
          "added_tokens: normalized tokens must be different texts, because Hugging Face takes any of two; got "
          "'{}' and '{}'; set normalized of one to false",
          tokens_[static_cast<std::size_t>(number)].content.substr(0, 60), token.content.substr(0, 60)));
  });
  tree_.add(pattern, static_cast<std::int32_t>(tokens_.size()));
  tokens_.push_back(token);
  begins_[static_cast<unsigned char>(pattern[0])] = true;
  sole_ = std::count(begins_.begin(), begins_.end(), true) == 1 ? static_cast<unsigned char>(pattern[0]) : -1;
}

bool AddedTokens::fits(const AddedToken& token, std::string_view text, std::size_t begin,
                       std::size_t end) const {
  if (!token.single_word) return true;
  const CharTable& table = CharTable::get();
  if (begin > 0 && table.has(last_char(text.substr(0, begin)), kWord)) return false;
  return end == text.size() || !table.has(decode_utf8(text.data() + end).value, kWord);
}

std::size_t AddedTokens::seek(std::string_view text, std::size_t at) const {
  if (sole_ >= 0) {
    const std::size_t found = text.find(static_cast<char>(sole_), at);
    return std::min(found, text.size());
  }
  while (at < text.size() && !begins_[static_cast<unsigned char>(text[at])]) ++at;
  return at;
}

const AddedToken* AddedTokens::next(std::string_view text, std::size_t& begin, std::size_t& end) const {
  for (begin = seek(text, begin); begin < text.size(); begin = seek(text, begin + 1)) {
    std::int32_t number = -1;
    tree_.prefixes(text.substr(begin), [&](std::size_t length, std::int32_t own) {
      end = begin + length;
      number = own;
    });
    if (number >= 0) return &tokens_[static_cast<std::size_t>(number)];
  }
  return nullptr;
}

std::vector<AddedTokens::Part> AddedTokens::cut(std::string_view text) const {
  if (tokens_.empty() && !text.empty()) return {{text, -1}};
  std::vector<Part> parts;
  std::size_t done = 0, at = 0, end = 0;
  while (const AddedToken* token = next(text, at, end)) {
    std::size_t begin = std::exchange(at, end);
    if (!fits(*token, text, begin, end)) continue;
    if (token->left_strip)
      begin = begin > done ? done + end_without_space(text.substr(done, begin - done)) : done;
    if (token->right_strip) end += leading_space(text.substr(end));
    if (done < begin) parts.push_back({text.substr(done, begin - done), -1});
    parts.push_back({text.substr(std::min(begin, end), end - std::min(begin, end)), token->id});
    done = end;
  }
  if (done < text.size()) parts.push_back({text.substr(done), -1});
  return parts;
}

}  // namespace colonnade::tokenizers
