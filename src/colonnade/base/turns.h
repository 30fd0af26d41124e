// Two functions that take turns, so that the communication of one overlaps with the computation of the other.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace colonnade {

/// Runs two functions on two threads, of which exactly one runs at any time. A function that has started
/// communication calls hand_over() before it waits for it; the other one then runs until it calls
/// hand_over() or ends:
///
///     first   compute, start an exchange ->                               -> wait, compute, start ...
///     second                                compute, start an exchange ->
///
/// The order of all calls depends only on the two functions, never on timing. So ranks that run the same
/// functions make their collective calls in the same order, and the results are those of running one
/// function after the other. The running function may call hand_over() from any thread, such as a thread of
/// the autograd engine that it waits for.
class Turns {
 public:
  Turns() = default;
  ~Turns();
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  /// Runs `first` on a thread of this object, which starts, and `second` on the calling thread. Returns when
  /// both have ended. If one throws, hand_over() throws Abandoned in the other, and the exception is rethrown
  /// here after both have ended. Must not be called by a function that it runs.
  void run(const std::function<void()>& first, const std::function<void()>& second);

  /// Lets the other function run. No-op if it has ended, and outside of run().
  void hand_over();

  /// Ends a function whose partner has failed.
  class Abandoned final : public std::exception {
   public:
    [[nodiscard]] const char* what() const noexcept override { return "the other of two passes has failed"; }
  };

 private:
  enum class Side : std::uint8_t { kNone, kFirst, kSecond };
  void work();  ///< body of the thread
  /// Calls `function` in its turn, and gives the turn away.
  void take_turn(Side side, const std::function<void()>& function);
  bool& ended(Side side) { return side == Side::kFirst ? first_ended_ : second_ended_; }
  [[nodiscard]] static Side other(Side side) { return side == Side::kFirst ? Side::kSecond : Side::kFirst; }

  std::mutex mutex_;  ///< guards what follows
  std::condition_variable changed_;
  Side turn_ = Side::kNone;  ///< the function that runs
  bool first_ended_ = false, second_ended_ = false, stopped_ = false;
  const std::function<void()>* first_ = nullptr;
  std::exception_ptr error_;  ///< of the function that failed first
  std::thread thread_;        ///< started by the first run()
};

}  // namespace colonnade
