// Process group: collectives and messages among a set of ranks. Includes no c10d header.
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

/// Row counts (dimension 0) of an all-to-all in member order: sent[r] rows go to member r, received[r] come
/// from it. The count that r sends to q must equal the count that q receives from r.
struct Rows {
  std::vector<std::int64_t> received, sent;
};

class Backend;  // comm/backend.h: gloo, nccl, threads, null

/// An operation in progress. wait() returns when the result may be used (on CUDA: by the current stream) and
/// throws CommError if a peer is lost or the timeout expires. Destroying an unfinished Work, or assigning to
/// it, waits, except during stack unwinding.
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

/// A value type: copies share the connection. With one member every call returns at once, so callers need no
/// test for size() == 1. `what` names the call in hang reports ("layer 3 / attention.proj / sum"). All
/// members must make collective calls in the same order with equal shapes. Tensors must be contiguous;
/// gradients do not flow through. On the CPU, bfloat16 and float16 are summed in float32 and rounded once;
/// NCCL rounds at each step. After a CommError the group is unusable; exit without waiting for other Works.
class Group {
 public:
  Group();  ///< a group of one
  /// Reports to the calling thread's progress() page for its whole lifetime.
  Group(std::shared_ptr<Backend> backend, std::string axes);

  [[nodiscard]] int rank() const;
  [[nodiscard]] int size() const;
  [[nodiscard]] const std::string& axes() const { return axes_; }  ///< "tp", "dp-cp", ...
  /// Global ranks of the members; empty for a default-constructed group.
  [[nodiscard]] const std::vector<int>& ranks() const;

  /// Reduces `tensor` over all members in place.
  Work all_reduce(at::Tensor tensor, std::string_view what, Reduce op = Reduce::kSum) const;
  /// out [size * n, ...] = the members' `in` [n, ...] in rank order along dimension 0.
  Work all_gather(at::Tensor out, at::Tensor in, std::string_view what) const;
  /// out [n, ...] = this rank's slice of the sum of all `in` [size * n, ...].
  Work reduce_scatter(at::Tensor out, at::Tensor in, std::string_view what) const;
  /// Copies root's `tensor` to all members.
  Work broadcast(at::Tensor tensor, int root, std::string_view what) const;
  /// `out` [sum of rows.received, ...] and `in` [sum of rows.sent, ...] do not overlap.
  Work all_to_all(at::Tensor out, at::Tensor in, const Rows& rows, std::string_view what) const;
  /// All-to-all with equal row counts.
  Work all_to_all(at::Tensor out, at::Tensor in, std::string_view what) const;
  /// Never blocks on the receiver; the tensor must not change before wait().
  Work send(at::Tensor tensor, int to, int tag, std::string_view what) const;
  Work recv(at::Tensor tensor, int from, int tag, std::string_view what) const;
  void barrier(std::string_view what) const;

  /// Every member's text, in rank order (settings, errors, file lists).
  [[nodiscard]] std::vector<std::string> all_gather_text(const std::string& text,
                                                         std::string_view what) const;

 private:
  /// Runs start(backend, call) and records it on the progress page.
  template <typename Start>
  Work run(std::string_view operation, std::string_view what, std::int64_t bytes, int peer,
           const Start& start) const;

  std::shared_ptr<Backend> backend_;
  std::string axes_;
  Progress* progress_ = nullptr;
  int progress_id_ = -1;  ///< id of this group on the progress page
};

}  // namespace colonnade::comm
