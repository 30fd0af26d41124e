// TCPStore of a job, rendezvous of its ranks, and the factory of groups between processes.
#include "colonnade/comm/rendezvous.h"

#include <c10/util/Exception.h>
#include <c10/util/Logging.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "colonnade/base/error.h"
#include "colonnade/base/log.h"
#include "colonnade/comm/c10d_backends.h"
#include "colonnade/comm/device_dispatch.h"
#include "colonnade/comm/tcp_probe.h"

namespace colonnade::comm {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
using StorePtr = c10::intrusive_ptr<c10d::Store>;
constexpr const char* kLoopback = "127.0.0.1";

std::string seconds_text(milliseconds time) {
  return fmt::format("{:g} s", static_cast<double>(time.count()) / 1000);
}

/// Ranks that have not arrived; all of them if the store is unreachable.
std::vector<int> missing_ranks(c10d::Store& store, const std::string& prefix, const std::vector<int>& ranks) {
  std::vector<int> missing;
  for (const int rank : ranks) {
    try {
      if (!store.check({fmt::format("{}/{}", prefix, rank)})) missing.push_back(rank);
    } catch (const std::exception&) {
      return ranks;
    }
  }
  return missing;
}

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks;
  for (int r = 0; r < size; ++r) ranks.push_back(r);
  return ranks;
}

/// Returns when all ranks have arrived at `name`; after kSlowStart, logs the missing ranks and returns.
void log_missing_ranks(c10d::Store& store, const std::string& name, const std::vector<int>& ranks,
                       milliseconds timeout) {
  constexpr milliseconds kPollInterval(20);
  for (const auto start = Clock::now(); Clock::now() - start < kSlowStart;
       std::this_thread::sleep_for(kPollInterval))
    if (store.check({name + "/all"})) return;
  const std::vector<int> missing = missing_ranks(store, name, ranks);
  if (missing.empty()) return;  // the last rank has just arrived
  log::info("{}: waiting for {} of {} ranks, up to {}: {}", name, missing.size(), ranks.size(),
            seconds_text(timeout), list_ranks(missing));
}

/// Barrier over the store: marks this rank as arrived at `name` and waits for the others. `log_slow`: logs
/// the missing ranks if that takes long.
void store_barrier(c10d::Store& store, const std::string& name, const std::vector<int>& ranks, int rank,
                   milliseconds timeout, bool log_slow = false) {
  const std::string all = name + "/all";
  std::string reason;
  try {
    store.set(fmt::format("{}/{}", name, rank), std::vector<std::uint8_t>{1});
    if (store.add(name + "/count", 1) == static_cast<std::int64_t>(ranks.size())) {
      store.set(all, std::vector<std::uint8_t>{1});
    }
    const auto start = Clock::now();
    if (log_slow && timeout > kSlowStart) log_missing_ranks(store, name, ranks, timeout);
    const auto left = timeout - std::chrono::duration_cast<milliseconds>(Clock::now() - start);
    store.wait({all}, std::max(left, milliseconds(1)));  // 0 would wait forever
    return;
  } catch (const c10::Error& error) {
    reason = error.what_without_backtrace();
  }
  const std::vector<int> missing = missing_ranks(store, name, ranks);
  if (missing.size() == ranks.size()) {
    throw CommError(
        fmt::format("{}: the store of the job must answer; got: {}; see the log of rank 0", name, reason));
  }
  throw CommError(
      fmt::format("{}: all ranks must arrive; got {} of {} within {}; missing: rank{} {}; see their logs, or "
                  "raise --distributed-timeout-minutes if they are only slow",
                  name, ranks.size() - missing.size(), ranks.size(), seconds_text(timeout),
                  missing.size() == 1 ? "" : "s", list_ranks(missing)));
}

/// On a single machine rank 0 hosts a loopback store even under torchrun, whose store is reachable from
/// outside.
bool hosts_store(const launch::RankEnvironment& place) {
  return place.rank == 0 && (!place.has_agent_store || place.is_single_node());
}

