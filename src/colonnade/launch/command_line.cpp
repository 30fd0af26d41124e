// See command_line.h.
#include "colonnade/launch/command_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>

namespace colonnade::launch {
namespace {

/// `all` without its suffix `tail`; empty if it does not end with `tail` or equals it.
Words without_suffix(const Words& all, const Words& tail) {
  const auto rest = std::ssize(all) - std::ssize(tail);
  if (rest < 1 || !std::equal(tail.begin(), tail.end(), all.begin() + rest)) return {};
  return {all.begin(), all.begin() + rest};
}

Words arguments_of(const Words& words) {
  return words.empty() ? Words{} : Words(words.begin() + 1, words.end());
}

CommandLine make_command_line(Words start, const Words& arguments) {
  CommandLine line;
  line.verb = arguments.empty() ? "" : arguments.front();
  line.launched = start.size() > 1;
  // `colonnade launch ... --` starts this executable; other launchers start the program that they name last.
  line.program = start.empty() ? "" : start.back() == "--" ? start.front() : start.back();
  line.start = std::move(start);
  return line;
}

}  // namespace

Words words_of_process(int pid) {
  std::ifstream file(fmt::format("/proc/{}/cmdline", pid), std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  Words words;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\0', at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

CommandLine command_line(const Words& own, const Words& parent) {
  const Words arguments = arguments_of(own);
  if (Words start = arguments.empty() ? Words{} : without_suffix(parent, arguments); !start.empty())
    return make_command_line(std::move(start), arguments);
  return make_command_line(own.empty() ? Words{} : Words{own.front()}, arguments);
}

CommandLine command_line_of_process() {
  return command_line(words_of_process(::getpid()), words_of_process(::getppid()));
}

CommandLine command_line_of_launcher(const Words& own, const Words& command) {
  const Words arguments = arguments_of(command);
  return make_command_line(without_suffix(own, arguments), arguments);
}

}  // namespace colonnade::launch
