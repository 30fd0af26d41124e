// The output of the ranks, their log files and the terminal: rank 0 is shown on standard output, the
// launcher's own lines and its status line on standard error.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "colonnade/base/owner_lock.h"

namespace colonnade::launch {

/// Where lines of several kinds share one terminal.
class Console {
 public:
  Console();
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  /// "launch: <text>" on standard error.
  void line(std::string_view text);
  /// Replaces the status line at the bottom; shown on a terminal only.
  void status(const std::string& text);
  /// Bytes of rank 0 for standard output.
  void output(std::string_view bytes);

 private:
  void erase_status();
  void draw_status();
  bool terminal_;
  bool at_line_start_ = true;
  std::string status_;
};

/// The folder of the ranks' logs, which no other launcher of the same node rank writes.
class LogFolder {
 public:
  /// Makes `folder`, or with `is_new` the first of `folder`, folder-2, ... that is not there, and takes
  /// launcher_<node_rank>.txt in it (OwnerLock). Throws ConfigError with the owner, or when it cannot be
  /// made.
  LogFolder(std::filesystem::path folder, bool is_new, int node_rank, OwnerLockOptions lock = {});
  /// Removes what was made and holds nothing.
  ~LogFolder();
  LogFolder(const LogFolder&) = delete;
  LogFolder& operator=(const LogFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return folder_; }

 private:
  void make(bool is_new);

  std::filesystem::path folder_;
  std::vector<std::filesystem::path> made_;  ///< folders that were not there before, the innermost first
  std::unique_ptr<OwnerLock> lock_;
};

/// What a rank prints: out of its pipe into its log. The last lines are kept here too, for the log may be on
/// a full disk. A log that cannot be written costs one line on the console; the rank goes on.
class RankOutput {
 public:
  /// Opens the log for appending and makes the pipe. Throws ConfigError for a log that cannot be opened.
  explicit RankOutput(std::filesystem::path log);
  ~RankOutput();
  RankOutput(RankOutput&& other) noexcept;
  RankOutput& operator=(RankOutput&&) = delete;

  /// The rank's end of the pipe, which is closed here once the rank has it.
  [[nodiscard]] int write_end() const { return write_end_; }
  void close_write_end();
  /// For poll(2); -1 when everything has been read.
  [[nodiscard]] int read_end() const { return read_end_; }

  /// A line of the launcher's own, in the log alone.
  void head(std::string_view line);
  /// Copies what has arrived, 4 MB at most, without waiting; with `shown` to the console too.
  void copy_new(Console& console, bool shown);
  /// The last `count` lines that were copied, without control characters.
  [[nodiscard]] std::vector<std::string> last_lines(int count) const;
  [[nodiscard]] const std::filesystem::path& log() const { return log_; }
  /// Removes the log unless it was there before.
  void remove_log() const;

 private:
  /// The reason why not, or 0.
  int write_log(std::string_view bytes) const;

  std::filesystem::path log_;
  bool was_there_;
  int log_fd_ = -1;
  int write_end_ = -1;
  int read_end_ = -1;
  std::string tail_;
  bool warned_ = false;
};

}  // namespace colonnade::launch
