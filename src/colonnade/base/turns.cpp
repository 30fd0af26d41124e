// See turns.h.
#include "colonnade/base/turns.h"

#include <utility>

#include "colonnade/base/error.h"

namespace colonnade {

Turns::~Turns() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Turns::run(const std::function<void()>& first, const std::function<void()>& second) {
  {
    std::unique_lock lock(mutex_);
    COL_CHECK(turn_ == Side::kNone,
              "turns must not be nested; got a run within a run; fix the caller of Turns::run");
    first_ = &first;
    first_ended_ = second_ended_ = false;
    error_ = nullptr;
    turn_ = Side::kFirst;
    if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
    changed_.notify_all();
    changed_.wait(lock, [this] { return turn_ == Side::kSecond; });
  }
  take_turn(Side::kSecond, second);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return turn_ == Side::kNone; });
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void Turns::work() {
  for (;;) {
    const std::function<void()>* function = nullptr;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopped_ || (turn_ == Side::kFirst && first_ != nullptr); });
      if (stopped_) return;
      function = std::exchange(first_, nullptr);
    }
    take_turn(Side::kFirst, *function);
  }
}

void Turns::take_turn(Side side, const std::function<void()>& function) {
  std::exception_ptr error;
  bool abandoned = false;
  {
    const std::lock_guard lock(mutex_);
    abandoned = error_ != nullptr;  // the other one failed before this one began
  }
  if (!abandoned) {
    try {
      function();
    } catch (...) {
      error = std::current_exception();
    }
  }
  {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
    ended(side) = true;
    turn_ = ended(other(side)) ? Side::kNone : other(side);
  }
  changed_.notify_all();
}

void Turns::hand_over() {
  std::unique_lock lock(mutex_);
  const Side side = turn_;
  if (side == Side::kNone || ended(other(side))) {
    if (side != Side::kNone && error_) throw Abandoned();
    return;
  }
  turn_ = other(side);
  changed_.notify_all();
  changed_.wait(lock, [this, side] { return turn_ == side; });
  if (error_) throw Abandoned();
}

}  // namespace colonnade
