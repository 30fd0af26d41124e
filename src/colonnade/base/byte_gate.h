// How many bytes several threads work on at a time.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace colonnade {

class ByteGate {
 public:
  explicit ByteGate(std::int64_t limit) : limit_(limit) {}

  /// Waits until there is room, or nobody inside. False: it was closed.
  bool enter(std::int64_t bytes) {
    std::unique_lock lock(mutex_);
    room_.wait(lock, [&] { return closed_ || inside_ == 0 || inside_ + bytes <= limit_; });
    inside_ += bytes;
    return !closed_;
  }
  void leave(std::int64_t bytes) {
    const std::lock_guard lock(mutex_);
    inside_ -= bytes;
    room_.notify_all();
  }
  /// Enters for as long as it lives.
  class Pass {
   public:
    Pass(ByteGate& gate, std::int64_t bytes) : gate_(gate), bytes_(bytes) { gate_.enter(bytes_); }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;
    ~Pass() { gate_.leave(bytes_); }

   private:
    ByteGate& gate_;
    std::int64_t bytes_;
  };
  /// Lets everybody in.
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    room_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable room_;
  std::int64_t limit_;
  std::int64_t inside_ = 0;
  bool closed_ = false;
};

}  // namespace colonnade
