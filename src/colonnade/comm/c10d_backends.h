// The two backends between processes, gloo and NCCL, both through c10d. Internal to comm/: only this header,
// its sources and rendezvous.cpp include c10d.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <chrono>
#include <memory>
#include <vector>

#include "colonnade/comm/backend.h"
#include "colonnade/comm/device_op_watchdog.h"
#include "colonnade/comm/rendezvous.h"

namespace colonnade::comm {

/// Parameters of a new process group. `store` is the job's store under a prefix of this group.
struct GroupSpec {
  c10::intrusive_ptr<c10d::Store> store;
  std::vector<int> ranks;  ///< global ranks of the members
  int index = 0;           ///< position of this rank among them
  std::chrono::milliseconds timeout{};
  bool one_machine = false;  ///< all ranks of the world are on this machine
  int device_index = 0;      ///< CUDA device of this rank
  /// Watchdog of the process, for NCCL only; make_nccl() creates one if it is null.
  std::shared_ptr<DeviceOpWatchdog> watchdog = {};
};

/// The parameters that all groups of a rank share.
GroupSpec base_group_spec(const launch::RankEnvironment& place, const ConnectOptions& options);

/// A c10d operation in progress.
using C10dWork = c10::intrusive_ptr<c10d::Work>;

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

/// CPU tensors over TCP, without a full-size copy; CUDA tensors are staged through host copies.
/// reduce_scatter sums in rank order. Connects to all members; c10d's exceptions pass through.
std::shared_ptr<Backend> make_gloo(const GroupSpec& spec);

/// Watchdog for NCCL operations of this process; it exits with code 4 when one is lost.
std::shared_ptr<DeviceOpWatchdog> make_nccl_watchdog(std::chrono::milliseconds timeout);

/// CUDA tensors. bfloat16 sums are rounded at every step of NCCL's algorithm. Messages of one tag and
/// direction between two ranks use a communicator of their own, which preserves their order.
/// The first use of a communicator blocks the host until all its members join, so these communicators are
/// created in an order that cannot deadlock (pipeline::Executor::warm_up_p2p). Without CUDA: ConfigError.
///
/// `spec.watchdog` detects lost peers. c10d's own watchdog, which would exit with another code, is disabled
/// through its environment variables unless they are already set.
std::shared_ptr<Backend> make_nccl(const GroupSpec& spec);

}  // namespace colonnade::comm
