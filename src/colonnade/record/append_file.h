// A file that grows by whole records and survives a full disk: what metrics and event files share.
#pragma once

#include <filesystem>
#include <string_view>

namespace colonnade::record {

/// Gives the file of an earlier run another name, `path`.1 (.2, ... when that is taken), and a line says so.
/// None, or an empty one, stays.
void keep_aside(const std::filesystem::path& path);

class AppendFile {
 public:
  /// Opens `path` for appending, making it when it is not there. Throws Error with the system's reason.
  explicit AppendFile(std::filesystem::path path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  /// Adds `record` in one write. When the disk refuses (full, gone), the record is dropped whole, one
  /// warning is printed, and the run goes on: what watches a run must not end it.
  void append(std::string_view record);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  bool warned_ = false;
};

}  // namespace colonnade::record
