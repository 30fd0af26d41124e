// The log files of the ranks and the terminal: rank 0's file is followed on standard output, the
// launcher's own lines and its status line go to standard error.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace colonnade::launch {

/// The last `count` lines of `path` after byte `from`, without control characters; empty when the
/// file cannot be read.
std::vector<std::string> last_lines(const std::filesystem::path& path, off_t from, int count);

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

/// Copies what is appended to a file to the console.
class Follower {
 public:
  /// Starts at byte `from`. A file that cannot be opened is not followed.
  Follower(const std::filesystem::path& path, off_t from);
  ~Follower();
  Follower(const Follower&) = delete;
  Follower& operator=(const Follower&) = delete;

  void copy_new(Console& console);

 private:
  int fd_;
  off_t at_;
};

}  // namespace colonnade::launch
