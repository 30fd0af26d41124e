// One owner at a time of a folder that several processes can reach: a lock file that says who holds it, also
// where the file system has no locks and after a crash.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace colonnade {

/// A process, as the lock file names it.
struct Owner {
  std::string host;
  std::string boot;           ///< id of this boot of the machine
  std::string pid_namespace;  ///< pids are comparable within one boot and namespace only
  std::int64_t pid = 0;
  std::int64_t start_ticks = 0;  ///< when the process started, in clock ticks since the boot
  std::string since;             ///< when it took the lock, "2026-11-21 13:04:08 UTC"
  std::string job;               ///< "Slurm job 77"; "" outside of a scheduler
  std::string id;                ///< differs for every lock ever taken
};

/// This process.
Owner owner_of_process();

/// "host n1, pid 4711, since 2026-11-21 13:04:08 UTC, Slurm job 77".
std::string describe(const Owner& owner);

/// The owner that the lock file names, dead or alive; nothing without a file and for another kind of file.
std::optional<Owner> read_owner(const std::filesystem::path& lock_file);

struct OwnerLockOptions {
  std::string thing = "lock";  ///< first words of the error: the setting or the folder
  std::string fix;             ///< last words of the error
  double grace_s = 5;          ///< a living owner has this time to end
  double refresh_s = 5;        ///< between two signs of life in the file (its modification time)
  double stale_s = 30;         ///< an owner that cannot be asked is dead after this time without one
  double lease_s = 120;        ///< a file server keeps the locks of a dead machine that long
  /// Asked while it waits; true ends the wait with StopRequested.
  std::function<bool()> stop = {};
  bool flock = true;  ///< false, for tests: as on a file system without locks
  /// Called once, by another thread, when another process has taken the lock, which can happen to an owner
  /// that was stopped for more than stale_s or whose file was removed. By default the process ends with exit
  /// code 2.
  std::function<void(const std::string& what)> on_loss = {};
};

/// Holds `lock_file` for its life. Readers of the folder ask for nothing.
///
/// The lock is flock(2), which ends with the process. The record in the file decides where that is not
/// enough: on file systems without locks, and with locks that other machines do not see. Under one
/// kernel a free flock proves that the owner is dead; without flock an owner of this pid namespace lives
/// while its process does. Any other shows its life by the file's modification time; who waits for it takes
/// the lock once that has not changed for stale_s, by the file system's own clock where the file is older.
/// Nothing is taken by a guess: a second process waits.
class OwnerLock {
 public:
  /// Takes the lock; waits grace_s for a living owner, up to stale_s or lease_s for one on another machine
  /// that may be dead. Throws ConfigError with the owner when it lives, or when the file cannot be written;
  /// StopRequested.
  explicit OwnerLock(std::filesystem::path lock_file, OwnerLockOptions options = {});
  /// Releases it and removes the file.
  ~OwnerLock();
  OwnerLock(const OwnerLock&) = delete;
  OwnerLock& operator=(const OwnerLock&) = delete;

  /// Looks at the file, as its own thread does every second: writes it again where it was removed. False,
  /// after on_loss, where another process has taken it.
  bool confirm();

 private:
  struct Look;
  class Wait;
  void open();
  void close();
  [[nodiscard]] bool try_lock();
  void take();
  void take_back();
  void write(const std::string& text) const;
  void keep(const std::stop_token& ended);

  std::filesystem::path path_;
  OwnerLockOptions options_;
  Owner me_;
  int fd_ = -1;
  bool has_locks_ = true;     ///< the file system knows flock
  bool folder_gone_ = false;  ///< reported
  std::mutex confirming_;
  std::jthread keeper_;
};

}  // namespace colonnade
