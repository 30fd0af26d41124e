// See logs.h. Lines that cannot be written are lost: a closed terminal must not end a run.
#include "colonnade/launch/logs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <sstream>

namespace colonnade::launch {
namespace {

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

std::vector<std::string> last_lines(const std::filesystem::path& path, off_t from, int count) {
  constexpr off_t kMostBytes = 64 * 1024;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  const off_t end = ::lseek(fd, 0, SEEK_END);
  const off_t start = std::max(from, end - kMostBytes);
  std::string text(static_cast<std::size_t>(std::max<off_t>(end - start, 0)), '\0');
  const ssize_t got = ::pread(fd, text.data(), text.size(), start);
  ::close(fd);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  std::erase_if(text, [](char c) { return static_cast<unsigned char>(c) < ' ' && c != '\n' && c != '\t'; });
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  if (std::ssize(lines) > count) lines.erase(lines.begin(), lines.end() - count);
  return lines;
}

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

Follower::Follower(const std::filesystem::path& path, off_t from)
    : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)), at_(from) {}

Follower::~Follower() {
  if (fd_ >= 0) ::close(fd_);
}

void Follower::copy_new(Console& console) {
  std::array<char, 1 << 16> chunk{};
  for (;;) {
    const ssize_t n = fd_ < 0 ? 0 : ::pread(fd_, chunk.data(), chunk.size(), at_);
    if (n <= 0) return;
    at_ += n;
    console.output({chunk.data(), static_cast<std::size_t>(n)});
  }
}

}  // namespace colonnade::launch
