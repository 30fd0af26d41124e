// See owner_lock.h. The record is text, "key: value", so that `cat` shows the owner.
#include "colonnade/base/owner_lock.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <mutex>
#include <sstream>
#include <utility>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/base/log.h"
#include "colonnade/base/progress.h"
#include "colonnade/base/random_id.h"
#include "colonnade/base/write_error.h"

namespace colonnade {
namespace {

namespace fs = std::filesystem;

constexpr double kPollS = 0.1;  // poll interval while another process holds the lock
constexpr double kSettleS = 1;  // without flock: time after which concurrent writers see who wrote last
constexpr double kCheckS = 1;   // interval at which the owner checks its file

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

/// Start time of a process in clock ticks since boot; empty if it has ended.
std::optional<std::int64_t> start_ticks_of(std::int64_t pid) {
  const std::string stat = first_line(fmt::format("/proc/{}/stat", pid));
  const std::size_t name_end = stat.rfind(')');  // the name may contain anything
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(stat.substr(name_end + 1));
  std::string state, skipped;
  fields >> state;
  if (state == "Z" || state == "X") return std::nullopt;
  constexpr int kStartTime = 22, kState = 3;
  for (int field = kState + 1; field < kStartTime; ++field) fields >> skipped;
  std::int64_t ticks = 0;
  return fields >> ticks ? std::optional(ticks) : std::nullopt;
}

std::string scheduler_job() {
  for (const auto& [variable, name] : {std::pair("SLURM_JOB_ID", "Slurm job"),
                                       std::pair("PBS_JOBID", "PBS job"), std::pair("LSB_JOBID", "LSF job")})
    if (const char* const id = std::getenv(variable); id != nullptr && *id != '\0')
      return fmt::format("{} {}", name, id);
  return "";
}

constexpr std::string_view kHead =
    "# The process that writes this folder. After a crash the next one replaces it.\n";

std::string to_text(const Owner& o) {
  return fmt::format(
      "{}host: {}\nboot: {}\npid_namespace: {}\npid: {}\nstart_ticks: {}\nsince: {}\njob: {}\nid: {}\n",
      kHead, o.host, o.boot, o.pid_namespace, o.pid, o.start_ticks, o.since, o.job, o.id);
}

void read_number(const std::string& text, std::int64_t& number) {
  std::from_chars(text.data(), text.data() + text.size(), number);
}

/// Empty if the last line is missing, as after a crash during the write.
std::optional<Owner> owner_in(const std::string& text) {
  Owner owner;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    const std::string key = line.substr(0, colon), value = line.substr(colon + 2);
    if (key == "host") owner.host = value;
    if (key == "boot") owner.boot = value;
    if (key == "pid_namespace") owner.pid_namespace = value;
    if (key == "pid") read_number(value, owner.pid);
    if (key == "start_ticks") read_number(value, owner.start_ticks);
    if (key == "since") owner.since = value;
    if (key == "job") owner.job = value;
    if (key == "id") owner.id = value;
  }
  return owner.id.empty() ? std::nullopt : std::optional(owner);
}

double seconds_between(std::int64_t from_ns, std::int64_t to_ns) {
  return static_cast<double>(to_ns - from_ns) * 1e-9;
}

std::int64_t modification_ns(const struct stat& file) {
  return static_cast<std::int64_t>(file.st_mtim.tv_sec) * 1'000'000'000 + file.st_mtim.tv_nsec;
}

void sleep_s(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

/// Current time of the clock that stamps files in `folder`; empty if no file can be created.
std::optional<std::int64_t> file_clock_ns(const fs::path& folder) {
  const fs::path probe = folder / fmt::format(".clock-{}-{}", host_name(), ::getpid());
  const int fd = ::open(probe.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return std::nullopt;
  struct stat about {};
  const bool known = ::futimens(fd, nullptr) == 0 && ::fstat(fd, &about) == 0;
  ::close(fd);
  ::unlink(probe.c_str());
  return known ? std::optional(modification_ns(about)) : std::nullopt;
}

}  // namespace

Owner owner_of_process() {
  std::error_code unknown;
  Owner me{.host = host_name(),
           .boot = first_line("/proc/sys/kernel/random/boot_id"),
           .pid_namespace = fs::read_symlink("/proc/self/ns/pid", unknown).string(),
           .pid = ::getpid(),
           .since = fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(std::time(nullptr))),
           .job = scheduler_job(),
           .id = random_id()};
  me.start_ticks = start_ticks_of(me.pid).value_or(0);
  return me;
}

std::string describe(const Owner& o) {
  return fmt::format("host {}, pid {}, since {}{}{}", o.host, o.pid, o.since, o.job.empty() ? "" : ", ",
                     o.job);
}

std::optional<Owner> read_owner(const fs::path& lock_file) {
  std::error_code absent;
  if (!fs::is_regular_file(lock_file, absent)) return std::nullopt;
  return owner_in(read_file(lock_file));
}

/// Contents and metadata of the lock file. Reopens it each time, so that a network file system asks its
/// server.
struct OwnerLock::LockFile {
  std::optional<Owner> owner;
  std::int64_t changed_ns = 0;
  ino_t inode = 0;

