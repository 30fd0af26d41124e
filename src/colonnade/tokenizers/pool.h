// Things that one caller uses at a time, kept for the next one.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace colonnade::tokenizers {

/// Lends one T to each of the threads that ask at the same time. Safe to call from many threads.
template <typename T>
class Pool {
 public:
  /// A T for as long as the lease lives.
  class Lease {
   public:
    Lease(Pool& pool, std::unique_ptr<T> lent) : pool_(pool), lent_(std::move(lent)) {}
    ~Lease() {
      const std::lock_guard lock(pool_.mutex_);
      pool_.idle_.push_back(std::move(lent_));
    }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    [[nodiscard]] T& operator*() const { return *lent_; }

   private:
    Pool& pool_;
    std::unique_ptr<T> lent_;
  };

  /// `make()` gives a std::unique_ptr<T> where all are lent.
  template <typename Make>
  [[nodiscard]] Lease lend(Make&& make) {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        std::unique_ptr<T> lent = std::move(idle_.back());
        idle_.pop_back();
        return {*this, std::move(lent)};
      }
    }
    return {*this, make()};
  }

 private:
  std::mutex mutex_;  // guards the next
  std::vector<std::unique_ptr<T>> idle_;
};

}  // namespace colonnade::tokenizers
