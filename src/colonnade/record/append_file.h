// An append-only file of complete records that survives a full disk, for metrics and event files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace colonnade::record {

/// Renames the file of an earlier run to `path`.1 (.2, ... when that exists) and logs it. A missing or empty
/// file is left as it is.
void back_up_existing(const std::filesystem::path& path);

class AppendFile {
 public:
  /// Opens `path` for appending, and creates it when it does not exist. Throws Error with the system's
  /// reason.
  explicit AppendFile(std::filesystem::path path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  /// Appends `record` in one write. When the write fails (disk full or gone), the record is dropped
  /// completely, one warning is logged, and the run continues: monitoring must not end a run.
  void append(std::string_view record);

  /// Bytes in the file now.
  [[nodiscard]] std::uint64_t size() const;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  bool warned_ = false;
};

}  // namespace colonnade::record
