// How the processes of a job find each other: one store at the master's address, groups over it.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "colonnade/comm/communicators.h"
#include "colonnade/launch/place.h"

namespace colonnade::comm {

struct ConnectOptions {
  /// Of every wait: for peers at the start, and of every operation of every group
  /// (--distributed-timeout-minutes).
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  bool cuda = false;           ///< CUDA tensors go over nccl, others over gloo
  int device_index = 0;        ///< of the CUDA device on which this rank's tensors are
  bool gloo_for_cuda = false;  ///< over gloo with host copies, on any device: ranks may share one
};

/// The job as one rank sees it. A value; copies share the connection. In a world of one no socket is
/// opened.
class World {
 public:
  [[nodiscard]] int rank() const { return place_.rank; }
  [[nodiscard]] int size() const { return place_.world_size; }
  [[nodiscard]] const launch::Place& place() const { return place_; }
  /// What Communicators are made of.
  [[nodiscard]] const std::shared_ptr<GroupFactory>& factory() const { return factory_; }
  /// Returns when all ranks have called it with this name; a name is used once. Goes through the store,
  /// so it needs no group. Throws CommError that counts and names the missing ranks.
  void barrier(std::string_view name) const;
  void barrier(std::string_view name, std::chrono::milliseconds timeout) const;

 private:
  friend World connect(const launch::Place& place, const ConnectOptions& options);
  struct Meeting;  // the store
  launch::Place place_;
  std::chrono::milliseconds timeout_{};
  std::shared_ptr<Meeting> meeting_;
  std::shared_ptr<GroupFactory> factory_;
};

/// Meets the other ranks. Rank 0 hosts the store at the master's port unless torchrun's agent does. Where all
/// ranks are on one machine everything listens on loopback only, and torchrun's store only carries the port
/// of rank 0's own. Throws ConfigError when the port is in use or the address is unknown, CommError when the
/// master does not answer or ranks do not arrive within the time-out ("3 of 4 ranks arrived; missing: rank
/// 2").
World connect(const launch::Place& place, const ConnectOptions& options);

/// Compares the settings of all ranks; collective over `world`. Throws ConfigError on every rank that
/// names each rank and setting that differs from rank 0, with both values.
void check_same_settings(const Group& world, const std::map<std::string, std::string>& settings);

}  // namespace colonnade::comm
