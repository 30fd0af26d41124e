// See help_page.h.
#include "colonnade/config/help_page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace colonnade::config {

namespace {

constexpr std::size_t kTextColumn = 38;
constexpr std::size_t kWidth = 110;
constexpr std::size_t kIndent = 2;         // of rows and examples
constexpr std::size_t kHangingIndent = 6;  // of the other lines of a usage or an example

/// `text` in lines of up to kWidth characters; all but the first begin at column `indent`. The first word
/// stands at column `column`.
std::string wrapped(const std::string& text, std::size_t column, std::size_t indent) {
  std::string out;
  bool at_start = true;  // of a line
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    if (!at_start && column + end - at > kWidth) {
      out.back() = '\n';
      out += std::string(indent, ' ');
      column = indent;
    }
    out += text.substr(at, end - at) + ' ';
    column += end - at + 1;
    at_start = false;
    at = end + 1;
  }
  if (!out.empty()) out.pop_back();
  return out + "\n";
}

std::string name_of(const HelpRow& row) { return row.value.empty() ? row.flag : row.flag + " " + row.value; }

/// Column of the texts: two spaces after the longest name that leaves a space before kTextColumn.
std::size_t text_column(const std::vector<HelpSection>& sections) {
  std::size_t longest = 0;
  for (const HelpSection& section : sections)
    for (const HelpRow& row : section.rows)
      if (const std::size_t size = name_of(row).size(); kIndent + size < kTextColumn)
        longest = std::max(longest, size);
  return std::min(kIndent + longest + 2, kTextColumn);
}

std::string line(const HelpRow& row, std::size_t column) {
  std::string out = std::string(kIndent, ' ') + name_of(row);
  out += out.size() < column ? std::string(column - out.size(), ' ') : "\n" + std::string(column, ' ');
  const std::string notes = row.notes.empty() ? "" : fmt::format(" [{}]", fmt::join(row.notes, "; "));
  return out + wrapped(row.text + notes, column, column);
}

std::string paragraphs(const std::string& text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    out += wrapped(text.substr(at, end - at), 0, 0);
    at = end + 1;
  }
  return out;
}

std::string examples(const std::vector<std::string>& commands) {
  std::string out = "examples:\n";
  for (const std::string& command : commands)
    out += std::string(kIndent, ' ') + wrapped(command, kIndent, kHangingIndent);
  return out;
}

}  // namespace

std::string render(const HelpPage& page) {
  constexpr std::string_view kUsage = "usage: ";
  std::vector<std::string> parts;
  if (!page.usage.empty())
    parts.push_back(std::string(kUsage) + wrapped(page.usage, kUsage.size(), kHangingIndent));
  if (!page.about.empty()) parts.push_back(paragraphs(page.about));
  if (!page.examples.empty()) parts.push_back(examples(page.examples));
  const std::size_t column = text_column(page.sections);
  for (const HelpSection& section : page.sections) {
    std::string part = section.title.empty() ? "" : section.title + ":\n";
    for (const HelpRow& row : section.rows) part += line(row, column);
    if (!section.rows.empty()) parts.push_back(part);
  }
  return fmt::format("{}", fmt::join(parts, "\n"));
}

}  // namespace colonnade::config
