// See process.h. Only async-signal-safe calls are made between fork and exec.
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

std::string_view exit_code_meaning(int code) {
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
      return "stopped as requested";
    default:
      return "not one of Colonnade's own";
  }
}

std::string_view hint_for_signal(int signal) {
  if (signal == SIGKILL) return "; if nobody sent it, the OOM killer did: see dmesg";
  if (signal == SIGBUS) return "; often a full /dev/shm or a file that shrank while mapped";
  return "";
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (const std::string& text : texts) list.push_back(const_cast<char*>(text.c_str()));
  list.push_back(nullptr);
  return list;
}

struct ExecArgs {
  char* const* arguments;
  char* const* environment;
  int output_fd;
  int error_fd;
  pid_t parent;
  sigset_t blocked;
};

/// Sets up the child and calls exec. Returns only on failure, with errno.
int exec_child(const ExecArgs& args) {
  ::setpgid(0, 0);
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return errno;
  if (::getppid() != args.parent) ::_exit(kExitRankLost);  // the parent exited before prctl
  const int null = ::open("/dev/null", O_RDONLY);
  if (null < 0 || ::dup2(null, STDIN_FILENO) < 0 || ::dup2(args.output_fd, STDOUT_FILENO) < 0 ||
      ::dup2(args.output_fd, STDERR_FILENO) < 0)
    return errno;
  if (null > STDERR_FILENO) ::close(null);
  for (const int signal : {SIGINT, SIGTERM, SIGPIPE}) ::signal(signal, SIG_DFL);
  ::sigprocmask(SIG_SETMASK, &args.blocked, nullptr);
  ::execvpe(args.arguments[0], args.arguments, args.environment);
  return errno;
}

/// `port` if it can be bound, or for 0 a port chosen by the system; else 0, with errno set.
int try_bind(int port) {
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

std::string describe(const ExitStatus& status) {
  if (status.signal == 0)
    return fmt::format("exit code {} ({})", status.code, exit_code_meaning(status.code));
  const char* const name = ::sigabbrev_np(status.signal);
  return fmt::format("killed by SIG{} (signal {}{}{})", name != nullptr ? name : "?", status.signal,
                     status.core_dumped ? ", core dumped" : "", hint_for_signal(status.signal));
}

pid_t start_process(const std::vector<std::string>& command, const std::vector<std::string>& environment,
                    int output_fd, bool block_stop_signals) {
  int pipe[2];
  if (::pipe2(pipe, O_CLOEXEC) != 0)
    throw Error(fmt::format("launch: cannot create a pipe; {}", std::strerror(errno)));
  const std::vector<char*> arguments = pointers(command);
  const std::vector<char*> variables = pointers(environment);
  ExecArgs args{arguments.data(), variables.data(), output_fd, pipe[1], ::getpid(), {}};
  ::sigemptyset(&args.blocked);
  if (block_stop_signals)
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&args.blocked, signal);
  const pid_t child = ::fork();
  if (child == 0) {
    const int reason = exec_child(args);
    [[maybe_unused]] const auto written = ::write(args.error_fd, &reason, sizeof reason);
    ::_exit(127);
  }
  const int fork_reason = errno;
  ::close(pipe[1]);
  int reason = 0;
  ssize_t got = 0;
  while (child > 0 && (got = ::read(pipe[0], &reason, sizeof reason)) < 0 && errno == EINTR) {
  }
  ::close(pipe[0]);
  if (child < 0) throw Error(fmt::format("launch: cannot fork; {}", std::strerror(fork_reason)));
  if (got == 0) return child;  // exec closed the pipe
  ::waitpid(child, nullptr, 0);
  throw ConfigError(fmt::format("{} must be an executable program; got '{}'; check the path after `--`",
                                command.front(), std::strerror(reason)));
}

StateChange poll_child(pid_t pid) {
  StateChange change;
  for (;;) {
    int status = 0;
    const pid_t changed = ::waitpid(pid, &status, WNOHANG | WUNTRACED | WCONTINUED);
    if (changed < 0 && errno == EINTR) continue;
    if (changed <= 0) return change;
    if (WIFSTOPPED(status)) change = {.stopped = true};
    if (WIFCONTINUED(status)) change = {.continued = true};
    if (WIFEXITED(status)) change.exit = ExitStatus{WEXITSTATUS(status), 0, false};
    if (WIFSIGNALED(status)) change.exit = ExitStatus{0, WTERMSIG(status), WCOREDUMP(status) != 0};
    if (change.exit) return change;
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
  // A port in the ephemeral range may be assigned to an outgoing connection before rank 0 listens on it.
  constexpr int kFirst = 10'000, kLast = 65'535, kTries = 100;
  int first_ephemeral = 32'768, last_ephemeral = 60'999;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first_ephemeral >> last_ephemeral;
  std::random_device random;
  std::uniform_int_distribution<int> any(kFirst, kLast);
  for (int i = 0; i < kTries; ++i) {
    const int port = any(random);
    if ((port < first_ephemeral || port > last_ephemeral) && try_bind(port) != 0) return port;
  }
  const int port = try_bind(0);
  if (port != 0) return port;
  throw Error(fmt::format("launch: cannot bind a free port; {}; give --master-port", std::strerror(errno)));
}

}  // namespace colonnade::launch
