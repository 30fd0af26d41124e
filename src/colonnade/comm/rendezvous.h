// Rendezvous of a job's processes: one store at the master address, and groups created through it.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "colonnade/comm/communicators.h"
#include "colonnade/launch/rank_environment.h"

namespace colonnade::comm {

struct ConnectOptions {
  /// Timeout of the rendezvous and of every operation of every group (--distributed-timeout-minutes).
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  bool cuda = false;           ///< use nccl for CUDA tensors and gloo for others
  int device_index = 0;        ///< CUDA device of this rank
  bool gloo_for_cuda = false;  ///< use gloo with host copies on any device, so that ranks may share a GPU
};

/// This rank's view of the job. A value type: copies share the connection. A world of one opens no socket.
class World {
 public:
  [[nodiscard]] int rank() const { return place_.rank; }
  [[nodiscard]] int size() const { return place_.world_size; }
  [[nodiscard]] const launch::RankEnvironment& place() const { return place_; }
  /// Factory for Communicators.
  [[nodiscard]] const std::shared_ptr<GroupFactory>& factory() const { return factory_; }
  /// Returns when all ranks have called it with `name`, which must be new. Uses the store, so it needs no
  /// group. Throws CommError with the count and list of the missing ranks.
  void barrier(std::string_view name) const;
  void barrier(std::string_view name, std::chrono::milliseconds timeout) const;

 private:
  friend World connect(const launch::RankEnvironment& place, const ConnectOptions& options);
  struct Store;
  launch::RankEnvironment place_;
  std::chrono::milliseconds timeout_{};
  std::shared_ptr<Store> store_;
  std::shared_ptr<GroupFactory> factory_;
};

/// Connects to the other ranks. Rank 0 hosts the store at the master port unless torchrun's agent does. If
/// all ranks are on one machine, sockets listen on loopback only, and torchrun's store is used only to
/// exchange the port of rank 0's store. Throws ConfigError if the port is in use or the address is unknown,
/// CommError if the master does not answer or ranks do not arrive within the timeout.
World connect(const launch::RankEnvironment& place, const ConnectOptions& options);

/// Compares the settings of all ranks; collective over `world`. Throws ConfigError on every rank, listing
/// each setting that differs from rank 0 with its rank and both values.
void check_same_settings(const Group& world, const std::map<std::string, std::string>& settings);

}  // namespace colonnade::comm