  explicit LockFile(const fs::path& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat about {};
    if (fd < 0) return;
    std::array<char, 4096> text{};
    if (::fstat(fd, &about) == 0) {
      const ssize_t got = ::pread(fd, text.data(), text.size(), 0);
      owner = owner_in({text.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0))});
      changed_ns = modification_ns(about);
      inode = about.st_ino;
    }
    ::close(fd);
  }
};

namespace {

enum class Liveness { kDead, kUnknown, kAlive };

/// Whether `other` ran under this kernel, so that its flock would be visible here.
bool same_kernel(const Owner& me, const Owner& other) { return !me.boot.empty() && me.boot == other.boot; }

/// Whether the pid of `other` is valid in this pid namespace.
bool same_pid_namespace(const Owner& me, const Owner& other) {
  return same_kernel(me, other) && me.pid_namespace == other.pid_namespace;
}

}  // namespace

/// State of a wait for the lock: the owner's heartbeats observed so far.
class OwnerLock::Wait {
 public:
  explicit Wait(const OwnerLock& lock) : lock_(lock), begin_ns_(monotonic_ns()), changed_ns_(begin_ns_) {}

  Liveness liveness(const LockFile& now) {
    if (!now.owner) return Liveness::kDead;
    owner_ = now.owner;
    if (same_pid_namespace(lock_.me_, *owner_))
      return start_ticks_of(owner_->pid) == owner_->start_ticks ? Liveness::kAlive : Liveness::kDead;
    if (!seen_) {
      const auto clock = file_clock_ns(lock_.path_.parent_path());
      seen_ = {owner_->id, now.changed_ns};
      stale_ = clock && seconds_between(now.changed_ns, *clock) > lock_.options_.stale_s;
    } else if (*seen_ != std::pair(owner_->id, now.changed_ns)) {
      seen_ = {owner_->id, now.changed_ns};
      changed_ns_ = monotonic_ns();
      changed_ = true;
      stale_ = false;
    }
    if (stale_ || seconds_between(changed_ns_, monotonic_ns()) > lock_.options_.stale_s)
      return Liveness::kDead;
    return changed_ ? Liveness::kAlive : Liveness::kUnknown;
  }

  [[nodiscard]] bool timed_out(Liveness liveness) const {
    if (liveness == Liveness::kUnknown) return false;
    const bool known = liveness == Liveness::kAlive || (owner_ && same_pid_namespace(lock_.me_, *owner_));
    return seconds_between(begin_ns_, monotonic_ns()) >
           (known ? lock_.options_.grace_s : lock_.options_.lease_s);
  }

  /// Logs one line after a second of waiting.
  void report(Liveness liveness) {
    if (reported_ || seconds_between(begin_ns_, monotonic_ns()) < 1) return;
    reported_ = true;
    const OwnerLockOptions& o = lock_.options_;
    const std::string what = liveness == Liveness::kAlive ? fmt::format("{} s for it to exit", o.grace_s)
                             : liveness == Liveness::kUnknown
                                 ? fmt::format("{} s for a heartbeat", o.stale_s)
                                 : fmt::format("{} s for its lock to expire", o.lease_s);
    log::info("{}: held by {}; waiting up to {}", lock_.path_.string(), name(), what);
  }

  [[nodiscard]] ConfigError held_error() const {
    return ConfigError(fmt::format("{}: one process at a time may write the folder; got {}, held by {}; {}",
                                   lock_.options_.thing, lock_.path_.parent_path().string(), name(),
                                   lock_.options_.fix));
  }

 private:
  [[nodiscard]] std::string name() const { return owner_ ? describe(*owner_) : "an unnamed process"; }

  const OwnerLock& lock_;
  std::int64_t begin_ns_;
  std::int64_t changed_ns_;  ///< last change of the file, by this process's clock
  std::optional<Owner> owner_;
  std::optional<std::pair<std::string, std::int64_t>> seen_;
  bool stale_ = false;
  bool changed_ = false;
  bool reported_ = false;
};

