// The two backends between processes, both of c10d. For rendezvous.cpp only: this header and its
// sources are the ones that see c10d.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <chrono>
#include <memory>
#include <vector>

#include "colonnade/comm/backend.h"

namespace colonnade::comm {

/// What a new process group needs to know. `store` is the group's own part of the job's store.
struct GroupSeat {
  c10::intrusive_ptr<c10d::Store> store;
  std::vector<int> ranks;  ///< the members' ranks in the world
  int index = 0;           ///< of this rank among them
  std::chrono::milliseconds timeout{};
  bool one_machine = false;  ///< all ranks of the world are on this machine
  int device_index = 0;      ///< CUDA device of this rank
};

/// An operation that c10d has started.
using Started = c10::intrusive_ptr<c10d::Work>;

inline c10d::AllreduceOptions reduce_options(Reduce op) {
  c10d::AllreduceOptions options;
  options.reduceOp = op == Reduce::kMax   ? c10d::ReduceOp::MAX
                     : op == Reduce::kMin ? c10d::ReduceOp::MIN
                                          : c10d::ReduceOp::SUM;
  return options;
}

inline c10d::BroadcastOptions root_options(int root) {
  c10d::BroadcastOptions options;
  options.rootRank = root;
  return options;
}

/// CPU tensors over TCP; CUDA tensors are staged through host copies. Sums in reduce_scatter are taken
/// in rank order. Connects to all members; throws what c10d throws.
std::shared_ptr<Backend> make_gloo(const GroupSeat& seat);

/// CUDA tensors. bfloat16 sums are rounded at every step of NCCL's algorithm. Messages of one tag and
/// direction travel on a communicator of their own, in the order of sending. A build without CUDA
/// throws ConfigError.
std::shared_ptr<Backend> make_nccl(const GroupSeat& seat);

}  // namespace colonnade::comm
