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
#include "colonnade/comm/flights.h"
#include "colonnade/comm/rendezvous.h"

namespace colonnade::comm {

/// What a new process group needs to know. `store` is the group's own part of the job's store.
struct GroupSeat {
  c10::intrusive_ptr<c10d::Store> store;
  std::vector<int> ranks;  ///< the members' ranks in the world
  int index = 0;           ///< of this rank among them
  std::chrono::milliseconds timeout{};
  bool one_machine = false;               ///< all ranks of the world are on this machine
  int device_index = 0;                   ///< CUDA device of this rank
  std::shared_ptr<Flights> flights = {};  ///< of the process; nccl only, which makes one where it is missing
};

/// What all seats of a rank have in common.
GroupSeat seat_of(const launch::Place& place, const ConnectOptions& options);

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

/// CPU tensors over TCP, without copies of whole ones; CUDA tensors are staged through host copies. Sums in
/// reduce_scatter are taken in rank order. Connects to all members; throws what c10d throws.
std::shared_ptr<Backend> make_gloo(const GroupSeat& seat);

/// Watches the operations of NCCL in this process and ends it with exit code 4 when one is lost.
std::shared_ptr<Flights> nccl_flights(std::chrono::milliseconds timeout);

/// CUDA tensors. bfloat16 sums are rounded at every step of NCCL's algorithm. Messages of one tag and
/// direction between two ranks are a lane: a communicator of its own, which keeps the order of sending.
/// The first use of a communicator holds up the host until all its members come, so lanes are opened in an
/// order that cannot deadlock (pipeline::Executor::open_lanes). A build without CUDA throws ConfigError.
///
/// Lost peers are noticed by `seat.flights`. c10d's own watchdog, which would end the process with another
/// exit code, is turned off by its environment variables, unless they are set already.
std::shared_ptr<Backend> make_nccl(const GroupSeat& seat);

}  // namespace colonnade::comm
