// Exclusive ownership of a folder by one process: a lock file that names its owner. It also works on file
// systems without locks and recovers after a crash.
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

/// Identity of a process as recorded in the lock file.
struct Owner {
  std::string host;
  std::string boot;           ///< boot id of the machine
  std::string pid_namespace;  ///< pids are only comparable within one boot and namespace
  std::int64_t pid = 0;
  std::int64_t start_ticks = 0;  ///< process start time in clock ticks since boot
  std::string since;             ///< time of acquisition, "2026-11-21 13:04:08 UTC"
  std::string job;               ///< "Slurm job 77"; "" without a scheduler
  std::string id;                ///< unique id of this acquisition
};

/// Identity of this process.
Owner owner_of_process();

/// "host n1, pid 4711, since 2026-11-21 13:04:08 UTC, Slurm job 77".
std::string describe(const Owner& owner);

/// Owner named by the lock file, dead or alive; empty if there is no file or it is not a lock file.
std::optional<Owner> read_owner(const std::filesystem::path& lock_file);

struct OwnerLockOptions {
  std::string thing = "lock";  ///< subject of the error: the setting or the folder
  std::string fix;             ///< fix clause of the error
  double grace_s = 5;          ///< wait for a living owner to exit
  double refresh_s = 5;        ///< heartbeat interval (the file's modification time)
  double stale_s = 30;         ///< a remote owner without a heartbeat for this long is dead
  double lease_s = 120;        ///< a file server keeps the locks of a dead machine this long
  /// Polled while waiting; true ends the wait with StopRequested.
  std::function<bool()> stop = {};
  bool flock = true;  ///< false in tests: emulates a file system without locks
  /// Called once, on another thread, if another process has taken the lock. This can happen to an owner that
  /// was suspended for more than stale_s or whose file was removed. By default the process exits with code 2.
  std::function<void(const std::string& what)> on_loss = {};
};

/// Holds `lock_file` for its lifetime (RAII). Readers of the folder need no lock.
///
/// The lock is flock(2), which the kernel releases with the process. The record in the file decides where
/// flock is not enough: on file systems without locks, and where other machines do not see them. Under one
/// kernel a free flock proves that the owner is dead. Without flock, an owner in the same pid namespace is
/// alive while its process exists. Any other owner proves liveness by the file's modification time: a waiting
/// process takes the lock once it has not changed for stale_s (by the file system's own clock if the file is
/// older). The lock is never taken on a guess: the second process waits.
class OwnerLock {
 public:
  /// Acquires the lock. Waits grace_s for a living owner, and up to stale_s or lease_s for a possibly dead
  /// one on another machine. Throws ConfigError, which names the owner, if it is alive, ConfigError if the
  /// file cannot be written, and StopRequested.
  explicit OwnerLock(std::filesystem::path lock_file, OwnerLockOptions options = {});
  /// Releases the lock and removes the file.
  ~OwnerLock();
  OwnerLock(const OwnerLock&) = delete;
  OwnerLock& operator=(const OwnerLock&) = delete;

  /// Checks the file, as the background thread does every second, and rewrites it if it was removed. False,
  /// after on_loss, if another process has taken the lock.
  bool confirm();

 private:
  struct LockFile;
  class Wait;
  void open();
  void close();
  [[nodiscard]] bool try_lock();
  void acquire();
  void recreate_file();
  void write(const std::string& text) const;
  void refresh_loop(const std::stop_token& stopped);

  std::filesystem::path path_;
  OwnerLockOptions options_;
  Owner me_;
  int fd_ = -1;
  bool has_locks_ = true;          ///< whether the file system supports flock
  bool removal_reported_ = false;  ///< whether the removal of the folder was reported
  std::mutex confirm_mutex_;
  std::jthread refresher_;
};

}  // namespace colonnade
