// Batches made ahead of the training step by threads.
#pragma once

#include <sched.h>

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace colonnade::data {

/// Gives make(0), make(1), ... in order, made by `num_workers` threads that run at most two batches each
/// ahead of next(). With 0 workers next() makes the batch itself. The batches do not depend on the number of
/// workers.
template <typename Batch>
class Prefetcher {
 public:
  using Make = std::function<Batch(std::int64_t index)>;

  /// make must be safe to call from many threads; it may throw.
  Prefetcher(Make make, int num_workers) : make_(std::move(make)), ahead_(2 * std::max(num_workers, 0)) {
    for (int i = 0; i < num_workers; ++i) workers_.emplace_back([this] { work(); });
  }
  /// Waits for the batches that are being made, drops them.
  ~Prefetcher() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    room_.notify_all();
  }
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  /// The next batch; throws what make threw for it. For one caller at a time.
  Batch next() {
    if (workers_.empty()) return make_(wanted_++);
    std::unique_lock lock(mutex_);
    made_.wait(lock, [this] { return done_.contains(wanted_); });
    Slot slot = std::move(done_.extract(wanted_++).mapped());
    lock.unlock();
    room_.notify_one();  // for one batch more: the other workers sleep on
    if (slot.error != nullptr) std::rethrow_exception(slot.error);
    return std::move(slot.batch);
  }

 private:
  struct Slot {
    Batch batch;
    std::exception_ptr error;
  };
  void work() {
    // Woken by next(), it would else take the processor from who called it, to whom next() then is not back
    // for some milliseconds. Its share of the processor stays the same; where this is refused it goes on as
    // it is.
    const sched_param unused{};
    if (::sched_getscheduler(0) == SCHED_OTHER)  // 0: this thread; another policy is somebody's choice
      ::sched_setscheduler(0, SCHED_BATCH, &unused);
    std::unique_lock lock(mutex_);
    for (;;) {
      room_.wait(lock, [this] { return stop_ || started_ < wanted_ + ahead_; });
      if (stop_) return;
      const std::int64_t index = started_++;
      lock.unlock();
      Slot slot;
      try {
        slot.batch = make_(index);
      } catch (...) {
        slot.error = std::current_exception();
      }
      lock.lock();
      done_.emplace(index, std::move(slot));
      if (index == wanted_) made_.notify_one();
    }
  }

  Make make_;
  std::mutex mutex_;
  std::condition_variable made_;  // the batch that next() waits for
  std::condition_variable room_;  // for a further batch ahead
  std::map<std::int64_t, Slot> done_;
  std::int64_t wanted_ = 0;   // the batch next() gives next
  std::int64_t started_ = 0;  // the batch a worker makes next
  bool stop_ = false;
  std::int64_t ahead_;
  std::vector<std::jthread> workers_;  // last: they use the members above
};

}  // namespace colonnade::data
