// Prefetching of batches by worker threads.
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

/// Yields make(0), make(1), ... in order, computed by `num_workers` threads that run at most two batches each
/// ahead of next(). With 0 workers next() computes the batch itself. Batches do not depend on the number of
/// workers.
template <typename Batch>
class Prefetcher {
 public:
  using Make = std::function<Batch(std::int64_t index)>;

  /// `make` must be thread-safe; it may throw.
  Prefetcher(Make make, int num_workers) : make_(std::move(make)), max_ahead_(2 * std::max(num_workers, 0)) {
    for (int i = 0; i < num_workers; ++i) workers_.emplace_back([this] { work(); });
  }
  /// Waits for the batches in flight and discards them.
  ~Prefetcher() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    has_space_.notify_all();
  }
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  /// The next batch; rethrows the exception that `make` threw for it. For one caller at a time.
  Batch next() {
    if (workers_.empty()) return make_(next_++);
    std::unique_lock lock(mutex_);
    is_ready_.wait(lock, [this] { return done_.contains(next_); });
    Slot slot = std::move(done_.extract(next_++).mapped());
    lock.unlock();
    has_space_.notify_one();  // space for one more batch: the other workers keep sleeping
    if (slot.error != nullptr) std::rethrow_exception(slot.error);
    return std::move(slot.batch);
  }

 private:
  struct Slot {
    Batch batch;
    std::exception_ptr error;
  };
  void work() {
    // SCHED_BATCH keeps a worker woken by next() from preempting its caller, which would delay next() by some
    // milliseconds. The worker's CPU share stays the same. A failure is harmless.
    const sched_param unused{};
    if (::sched_getscheduler(0) == SCHED_OTHER)  // 0: this thread; any other policy was set deliberately
      ::sched_setscheduler(0, SCHED_BATCH, &unused);
    std::unique_lock lock(mutex_);
    for (;;) {
      has_space_.wait(lock, [this] { return stop_ || started_ < next_ + max_ahead_; });
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
      if (index == next_) is_ready_.notify_one();
    }
  }

  Make make_;
  std::mutex mutex_;
  std::condition_variable is_ready_;   // the batch that next() waits for is done
  std::condition_variable has_space_;  // another batch may be prefetched
  std::map<std::int64_t, Slot> done_;
  std::int64_t next_ = 0;     // index of the next batch to return
  std::int64_t started_ = 0;  // index of the next batch to compute
  bool stop_ = false;
  std::int64_t max_ahead_;
  std::vector<std::jthread> workers_;  // last member: threads use the ones above
};

}  // namespace colonnade::data
