// See process.h. Between fork and exec only calls that are safe there are made.
#include "colonnade/launch/process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <string_view>

#include "colonnade/base/error.h"

namespace colonnade::launch {
namespace {

std::string_view meaning_of_code(int code) {
  switch (code) {
    case kExitDone:
      return "done";
    case kExitFailed:
      return "failed";
    case kExitSettings:
      return "settings wrong";
    case kExitData:
      return "data or checkpoint damaged";
    case kExitRankLost:
      return "it lost another rank";
    case kExitStopped:
      return "stopped as asked";
    default:
      return "not one of Colonnade's own";
  }
}

std::string_view hint_for_signal(int signal) {
  if (signal == SIGKILL) return "; when nobody sent it, memory ran out: see dmesg";
  if (signal == SIGBUS) return "; often a full /dev/shm or a file that shrank while mapped";
  return "";
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (const std::string& text : texts) list.push_back(const_cast<char*>(text.c_str()));
  list.push_back(nullptr);
  return list;
}

struct ChildPlan {
  char* const* arguments;
  char* const* environment;
  int output_fd;
  int error_fd;
  pid_t parent;
  sigset_t blocked;
};

/// The child's way from fork to exec; returns only the reason why it failed.
int become(const ChildPlan& plan) {
  ::setpgid(0, 0);
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return errno;
  if (::getppid() != plan.parent) ::_exit(kExitRankLost);  // the parent was gone before prctl
  const int null = ::open("/dev/null", O_RDONLY);
  if (null < 0 || ::dup2(null, STDIN_FILENO) < 0 || ::dup2(plan.output_fd, STDOUT_FILENO) < 0 ||
      ::dup2(plan.output_fd, STDERR_FILENO) < 0)
    return errno;
  if (null > STDERR_FILENO) ::close(null);
  for (const int signal : {SIGINT, SIGTERM, SIGPIPE}) ::signal(signal, SIG_DFL);
  ::sigprocmask(SIG_SETMASK, &plan.blocked, nullptr);
  ::execvpe(plan.arguments[0], plan.arguments, plan.environment);
  return errno;
}

/// `port`, or for 0 one that the system chooses, when nobody has it; else 0 and errno.
int bound_port(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t size = sizeof address;
  auto* const raw = reinterpret_cast<sockaddr*>(&address);
  const bool bound = fd >= 0 && ::bind(fd, raw, size) == 0 && ::getsockname(fd, raw, &size) == 0;
  const int reason = errno;
  if (fd >= 0) ::close(fd);
  errno = reason;
  return bound ? ntohs(address.sin_port) : 0;
}

}  // namespace

std::string describe(const Ending& ending) {
  if (ending.signal == 0) return fmt::format("exit code {} ({})", ending.code, meaning_of_code(ending.code));
  const char* const name = ::sigabbrev_np(ending.signal);
  return fmt::format("killed by SIG{} (signal {}{}{})", name != nullptr ? name : "?", ending.signal,
                     ending.core_dumped ? ", core dumped" : "", hint_for_signal(ending.signal));
}

pid_t start_process(const std::vector<std::string>& command, const std::vector<std::string>& environment,
                    int output_fd, bool block_stop_signals) {
  int pipe[2];
  if (::pipe2(pipe, O_CLOEXEC) != 0) throw Error(fmt::format("launch: no pipe; {}", std::strerror(errno)));
  const std::vector<char*> arguments = pointers(command);
  const std::vector<char*> variables = pointers(environment);
  ChildPlan plan{arguments.data(), variables.data(), output_fd, pipe[1], ::getpid(), {}};
  ::sigemptyset(&plan.blocked);
  if (block_stop_signals)
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&plan.blocked, signal);
  const pid_t child = ::fork();
  if (child == 0) {
    const int reason = become(plan);
    [[maybe_unused]] const auto written = ::write(plan.error_fd, &reason, sizeof reason);
    ::_exit(127);
  }
  const int fork_reason = errno;
  ::close(pipe[1]);
  int reason = 0;
  ssize_t got = 0;
  while (child > 0 && (got = ::read(pipe[0], &reason, sizeof reason)) < 0 && errno == EINTR) {
  }
  ::close(pipe[0]);
  if (child < 0) throw Error(fmt::format("launch: no new process; {}", std::strerror(fork_reason)));
  if (got == 0) return child;  // the pipe was closed by exec
  ::waitpid(child, nullptr, 0);
  throw ConfigError(
      fmt::format("{} must be a program that can be started; got '{}'; check the path after `--`",
                  command.front(), std::strerror(reason)));
}

Look look_at(pid_t pid) {
  Look seen;
  for (;;) {
    int status = 0;
    const pid_t changed = ::waitpid(pid, &status, WNOHANG | WUNTRACED | WCONTINUED);
    if (changed < 0 && errno == EINTR) continue;
    if (changed <= 0) return seen;
    if (WIFSTOPPED(status)) seen = {.stopped = true};
    if (WIFCONTINUED(status)) seen = {.continued = true};
    if (WIFEXITED(status)) seen.ending = Ending{WEXITSTATUS(status), 0, false};
    if (WIFSIGNALED(status)) seen.ending = Ending{0, WTERMSIG(status), WCOREDUMP(status) != 0};
    if (seen.ending) return seen;
  }
}

int usable_cores() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(CPU_COUNT(&set), 1);
}

int visible_gpus() {
  if (const char* const list = std::getenv("CUDA_VISIBLE_DEVICES")) {
    const std::string_view text(list);
    return text.empty() ? 0 : static_cast<int>(std::ranges::count(text, ',')) + 1;
  }
  int count = 0;
  while (::access(fmt::format("/dev/nvidia{}", count).c_str(), F_OK) == 0) ++count;
  return count;
}

int free_port() {
  // What the system gives to outgoing connections may be somebody's before rank 0 listens on it.
  constexpr int kFirst = 10'000, kLast = 65'535, kTries = 100;
  int first_outgoing = 32'768, last_outgoing = 60'999;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first_outgoing >> last_outgoing;
  std::random_device random;
  std::uniform_int_distribution<int> any(kFirst, kLast);
  for (int i = 0; i < kTries; ++i) {
    const int port = any(random);
    if ((port < first_outgoing || port > last_outgoing) && bound_port(port) != 0) return port;
  }
  const int port = bound_port(0);
  if (port != 0) return port;
  throw Error(fmt::format("launch: no free port; {}; give --master-port", std::strerror(errno)));
}

}  // namespace colonnade::launch
