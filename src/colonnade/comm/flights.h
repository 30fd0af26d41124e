// Operations that a device carries out after the host went on: who is late is seen by a thread of its own.
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

/// One operation under way.
struct Flight {
  std::string text;  ///< for messages: all_reduce "layer 3 / sum" on tp
  std::string what;  ///< for the page of progress
  Progress* page = nullptr;
  CollectiveTicket ticket;
  std::function<bool()> over;  ///< asks the device; throws when the operation has failed
  std::atomic<bool> awaited{false};
};

/// NCCL's wait() orders streams and returns. So one thread per process asks every 20 ms which operations are
/// over and ends their tickets on the page, and shows the oldest one that the host has waited for as what
/// this rank waits in: the launcher then blames the rank that did not come and not the one that stands here.
///
/// An operation that fails, or is the oldest for longer than the time-out, loses the group: check() throws
/// from then on, in every thread. A host that stands in a synchronisation with the device cannot throw; when
/// it has not ended after `grace`, `give_up` is called (it ends the process with exit code 4).
class Flights {
 public:
  Flights(std::chrono::milliseconds timeout, std::function<void()> give_up,
          std::chrono::milliseconds grace = std::chrono::seconds(5));
  ~Flights();
  Flights(const Flights&) = delete;
  Flights& operator=(const Flights&) = delete;

  /// Takes over the ticket of `call`. Throws as check().
  std::shared_ptr<Flight> add(const Call& call, std::function<bool()> over);
  /// Throws CommError when an operation is lost.
  void check() const;

 private:
  void watch();
  void look();
  void show() const;
  void lose(const std::string& reason);

  const std::chrono::milliseconds timeout_;
  const std::function<void()> give_up_;
  const std::chrono::milliseconds grace_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::list<std::shared_ptr<Flight>> flights_;  ///< oldest first
  std::chrono::steady_clock::time_point oldest_since_;
  std::string lost_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace colonnade::comm
