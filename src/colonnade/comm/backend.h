// Backends of a Group: gloo and nccl between processes, shared memory between threads, none in a dry run.
// Group checks arguments and translates errors, so a backend does neither.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "colonnade/base/progress.h"
#include "colonnade/comm/group.h"

namespace colonnade::comm {

/// One call on a group, as shown in errors.
struct Call {
  std::string_view operation;  ///< "all_reduce", ...; a literal
  std::string what;            ///< name given by the caller: "layer 3 / attention.proj / sum"
  std::string axes;            ///< axes of the group: "tp"
  std::int64_t bytes = 0;      ///< size of this rank's larger tensor
  Progress* page = nullptr;    ///< progress page on which `ticket` was issued
  CollectiveTicket ticket;
  /// Set by a backend whose Work::wait() returns before the operation completes; it then ends the ticket
  /// itself.
  mutable bool backend_ends_ticket = false;
};

/// Operations have the semantics of Group. Arguments are already checked: contiguous, matching shapes,
/// size() > 1, peers in range. Any std::exception means that a peer or the connection is lost.
class Backend {
 public:
  /// `ranks`: global ranks of the members; this one is ranks[rank].
  Backend(std::vector<int> ranks, int rank) : ranks_(std::move(ranks)), rank_(rank) {}
  virtual ~Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return static_cast<int>(ranks_.size()); }
  [[nodiscard]] const std::vector<int>& ranks() const { return ranks_; }
  [[nodiscard]] virtual std::string_view name() const = 0;  ///< "gloo", ...
  /// Device for Group's own tensors (gathered texts).
  [[nodiscard]] virtual at::Device device() const { return at::Device(at::kCPU); }

  virtual Work all_reduce(at::Tensor tensor, Reduce op, const Call& call) = 0;
  virtual Work all_gather(at::Tensor out, at::Tensor in, const Call& call) = 0;
  virtual Work reduce_scatter(at::Tensor out, at::Tensor in, const Call& call) = 0;
  virtual Work broadcast(at::Tensor tensor, int root, const Call& call) = 0;
  virtual Work all_to_all(at::Tensor out, at::Tensor in, const Rows& rows, const Call& call) = 0;
  virtual Work send(at::Tensor tensor, int to, int tag, const Call& call) = 0;
  virtual Work recv(at::Tensor tensor, int from, int tag, const Call& call) = 0;
  virtual void barrier(const Call& call) = 0;

 private:
  std::vector<int> ranks_;
  int rank_;
};

/// "0, 1, 2, 3"; a long list is abbreviated: "0, 1, 2, ..., 1023".
std::string list_ranks(const std::vector<int>& ranks);

}  // namespace colonnade::comm
