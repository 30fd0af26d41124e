// See logs.h. Failed writes to the terminal are ignored: a closed terminal must not end a run.
#include "colonnade/launch/logs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <utility>

#include "colonnade/base/error.h"
#include "colonnade/base/write_error.h"

namespace colonnade::launch {
namespace {

namespace fs = std::filesystem;

constexpr int kPipeBytes = 1 << 20;  // so that a suspended launcher does not block ranks soon
constexpr std::size_t kTailBytes = 64 * 1024;

void remove_empty(const std::vector<fs::path>& folders) {
  std::error_code kept;
  for (const fs::path& folder : folders) fs::remove(folder, kept);  // fails if not empty
}

void write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

std::size_t terminal_columns() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

Console::Console() : terminal_(::isatty(STDERR_FILENO) == 1) {}
Console::~Console() { erase_status(); }

void Console::erase_status() {
  if (terminal_ && !status_.empty()) write_all(STDERR_FILENO, "\r\x1b[K");
}

void Console::draw_status() {
  if (terminal_ && !status_.empty() && at_line_start_)
    write_all(STDERR_FILENO, std::string_view(status_).substr(0, terminal_columns() - 1));
}

void Console::line(std::string_view text) {
  erase_status();
  write_all(STDERR_FILENO, fmt::format("{}launch: {}\n", at_line_start_ ? "" : "\n", text));
  at_line_start_ = true;
  draw_status();
}

void Console::status(const std::string& text) {
  if (!terminal_ || text == status_) return;
  erase_status();
  status_ = text;
  draw_status();
}

void Console::output(std::string_view bytes) {
  if (bytes.empty()) return;
  erase_status();
  write_all(STDOUT_FILENO, bytes);
  at_line_start_ = bytes.back() == '\n';
  draw_status();
}

LogFolder::LogFolder(fs::path folder, bool is_new, int node_rank, OwnerLockOptions lock)
    : folder_(std::move(folder)) {
  create(is_new);
  lock.thing = "--log-dir";
  lock.fix = "wait for that launcher, stop it, or choose another folder";
  try {
    lock_ = std::make_unique<OwnerLock>(folder_ / fmt::format("launcher_{}.txt", node_rank), std::move(lock));
  } catch (...) {
    remove_empty(created_);
    throw;
  }
}

LogFolder::~LogFolder() {
  lock_.reset();
  remove_empty(created_);
}

void LogFolder::create(bool is_new) {
  std::error_code error;
  for (auto missing = folder_; !missing.empty() && !fs::exists(missing, error);
       missing = missing.parent_path())
    created_.push_back(missing);
  if (is_new) {
    const std::string first = folder_.string();
    fs::create_directories(folder_.parent_path(), error);
    for (int n = 2; !error && !fs::create_directory(folder_, error); ++n)
      folder_ = fmt::format("{}-{}", first, n);
    if (created_.empty() || created_.front() != folder_) created_.insert(created_.begin(), folder_);
  } else {
    fs::create_directories(folder_, error);
  }
  if (error)
    throw ConfigError(
        fmt::format("--log-dir must be a folder that can be created; got {}: {}; choose another",
                    folder_.string(), error.message()));
}

RankOutput::RankOutput(fs::path log) : log_(std::move(log)) {
  std::error_code unknown;  // open() reports the reason
  existed_ = fs::exists(log_, unknown) || unknown;
  log_fd_ = ::open(log_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log_fd_ < 0)
    throw ConfigError(fmt::format("{}: a rank's log must be writable; got '{}'; choose another --log-dir",
                                  log_.string(), std::strerror(errno)));
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    const int reason = errno;
    ::close(log_fd_);
    throw Error(fmt::format("launch: cannot create a pipe; {}", std::strerror(reason)));
  }
  read_end_ = ends[0];
  write_end_ = ends[1];
  ::fcntl(read_end_, F_SETFL, O_NONBLOCK);
  ::fcntl(read_end_, F_SETPIPE_SZ, kPipeBytes);  // best effort
}

RankOutput::RankOutput(RankOutput&& other) noexcept
    : log_(std::move(other.log_)),
      existed_(other.existed_),
      log_fd_(std::exchange(other.log_fd_, -1)),
      write_end_(std::exchange(other.write_end_, -1)),
      read_end_(std::exchange(other.read_end_, -1)),
      tail_(std::move(other.tail_)),
      warned_(other.warned_) {}

RankOutput::~RankOutput() {
  for (const int fd : {log_fd_, write_end_, read_end_})
    if (fd >= 0) ::close(fd);
}

void RankOutput::close_write_end() { ::close(std::exchange(write_end_, -1)); }

int RankOutput::write_log(std::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t n = ::write(log_fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return 0;
}

void RankOutput::write_header(std::string_view line) { write_log(line); }

void RankOutput::drain(Console& console, bool shown) {
  std::array<char, 1 << 16> chunk{};
  // A rank that prints endlessly must not keep the launcher from handling signals; a full pipe fits in this.
  constexpr int kMaxChunks = 64;
  for (int i = 0; i < kMaxChunks && read_end_ >= 0; ++i) {
    const ssize_t n = ::read(read_end_, chunk.data(), chunk.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return;  // no data available
    if (n == 0) {
      ::close(std::exchange(read_end_, -1));
      return;
    }
    const std::string_view bytes(chunk.data(), static_cast<std::size_t>(n));
    const int reason = write_log(bytes);
    tail_ += bytes;
    if (tail_.size() > 2 * kTailBytes) tail_.erase(0, tail_.size() - kTailBytes);
    if (shown) console.output(bytes);
    if (reason == 0 || warned_) continue;
    warned_ = true;
    console.line(fmt::format("{}: some output was not written; {}, {}; the rank continues", log_.string(),
                             std::strerror(reason), free_space_text(log_)));
  }
}

std::vector<std::string> RankOutput::last_lines(int count) const {
  std::string text = tail_;
  std::erase_if(text, [](char c) { return static_cast<unsigned char>(c) < ' ' && c != '\n' && c != '\t'; });
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  if (std::ssize(lines) > count) lines.erase(lines.begin(), lines.end() - count);
  return lines;
}

void RankOutput::remove_log() const {
  std::error_code kept;
  if (!existed_) fs::remove(log_, kept);
}

}  // namespace colonnade::launch
