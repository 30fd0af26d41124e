// See file_kind.h.
#include "colonnade/base/file_kind.h"

#include <algorithm>
#include <cctype>
#include <string>

#include "colonnade/base/error.h"

namespace colonnade {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kLfsMagic = "version https://git-lfs.github.com/spec/";

struct Magic {
  std::string_view bytes;
  std::string_view kind;
};
constexpr Magic kMagics[] = {
    {kLfsMagic, "a Git LFS pointer"},
    {"PK\x03\x04"sv, "a PyTorch pickle or another zip archive"},
    {"\x80\x02\x8a\nl\xfc"sv, "a PyTorch pickle"},
    {"\x80\x04\x95"sv, "a Python pickle"},
    {"GGUF"sv, "a GGUF file"},
    {"\x89HDF\r\n\x1a\n"sv, "an HDF5 file"},
    {"\x93NUMPY"sv, "a NumPy array"},
    {"\x1f\x8b\x08"sv, "a gzip archive"},
    {"\x28\xb5\x2f\xfd"sv, "a zstd archive"},
    {"PAR1"sv, "a Parquet file"},
    {"MMIDIDX"sv, "the index of a data set"},
    {"\x7f"
     "ELF"sv,
     "an executable"},
    {"%PDF"sv, "a PDF document"},
    {"<?xml"sv, "an XML document"},
};

std::string_view skip_blanks(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  return first == std::string_view::npos ? "" : text.substr(first);
}

bool is_html(std::string_view begin) {
  std::string low(skip_blanks(begin).substr(0, 16));
  std::ranges::transform(low, low.begin(), [](unsigned char c) { return std::tolower(c); });
  return low.starts_with("<!doctype html") || low.starts_with("<html");
}

/// A little-endian 64-bit length below 2^32, then a JSON object.
bool is_safetensors(std::string_view begin) {
  return begin.size() > 8 && begin[8] == '{' && begin.substr(4, 4) == "\0\0\0\0"sv;
}

/// Whether the first line that is neither blank nor a comment is `[table]` or `key = value`.
bool is_toml(std::string_view begin) {
  const auto is_key = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
  };
  while (!(begin = skip_blanks(begin)).empty()) {
    const std::string_view line = begin.substr(0, begin.find('\n'));
    begin.remove_prefix(line.size());
    if (line[0] == '#' || line[0] == ';') continue;
    const bool table = line[0] == '[';
    std::string_view rest = line.substr(table ? std::min(line.find_first_not_of('['), line.size()) : 0);
    const auto end = static_cast<std::size_t>(std::ranges::find_if_not(rest, is_key) - rest.begin());
    if (end == 0 || (table && std::isalpha(static_cast<unsigned char>(rest[0])) == 0)) return false;
    rest = skip_blanks(rest.substr(end));
    return rest.starts_with(table ? ']' : '=');
  }
  return false;
}

}  // namespace

std::string_view file_kind(std::string_view begin) {
  if (begin.empty()) return "an empty file";
  if (is_safetensors(begin)) return "a safetensors file";
  for (const Magic& magic : kMagics)
    if (begin.starts_with(magic.bytes)) return magic.kind;
  if (is_html(begin)) return "an HTML page";
  if (is_toml(begin)) return "a TOML or INI file";
  return "";
}

void reject_lfs_pointer(std::string_view begin, const std::filesystem::path& path) {
  if (!begin.starts_with(kLfsMagic)) return;
  throw DataError(
      fmt::format("{} must hold the file's content; got a Git LFS pointer, which names content that was not "
                  "downloaded; run `git lfs pull` in its folder, or download the file again",
                  path.string()));
}

}  // namespace colonnade
