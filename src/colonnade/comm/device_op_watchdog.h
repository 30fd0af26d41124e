// Watchdog for operations that complete on the device after the host has moved on.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "colonnade/comm/backend.h"

namespace colonnade::comm {

/// One operation in progress.
struct DeviceOp {
  std::string text;  ///< description for errors: all_reduce "layer 3 / sum" on tp
  std::string what;  ///< name on the progress page
  Progress* page = nullptr;
  CollectiveTicket ticket;
  std::function<bool()> completed;  ///< queries the device; throws if the operation failed
  std::atomic<bool> host_waited{false};
};

/// NCCL's wait() only orders streams. One thread per process therefore polls every 20 ms, ends the tickets of
/// completed operations on the progress page, and publishes the oldest one that the host has waited for as
/// the operation this rank waits in. The launcher can then identify the rank that never joined it.
///
/// If an operation fails, or is the oldest for longer than the timeout, the group is lost: check() throws
/// from then on, in every thread. A host blocked in a device synchronization cannot throw; if the process has
/// not exited after `grace`, `on_lost` is called (it exits with code 4).
class DeviceOpWatchdog {
 public:
  DeviceOpWatchdog(std::chrono::milliseconds timeout, std::function<void()> on_lost,
                   std::chrono::milliseconds grace = std::chrono::seconds(5));
  ~DeviceOpWatchdog();
  DeviceOpWatchdog(const DeviceOpWatchdog&) = delete;
  DeviceOpWatchdog& operator=(const DeviceOpWatchdog&) = delete;

  /// Registers an operation and takes over the ticket of `call`. Throws like check().
  std::shared_ptr<DeviceOp> add(const Call& call, std::function<bool()> completed);
  /// Throws CommError if an operation was lost.
  void check() const;

 private:
  void watch();
  void poll();
  void publish_wait() const;
  void mark_lost(const std::string& reason);

  const std::chrono::milliseconds timeout_;
  const std::function<void()> on_lost_;
  const std::chrono::milliseconds grace_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::list<std::shared_ptr<DeviceOp>> ops_;  ///< oldest first
  std::chrono::steady_clock::time_point oldest_since_;
  std::string lost_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace colonnade::comm
