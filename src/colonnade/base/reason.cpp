// See reason.h.
#include "colonnade/base/reason.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "colonnade/base/error.h"

namespace colonnade {
namespace {

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

/// Removes every "[json.exception.parse_error.101] ".
void remove_json_exceptions(std::string& text) {
  constexpr std::string_view kName = "[json.exception.";
  for (std::size_t at = text.find(kName); at != std::string::npos; at = text.find(kName)) {
    const std::size_t end = text.find(']', at);
    text.erase(at, end == std::string::npos ? end : end - at + (text.substr(end, 2) == "] " ? 2 : 1));
  }
}

/// Length of the source location in "FILE.cc(12) [condition] text" or "FILE.cc:12: text"; the file name
/// starts at `begin`, its extension at `dot`. 0 if this is not a source location.
std::size_t location_size(std::string_view text, std::size_t begin, std::size_t dot) {
  const std::size_t name_end = text.find_first_of("(:", dot);
  constexpr std::array<std::string_view, 7> kExtensions = {".cc",  ".cpp", ".cxx", ".h",
                                                           ".hpp", ".cu",  ".cuh"};
  bool is_source = false;
  for (const std::string_view extension : kExtensions)
    is_source =
        is_source || (name_end != std::string_view::npos && text.substr(dot, name_end - dot) == extension);
  if (!is_source || name_end + 1 >= text.size() || !is_digit(text[name_end + 1])) return 0;
  std::size_t at = name_end + 1;
  while (at < text.size() && is_digit(text[at])) ++at;
  if (text.substr(at, 1) == ")" || text.substr(at, 1) == ":") ++at;
  if (text.substr(at, 2) == " [") at = std::min(text.find("] ", at), text.size() - 1) + 1;
  while (at < text.size() && text[at] == ' ') ++at;
  return at - begin;
}

void remove_source_locations(std::string& text) {
  for (std::size_t dot = text.find('.'); dot != std::string::npos; dot = text.find('.', dot + 1)) {
    std::size_t begin = dot;
    while (begin > 0 && (std::isalnum(static_cast<unsigned char>(text[begin - 1])) != 0 ||
                         std::string_view("_-./").find(text[begin - 1]) != std::string_view::npos))
      --begin;
    if (const std::size_t size = location_size(text, begin, dot); size > 0) {
      text.erase(begin, size);
      dot = begin;
    }
  }
}

}  // namespace

std::string reason_in(std::string_view message, std::string_view otherwise) {
  std::string text(message.substr(0, message.find('\n')));
  remove_json_exceptions(text);
  remove_source_locations(text);
  constexpr std::string_view kWhite = " \t\r.:;";
  const std::size_t end = text.find_last_not_of(kWhite);
  text.erase(end == std::string::npos ? 0 : end + 1);
  constexpr std::string_view kInternal = "Internal: ";  // a SentencePiece status
  if (text.starts_with(kInternal)) text.erase(0, kInternal.size());
  if (text == "Internal") text.clear();
  return text.empty() ? std::string(otherwise) : text;
}

std::string reason_of(const std::exception& error) {
  return dynamic_cast<const Error*>(&error) != nullptr ? error.what() : reason_in(error.what());
}

}  // namespace colonnade
