// Ranks that talk to each other. No c10d header is pulled in.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace colonnade {
class Progress;
}

namespace colonnade::comm {

enum class Reduce { kSum, kMax, kMin };

/// How the rows (dimension 0) of an exchange are cut: sent[r] of them go to member r, received[r] come from
/// it, in the order of members. What r sends to q is what q receives from r.
struct Rows {
  std::vector<std::int64_t> received, sent;
};

class Backend;  // comm/backend.h: gloo, nccl, threads, null

/// A started operation. wait() returns when the result may be used (on CUDA: when the current
/// stream may use it); it throws CommError when a peer is lost or the timeout passes. Dropping an
/// unfinished Work, or assigning over it, waits; while an exception unwinds the stack it does not.
class Work {
 public:
  Work() = default;
  explicit Work(std::function<void()> wait) : wait_(std::move(wait)) {}
  Work(Work&& other) noexcept : wait_(std::exchange(other.wait_, nullptr)) {}
  Work& operator=(Work&& other);
  ~Work();
  void wait();
  [[nodiscard]] bool pending() const { return static_cast<bool>(wait_); }

 private:
  std::function<void()> wait_;
};

/// A value: copies share the connection. With one member every call returns at once, so callers
/// never test for size() == 1. Every call takes the name that is shown when it hangs ("layer 3 /
/// attention.proj / sum"). Collective: all members call it in the same order with equal shapes.
/// Tensors are contiguous; gradients do not flow through. On the CPU, sums of bfloat16 and
/// float16 are taken in float32 and rounded once; NCCL rounds at each of its steps. Errors: CommError;
/// the group is unusable after that, and the program should end without waiting for other Works.
class Group {
 public:
  Group();  ///< a group of one
  /// Reports to the calling thread's progress() page for the rest of its life.
  Group(std::shared_ptr<Backend> backend, std::string axes);

  [[nodiscard]] int rank() const;
  [[nodiscard]] int size() const;
  [[nodiscard]] const std::string& axes() const { return axes_; }  ///< "tp", "dp-cp", ...
  /// The members' ranks in the world; empty for a group made by Group().
  [[nodiscard]] const std::vector<int>& ranks() const;

  /// In place: `tensor` becomes its reduction over all members.
  Work all_reduce(at::Tensor tensor, std::string_view what, Reduce op = Reduce::kSum) const;
  /// out [size * n, ...] = the members' `in` [n, ...] in rank order along dimension 0.
  Work all_gather(at::Tensor out, at::Tensor in, std::string_view what) const;
  /// out [n, ...] = this rank's slice of the sum of all `in` [size * n, ...].
  Work reduce_scatter(at::Tensor out, at::Tensor in, std::string_view what) const;
  /// Everybody gets root's `tensor`.
  Work broadcast(at::Tensor tensor, int root, std::string_view what) const;
  /// `out` [sum of rows.received, ...] and `in` [sum of rows.sent, ...] do not overlap.
  Work all_to_all(at::Tensor out, at::Tensor in, const Rows& rows, std::string_view what) const;
  /// The same with as many rows for each.
  Work all_to_all(at::Tensor out, at::Tensor in, std::string_view what) const;
  /// Never waits for the receiver; the tensor must not change before the Work is waited for.
  Work send(at::Tensor tensor, int to, int tag, std::string_view what) const;
  Work recv(at::Tensor tensor, int from, int tag, std::string_view what) const;
  void barrier(std::string_view what) const;

  /// Every member's text, in rank order (settings, errors, file lists).
  [[nodiscard]] std::vector<std::string> all_gather_text(const std::string& text,
                                                         std::string_view what) const;

 private:
  /// Runs start(backend, call) under a name on the page of progress.
  template <typename Start>
  Work run(std::string_view operation, std::string_view what, std::int64_t bytes, int peer,
           const Start& start) const;

  std::shared_ptr<Backend> backend_;
  std::string axes_;
  Progress* progress_ = nullptr;
  int number_ = -1;  ///< of this group on the page
};

}  // namespace colonnade::comm