/// Ends a store barrier. The store host leaves last; ranks that have yet to see the barrier complete need the
/// store.
void leave_store_barrier(c10d::Store& store, const std::string& name, const launch::RankEnvironment& place,
                         milliseconds timeout) {
  const std::string left = name + "/left", empty = name + "/empty";
  try {
    if (hosts_store(place)) {
      store.wait({empty}, timeout);
    } else if (store.add(left, 1) == place.world_size - 1) {
      store.set(empty, std::vector<std::uint8_t>{1});
    }
  } catch (const c10::Error&) {  // all had arrived; later calls detect a rank lost since then
  }
}

/// The store hosted by rank 0 on `socket`.
StorePtr host_store(int socket, milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(port_of(socket));
  options.isServer = true;
  options.masterListenFd = socket;
  options.waitWorkers = false;
  options.timeout = timeout;
  try {
    return c10::make_intrusive<c10d::TCPStore>(kLoopback, options);
  } catch (const c10::Error& error) {
    throw CommError(fmt::format(
        "rendezvous: rank 0 must be able to host the store of the job; got an error at port {}: {}; "
        "choose another port",
        options.port, error.what_without_backtrace()));
  }
}

StorePtr join_store(const std::string& address, int port, milliseconds timeout) {
  wait_for_store(address, port, timeout);
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(port);
  options.waitWorkers = false;
  options.timeout = timeout;
  try {
    return c10::make_intrusive<c10d::TCPStore>(address, options);
  } catch (const c10::Error& error) {
    throw CommError(fmt::format(
        "rendezvous: the store of the job must answer; got an error at {}:{}: {}; see the log of rank 0",
        address, port, error.what_without_backtrace()));
  }
}

/// Loopback store of a single-machine job; its port is exchanged through the store of torchrun's agent.
StorePtr local_store_via_agent(const launch::RankEnvironment& place, const std::string& prefix,
                               milliseconds timeout) {
  const StorePtr agent_store = join_store(place.master_address, place.master_port, timeout);
  const std::string key = prefix + "/port";
  if (!hosts_store(place)) {
    std::vector<std::uint8_t> port;
    try {
      port = agent_store->get(key);
    } catch (const c10::Error& error) {
      throw CommError(
          fmt::format("rendezvous: rank 0 must report the port of its store; got: {}; see its log",
                      error.what_without_backtrace()));
    }
    return join_store(kLoopback, std::atoi(std::string(port.begin(), port.end()).c_str()), timeout);
  }
  const int socket = listen_on(0, /*loopback_only=*/true);
  const std::string port = std::to_string(port_of(socket));
  const StorePtr store = host_store(socket, timeout);
  agent_store->set(key, std::vector<std::uint8_t>(port.begin(), port.end()));
  return store;
}

StorePtr open_store(const launch::RankEnvironment& place, const std::string& prefix, milliseconds timeout) {
  const bool local = place.is_single_node();
  if (place.has_agent_store && local) return local_store_via_agent(place, prefix, timeout);
  if (hosts_store(place)) return host_store(listen_on(place.master_port, local), timeout);
  // Ranks of one machine need no name resolution.
  return join_store(local ? kLoopback : place.master_address, place.master_port, timeout);
}

class ProcessFactory final : public GroupFactory {
 public:
  ProcessFactory(StorePtr store, const launch::RankEnvironment& place, const ConnectOptions& options)
      : store_(std::move(store)), place_(place), options_(options) {}

