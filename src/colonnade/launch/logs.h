// Output of the ranks, their log files and the terminal: rank 0 is shown on standard output, the launcher's
// own lines and its status line on standard error.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "colonnade/base/owner_lock.h"

namespace colonnade::launch {

/// Terminal shared by rank 0's output, launcher messages and a status line.
class Console {
 public:
  Console();
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  /// "launch: <text>" on standard error.
  void line(std::string_view text);
  /// Replaces the status line at the bottom. Terminals only.
  void status(const std::string& text);
  /// Writes output of rank 0 to standard output.
  void output(std::string_view bytes);

 private:
  void erase_status();
  void draw_status();
  bool terminal_;
  bool at_line_start_ = true;
  std::string status_;
};

/// Log folder of the ranks, locked against other launchers of the same node rank.
class LogFolder {
 public:
  /// Creates `folder`, or with `is_new` the first of `folder`, folder-2, ... that does not exist, and locks
  /// launcher_<node_rank>.txt in it (OwnerLock). Throws ConfigError, which names the owner, if it is locked,
  /// and ConfigError if it cannot be created.
  LogFolder(std::filesystem::path folder, bool is_new, int node_rank, OwnerLockOptions lock = {});
  /// Removes the created folders that are still empty.
  ~LogFolder();
  LogFolder(const LogFolder&) = delete;
  LogFolder& operator=(const LogFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return folder_; }

 private:
  void create(bool is_new);

  std::filesystem::path folder_;
  std::vector<std::filesystem::path> created_;  ///< folders created here, innermost first
  std::unique_ptr<OwnerLock> lock_;
};

/// Output of one rank: copied from its pipe to its log. The last lines are also kept in memory, because the
/// log may be on a full disk. A failed log write is reported once on the console; the rank continues.
class RankOutput {
 public:
  /// Opens the log for appending and creates the pipe. Throws ConfigError if the log cannot be opened.
  explicit RankOutput(std::filesystem::path log);
  ~RankOutput();
  RankOutput(RankOutput&& other) noexcept;
  RankOutput& operator=(RankOutput&&) = delete;

  /// Write end of the pipe, closed here after the rank inherited it.
  [[nodiscard]] int write_end() const { return write_end_; }
  void close_write_end();
  /// Read end for poll(2); -1 after end of file.
  [[nodiscard]] int read_end() const { return read_end_; }

  /// Writes a header line to the log only.
  void write_header(std::string_view line);
  /// Copies available output, at most 4 MB, without blocking; with `shown` to the console too.
  void drain(Console& console, bool shown);
  /// The last `count` copied lines, without control characters.
  [[nodiscard]] std::vector<std::string> last_lines(int count) const;
  [[nodiscard]] const std::filesystem::path& log() const { return log_; }
  /// Removes the log unless it existed before.
  void remove_log() const;

 private:
  /// Returns errno, or 0 on success.
  int write_log(std::string_view bytes) const;

  std::filesystem::path log_;
  bool existed_;
  int log_fd_ = -1;
  int write_end_ = -1;
  int read_end_ = -1;
  std::string tail_;
  bool warned_ = false;
};

}  // namespace colonnade::launch
