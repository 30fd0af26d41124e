// Shared state of the threads of run_ranks: collective barriers and point-to-point messages.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "colonnade/base/progress.h"
#include "colonnade/comm/group.h"

namespace colonnade::comm {

/// Arguments of one member, visible to the others during one collective.
struct CollectiveArgs {
  std::string_view operation;
  std::string_view what;
  at::ScalarType type = at::kByte;
  std::int64_t count = 0;  ///< elements of `in`, or elements per row of an all_to_all
  const void* in = nullptr;
  void* out = nullptr;
  const Rows* rows = nullptr;  ///< row counts of an all_to_all
};

class ThreadWorld;

/// State shared by the members of one group. A wait ends with CommError if a member that it needs has
/// finished, the timeout expires, or another member has given up.
class Mailbox {
 public:
  Mailbox(ThreadWorld& world, std::vector<int> ranks);

  /// Publishes `args` and waits for all members; all args may be read until end_collective().
  void begin_collective(int me, const CollectiveArgs& args);
  void end_collective(int me);
  [[nodiscard]] const CollectiveArgs& args(int member) const {
    return *args_[static_cast<std::size_t>(member)];
  }
  [[nodiscard]] int size() const { return static_cast<int>(ranks_.size()); }

  /// Point to point: messages of one (from, to, tag) arrive in sending order.
  void send(int from, int to, int tag, at::Tensor message);
  /// Sequence number of the next receive in that order.
  std::uint64_t reserve_receive(int from, int to, int tag);
  at::Tensor receive(int from, int to, int tag, std::uint64_t sequence);

 private:
  friend class ThreadWorld;
  struct Channel {
    std::uint64_t sent = 0, reserved = 0;
    std::map<std::uint64_t, at::Tensor> messages;
  };
  void barrier(std::unique_lock<std::mutex>& lock, int me);
  template <typename Ready, typename Missing>
  void wait(std::unique_lock<std::mutex>& lock, const Ready& ready, const Missing& missing);
  [[noreturn]] void give_up(const std::string& reason);

  ThreadWorld& world_;
  std::vector<int> ranks_;
  std::condition_variable changed_;
  std::vector<const CollectiveArgs*> args_;
  std::vector<bool> arrived_members_;
  int num_arrived_ = 0;
  std::uint64_t generation_ = 0;
  std::map<std::tuple<int, int, int>, Channel> channels_;
  std::string abort_reason_;  ///< reason why a member gave up
};

/// State shared by the ranks of one run_ranks call. One mutex guards all mailboxes.
class ThreadWorld {
 public:
  ThreadWorld(int size, std::chrono::milliseconds timeout);

  /// The mailbox of group `name`, created by the first member that asks.
  std::shared_ptr<Mailbox> mailbox(const std::string& name, const std::vector<int>& ranks);
  /// Records that `rank` has finished; `error` is null if its body returned.
  void finish(int rank, std::exception_ptr error, const std::string& message);
  /// The error of the rank that failed first, or null.
  [[nodiscard]] std::exception_ptr first_error() const { return first_error_; }
  [[nodiscard]] Progress& page(int rank) { return *pages_[static_cast<std::size_t>(rank)]; }

 private:
  friend class Mailbox;
  std::mutex mutex_;
  std::chrono::milliseconds timeout_;
  std::map<std::string, std::shared_ptr<Mailbox>> mailboxes_;
  std::vector<std::string> finish_reasons_;  ///< per rank: why it finished; "" while it runs
  std::vector<std::unique_ptr<Progress>> pages_;
  std::exception_ptr first_error_;
};

}  // namespace colonnade::comm
