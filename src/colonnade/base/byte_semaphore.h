// Limits the bytes that several threads process at a time.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace colonnade {

/// Counting semaphore in bytes.
class ByteSemaphore {
 public:
  explicit ByteSemaphore(std::int64_t limit) : limit_(limit) {}

  /// Blocks until `bytes` fit in the limit or nothing else is in use. False if the semaphore was closed.
  bool acquire(std::int64_t bytes) {
    std::unique_lock lock(mutex_);
    available_.wait(lock, [&] { return closed_ || in_use_ == 0 || in_use_ + bytes <= limit_; });
    in_use_ += bytes;
    return !closed_;
  }
  void release(std::int64_t bytes) {
    const std::lock_guard lock(mutex_);
    in_use_ -= bytes;
    available_.notify_all();
  }
  /// RAII guard: acquires on construction, releases on destruction.
  class Guard {
   public:
    Guard(ByteSemaphore& gate, std::int64_t bytes) : gate_(gate), bytes_(bytes) { gate_.acquire(bytes_); }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    ~Guard() { gate_.release(bytes_); }

   private:
    ByteSemaphore& gate_;
    std::int64_t bytes_;
  };
  /// Unblocks all waiting threads.
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    available_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable available_;
  std::int64_t limit_;
  std::int64_t in_use_ = 0;
  bool closed_ = false;
};

}  // namespace colonnade