  std::shared_ptr<Backend> make(const std::vector<int>& ranks, int my_index,
                                const std::string& name) override {
    const std::string key = fmt::format("group {}#{}", name, group_counts_[name]++);
    GroupSpec spec = base_group_spec(place_, options_);
    spec.store = c10::make_intrusive<c10d::PrefixStore>(key, store_);
    spec.ranks = ranks;
    spec.index = my_index;
    store_barrier(*store_, key, ranks, place_.rank, options_.timeout);
    try {
      if (!options_.cuda || options_.gloo_for_cuda) return make_gloo(spec);
      if (!watchdog_) watchdog_ = make_nccl_watchdog(options_.timeout);
      spec.watchdog = watchdog_;
      GroupSpec host_spec = spec;
      host_spec.store = c10::make_intrusive<c10d::PrefixStore>("host", spec.store);
      return dispatch_by_device(make_gloo(host_spec), make_nccl(spec));
    } catch (const Error&) {
      throw;
    } catch (const c10::Error& error) {
      throw CommError(failure(key, ranks, error.what_without_backtrace()));
    } catch (const std::exception& error) {
      throw CommError(failure(key, ranks, error.what()));
    }
  }

 private:
  [[nodiscard]] std::string failure(const std::string& key, const std::vector<int>& ranks,
                                    const char* reason) const {
    return fmt::format(
        "{}: its ranks must reach each other over the network; got an error on rank {} (ranks {}): {}; check "
        "firewalls, and GLOO_SOCKET_IFNAME where machines have several networks",
        key, place_.rank, list_ranks(ranks), reason);
  }

  StorePtr store_;
  launch::RankEnvironment place_;
  ConnectOptions options_;
  std::shared_ptr<DeviceOpWatchdog> watchdog_;  ///< NCCL only
  std::map<std::string, int>
      group_counts_;  ///< number of groups by name, since two meshes may use the same name
};

/// Silences c10d's socket warnings; the errors thrown here report the same failures.
void silence_c10d_logs() {
  if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr)
    FLAGS_caffe2_log_level = std::max(FLAGS_caffe2_log_level, c10::GLOG_ERROR);
}

/// Factory of a single-rank world, which creates no groups.
class SingleRankFactory final : public GroupFactory {
 public:
  std::shared_ptr<Backend> make(const std::vector<int>& ranks, int, const std::string& name) override {
    COL_CHECK(false, "group {} must not have other ranks in a world of one; got ranks {}", name,
              list_ranks(ranks));
  }
};

}  // namespace

GroupSpec base_group_spec(const launch::RankEnvironment& place, const ConnectOptions& options) {
  GroupSpec spec;
  spec.timeout = options.timeout;
  spec.one_machine = place.is_single_node();
  spec.device_index = options.device_index;
  return spec;
}

struct World::Store {
  StorePtr ptr;
};

void World::barrier(std::string_view name) const { barrier(name, timeout_); }

void World::barrier(std::string_view name, milliseconds timeout) const {
  if (size() == 1) return;
  const std::string full = fmt::format("barrier \"{}\"", name);
  store_barrier(*store_->ptr, full, all_ranks(size()), rank(), timeout);
  leave_store_barrier(*store_->ptr, full, place_, timeout);
}

World connect(const launch::RankEnvironment& place, const ConnectOptions& options) {
  World world;
  world.place_ = place;
  world.timeout_ = options.timeout;
  if (place.world_size == 1) {
    world.factory_ = std::make_shared<SingleRankFactory>();
    return world;
  }
  silence_c10d_logs();
  const auto start = Clock::now();
  // The prefix hides keys of an earlier start, if the launcher keeps its store, and of another job on the
  // port.
  const std::string prefix =
      fmt::format("colonnade/{}{}{}", place.job_token, place.job_token.empty() ? "" : "/", place.restart);
  const StorePtr store =
      c10::make_intrusive<c10d::PrefixStore>(prefix, open_store(place, prefix, options.timeout));
  const auto spent = std::chrono::duration_cast<milliseconds>(Clock::now() - start);
  store_barrier(*store, "rendezvous", all_ranks(place.world_size), place.rank,
                std::max(options.timeout - spent, milliseconds(1000)), place.rank == 0);
  world.store_ = std::make_shared<World::Store>(World::Store{store});
  world.factory_ = std::make_shared<ProcessFactory>(store, place, options);
  return world;
}

}  // namespace colonnade::comm
