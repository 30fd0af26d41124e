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

/// The size of a text without trailing white space.
std::size_t size_without_trailing_space(std::string_view text) {
  while (!text.empty() && CharTable::get().is_space(last_char(text))) {
    std::size_t at = text.size() - 1;
    while (at > 0 && (text[at] & 0xC0) == 0x80) --at;
    text = text.substr(0, at);
  }
  return text.size();
}

/// Bytes of leading white space.
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
  trie_.for_each_prefix(pattern, [&](std::size_t length, std::int32_t number) {
    if (length == pattern.size())
      throw DataError(fmt::format(
          "added_tokens must have distinct normalized contents, because Hugging Face matches any of equal ones; got "
          "'{}' and '{}'; set normalized of one to false",
          tokens_[static_cast<std::size_t>(number)].content.substr(0, 60), token.content.substr(0, 60)));
  });
  trie_.add(pattern, static_cast<std::int32_t>(tokens_.size()));
  tokens_.push_back(token);
  first_bytes_[static_cast<unsigned char>(pattern[0])] = true;
  only_first_byte_ = std::count(first_bytes_.begin(), first_bytes_.end(), true) == 1
                         ? static_cast<unsigned char>(pattern[0])
                         : -1;
}

bool AddedTokens::may_match(const AddedToken& token, std::string_view text, std::size_t begin,
                            std::size_t end) const {
  if (!token.single_word) return true;
  const CharTable& table = CharTable::get();
  if (begin > 0 && table.has(last_char(text.substr(0, begin)), kWord)) return false;
  return end == text.size() || !table.has(decode_utf8(text.data() + end).value, kWord);
}

std::size_t AddedTokens::next_candidate(std::string_view text, std::size_t at) const {
  if (only_first_byte_ >= 0) {
    const std::size_t found = text.find(static_cast<char>(only_first_byte_), at);
    return std::min(found, text.size());
  }
  while (at < text.size() && !first_bytes_[static_cast<unsigned char>(text[at])]) ++at;
  return at;
}

const AddedToken* AddedTokens::next(std::string_view text, std::size_t& begin, std::size_t& end) const {
  for (begin = next_candidate(text, begin); begin < text.size(); begin = next_candidate(text, begin + 1)) {
    std::int32_t number = -1;
    trie_.for_each_prefix(text.substr(begin), [&](std::size_t length, std::int32_t own) {
      end = begin + length;
      number = own;
    });
    if (number >= 0) return &tokens_[static_cast<std::size_t>(number)];
  }
  return nullptr;
}

std::vector<AddedTokens::Segment> AddedTokens::split(std::string_view text) const {
  if (tokens_.empty() && !text.empty()) return {{text, -1}};
  std::vector<Segment> segments;
  std::size_t done = 0, at = 0, end = 0;
  while (const AddedToken* token = next(text, at, end)) {
    std::size_t begin = std::exchange(at, end);
    if (!may_match(*token, text, begin, end)) continue;
    if (token->left_strip)
      begin = begin > done ? done + size_without_trailing_space(text.substr(done, begin - done)) : done;
    if (token->right_strip) end += leading_space(text.substr(end));
    if (done < begin) segments.push_back({text.substr(done, begin - done), -1});
    segments.push_back({text.substr(std::min(begin, end), end - std::min(begin, end)), token->id});
    done = end;
  }
  if (done < text.size()) segments.push_back({text.substr(done), -1});
  return segments;
}

}  // namespace colonnade::tokenizers
