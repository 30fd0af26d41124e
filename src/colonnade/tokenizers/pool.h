// A pool of reusable objects.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace colonnade::tokenizers {

/// Lends a T to each concurrent caller and keeps it for the next one. Thread-safe.
template <typename T>
class Pool {
 public:
  /// Exclusive use of a T for the lifetime of the lease.
  class Lease {
   public:
    Lease(Pool& pool, std::unique_ptr<T> object) : pool_(pool), object_(std::move(object)) {}
    ~Lease() {
      const std::lock_guard lock(pool_.mutex_);
      pool_.free_.push_back(std::move(object_));
    }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    [[nodiscard]] T& operator*() const { return *object_; }

   private:
    Pool& pool_;
    std::unique_ptr<T> object_;
  };

  /// Leases a free T, or the std::unique_ptr<T> of `make()` if all are in use.
  template <typename Make>
  [[nodiscard]] Lease acquire(Make&& make) {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        std::unique_ptr<T> object = std::move(free_.back());
        free_.pop_back();
        return {*this, std::move(object)};
      }
    }
    return {*this, make()};
  }

 private:
  std::mutex mutex_;  // guards free_
  std::vector<std::unique_ptr<T>> free_;
};

}  // namespace colonnade::tokenizers
