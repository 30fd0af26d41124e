// See prefetcher.h.
#include "colonnade/data/prefetcher.h"

#include <algorithm>

namespace colonnade::data {

Prefetcher::Prefetcher(Make make, int num_workers)
    : make_(std::move(make)), ahead_(2 * std::max(num_workers, 0)) {
  for (int i = 0; i < num_workers; ++i) workers_.emplace_back([this] { work(); });
}

Prefetcher::~Prefetcher() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
}

void Prefetcher::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || started_ < wanted_ + ahead_; });
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
    changed_.notify_all();
  }
}

HostBatch Prefetcher::next() {
  if (workers_.empty()) return make_(wanted_++);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return done_.contains(wanted_); });
  Slot slot = std::move(done_.extract(wanted_++).mapped());
  changed_.notify_all();
  lock.unlock();
  if (slot.error != nullptr) std::rethrow_exception(slot.error);
  return std::move(slot.batch);
}

}  // namespace colonnade::data