OwnerLock::OwnerLock(fs::path lock_file, OwnerLockOptions options)
    : path_(std::move(lock_file)), options_(std::move(options)), me_(owner_of_process()) {
  open();
  try {
    acquire();
  } catch (...) {
    close();
    throw;
  }
  refresher_ = std::jthread([this](const std::stop_token& stopped) { refresh_loop(stopped); });
}

OwnerLock::~OwnerLock() {
  refresher_ = {};
  const LockFile last(path_);
  // Unlink while locked: a waiting process then sees that the file is not the one it opened.
  if (last.owner && last.owner->id == me_.id && ::unlink(path_.c_str()) != 0)
    log::warning("{}: still names this process; {}", path_.string(), std::strerror(errno));
  close();
}

void OwnerLock::open() {
  fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd_ >= 0) return;
  if (is_no_space(errno)) throw_write_error(path_, errno);
  throw ConfigError(fmt::format("{}: the folder must be writable; got {} ({}); choose another folder",
                                options_.thing, path_.parent_path().string(), std::strerror(errno)));
}

void OwnerLock::close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

/// False while another process holds the flock. True if the file system has no locks: the record decides
/// alone.
bool OwnerLock::try_lock() {
  has_locks_ = options_.flock;
  if (!has_locks_) return true;
  while (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno == EWOULDBLOCK) return false;
    has_locks_ = false;
    return true;
  }
  return true;
}

void OwnerLock::acquire() {
  for (Wait wait(*this);; sleep_s(kPollS)) {
    const bool locked = try_lock();
    const LockFile now(path_);
    struct stat mine {};
    if (::fstat(fd_, &mine) != 0 || mine.st_ino != now.inode) {  // the file was removed
      close();
      open();
      continue;
    }
    const Liveness liveness = wait.liveness(now);
    const bool dead = liveness == Liveness::kDead || (has_locks_ && same_kernel(me_, *now.owner));
    if (locked && dead) {
      write(to_text(me_));
      if (has_locks_) return;
      sleep_s(kSettleS);
      const LockFile settled(path_);
      if (settled.owner && settled.owner->id == me_.id) return;
      continue;
    }
    if (wait.timed_out(liveness)) throw wait.held_error();
    if (options_.stop && options_.stop())
      throw StopRequested(fmt::format("{}: stopped while waiting for the owner of {}", options_.thing,
                                      path_.parent_path().string()));
    wait.report(liveness);
  }
}

void OwnerLock::write(const std::string& text) const {
  const bool written = ::ftruncate(fd_, 0) == 0 &&
                       ::pwrite(fd_, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()) &&
                       ::fsync(fd_) == 0;
  if (!written) throw_write_error(path_, errno == 0 ? ENOSPC : errno);
}

/// Rewrites a removed file, unless another process was faster; the next check detects that.
void OwnerLock::recreate_file() {
  const int fd = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) {
    if (errno == ENOENT && !std::exchange(removal_reported_, true))
      log::warning("{}: {} was removed while this process writes it", options_.thing,
                   path_.parent_path().string());
    return;
  }
  close();
  fd_ = fd;
  removal_reported_ = false;
  if (has_locks_) (void)try_lock();
  log::warning("{}: {} was removed while this process writes the folder; it was restored", options_.thing,
               path_.string());
  try {
    write(to_text(me_));
  } catch (const std::exception& error) {
    log::warning("{}", error.what());
  }
}

bool OwnerLock::confirm() {
  const std::lock_guard one(confirm_mutex_);
  const LockFile now(path_);
  if (now.inode == 0) recreate_file();
  if (!now.owner || now.owner->id == me_.id) return true;
  const std::string what = fmt::format(
      "{}: {} is now held by {}; {} was removed, or this process was suspended too long; it exits",
      options_.thing, path_.parent_path().string(), describe(*now.owner), path_.filename().string());
  if (options_.on_loss) {
    options_.on_loss(what);
    return false;
  }
  log::error("{}", what);
  ::_exit(kExitSettings);
}

void OwnerLock::refresh_loop(const std::stop_token& stopped) {
  std::mutex mutex;
  std::condition_variable_any wake;
  std::unique_lock lock(mutex);
  const double check_s = std::min(kCheckS, options_.refresh_s);
  for (double since_refresh_s = options_.refresh_s;;) {
    wake.wait_for(lock, stopped, std::chrono::duration<double>(check_s), [] { return false; });
    if (stopped.stop_requested() || !confirm()) return;
    since_refresh_s += check_s;
    if (since_refresh_s < options_.refresh_s) continue;
    const std::lock_guard one(confirm_mutex_);  // confirm() may replace the descriptor concurrently
    ::futimens(fd_, nullptr);
    since_refresh_s = 0;
  }
}

}  // namespace colonnade
