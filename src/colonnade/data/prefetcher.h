// Batches made ahead of the training step by threads.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "colonnade/data/gpt_batches.h"

namespace colonnade::data {

/// Gives make(0), make(1), ... in order, made by `num_workers` threads that run at most two batches each
/// ahead of next(). With 0 workers next() makes the batch itself. The batches do not depend on the number of
/// workers.
class Prefetcher {
 public:
  using Make = std::function<HostBatch(std::int64_t index)>;

  /// make must be safe to call from many threads; it may throw.
  Prefetcher(Make make, int num_workers);
  /// Waits for the batches that are being made, drops them.
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  /// The next batch; throws what make threw for it. For one caller at a time.
  HostBatch next();

 private:
  struct Slot {
    HostBatch batch;
    std::exception_ptr error;
  };
  void work();

  Make make_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::int64_t, Slot> done_;
  std::int64_t wanted_ = 0;   // the batch next() gives next
  std::int64_t started_ = 0;  // the batch a worker makes next
  bool stop_ = false;
  std::int64_t ahead_;
  std::vector<std::jthread> workers_;  // last: they use the members above
};

}  // namespace colonnade::data
