// Meeting points of the threads behind run_ranks: who is here, what they posted, what is in the mail.
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

/// What a member shows the others for the time of one collective.
struct Post {
  std::string_view operation;
  std::string_view what;
  at::ScalarType type = at::kByte;
  std::int64_t count = 0;  ///< elements of `in`; of an exchange, those of a row
  const void* in = nullptr;
  void* out = nullptr;
  const Rows* rows = nullptr;  ///< of an exchange
};

class ThreadWorld;

/// The members of one group. All waits end with CommError when a member that is waited for has left,
/// when the time-out passes, or when another member has given up.
class Hub {
 public:
  Hub(ThreadWorld& world, std::vector<int> ranks);

  /// Shows `post` and waits for all members; the posts may be read until depart().
  void meet(int me, const Post& post);
  void depart(int me);
  [[nodiscard]] const Post& post(int member) const { return *posts_[static_cast<std::size_t>(member)]; }
  [[nodiscard]] int size() const { return static_cast<int>(ranks_.size()); }

  /// Point to point: letters of one (from, to, tag) arrive in the order of sending.
  void put(int from, int to, int tag, at::Tensor letter);
  /// The place of the next receive in that order.
  std::uint64_t expect(int from, int to, int tag);
  at::Tensor take(int from, int to, int tag, std::uint64_t number);

 private:
  friend class ThreadWorld;
  struct Box {
    std::uint64_t sent = 0, expected = 0;
    std::map<std::uint64_t, at::Tensor> letters;
  };
  void barrier(std::unique_lock<std::mutex>& lock, int me);
  template <typename Ready, typename Missing>
  void wait(std::unique_lock<std::mutex>& lock, const Ready& ready, const Missing& missing);
  [[noreturn]] void give_up(const std::string& reason);

  ThreadWorld& world_;
  std::vector<int> ranks_;
  std::condition_variable changed_;
  std::vector<const Post*> posts_;
  std::vector<bool> here_;
  int arrived_ = 0;
  std::uint64_t meetings_ = 0;
  std::map<std::tuple<int, int, int>, Box> mail_;
  std::string broken_;  ///< why a member gave up
};

/// What the ranks of one run_ranks call share. One mutex guards all hubs.
class ThreadWorld {
 public:
  ThreadWorld(int size, std::chrono::milliseconds timeout);

  /// The hub of `name`; made by the first member that asks.
  std::shared_ptr<Hub> hub(const std::string& name, const std::vector<int>& ranks);
  /// `rank` takes part no longer; `error` is null when its body returned.
  void leave(int rank, std::exception_ptr error, const std::string& message);
  /// The error of the rank that failed first, or null.
  [[nodiscard]] std::exception_ptr first_error() const { return first_error_; }
  [[nodiscard]] Progress& page(int rank) { return *pages_[static_cast<std::size_t>(rank)]; }

 private:
  friend class Hub;
  std::mutex mutex_;
  std::chrono::milliseconds timeout_;
  std::map<std::string, std::shared_ptr<Hub>> hubs_;
  std::vector<std::string> left_;  ///< per rank: why it left; "" while it takes part
  std::vector<std::unique_ptr<Progress>> pages_;
  std::exception_ptr first_error_;
};

}  // namespace colonnade::comm
