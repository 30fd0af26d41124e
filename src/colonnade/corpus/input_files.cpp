// See input_files.h.
#include "colonnade/corpus/input_files.h"

#include <glob.h>

#include <cerrno>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"

namespace colonnade::corpus {
namespace {

namespace fs = std::filesystem;

bool is_line_file(const fs::path& file) {
  const std::string name = file.filename().string();
  return name.ends_with(".jsonl") || name.ends_with(".jsonl.gz") || name.ends_with(".jsonl.zst") ||
         name.ends_with(".parquet");
}

/// Unreadable folders are skipped; they are reported only if no file is found.
std::vector<fs::path> files_of_pattern(const std::string& pattern) {
  std::vector<fs::path> files;
  std::error_code closed;
  for (const int flags : {0, GLOB_ERR}) {
    glob_t matches{};
    const int result = ::glob(pattern.c_str(), flags, nullptr, &matches);
    if (result == GLOB_ABORTED) closed = std::error_code(errno, std::generic_category());
    for (std::size_t i = 0; result == 0 && i < matches.gl_pathc; ++i) files.emplace_back(matches.gl_pathv[i]);
    ::globfree(&matches);
    if (!files.empty()) return files;
  }
  if (closed) throw unreadable(pattern, closed);
  throw DataError(fmt::format("{}: --input must name a file; got no such file; check the path", pattern));
}

void add_file(const fs::path& path, std::vector<fs::path>& files) {
  std::error_code unknown;  // reported when the file is read
  const fs::file_status status = fs::status(path, unknown);
  if (fs::is_directory(status)) {
    const std::vector<fs::path> inside = line_files_in(path);
    if (inside.empty())
      throw DataError(fmt::format(
          "{}: a folder of --input must hold .jsonl, .jsonl.gz, .jsonl.zst or .parquet files; got none; name other "
          "files by a pattern, '{}'",
          path.string(), (path / "*").string()));
    files.insert(files.end(), inside.begin(), inside.end());
  } else if (!fs::exists(status)) {
    throw DataError(
        fmt::format("{}: --input must name existing files; got a broken link; fix it", path.string()));
  } else if (!fs::is_regular_file(status)) {
    throw ConfigError(fmt::format(
        "{}: --input must name files or folders, which can be read twice; got a pipe or a device; write it to a file "
        "first",
        path.string()));
  } else {
    files.push_back(path);
  }
}

}  // namespace

std::vector<fs::path> line_files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : sorted_entries(folder)) {
    if (!is_line_file(entry.path())) continue;
    std::error_code unknown;  // for example, a folder that may be listed but not entered
    const fs::file_status status = fs::status(entry.path(), unknown);
    if (status.type() == fs::file_type::none) throw unreadable(entry.path(), unknown);
    if (fs::is_regular_file(status)) files.push_back(entry.path());
  }
  return files;
}

std::vector<fs::path> input_files(const std::vector<std::string>& names) {
  std::vector<fs::path> files;
  for (const std::string& name : names) {
    std::error_code unknown;
    if (fs::exists(name, unknown)) {
      add_file(name, files);
    } else if (unknown) {
      throw unreadable(name, unknown);
    } else {
      for (const fs::path& path : files_of_pattern(name)) add_file(path, files);
    }
  }
  return files;
}

}  // namespace colonnade::corpus
