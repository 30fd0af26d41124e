// The store of a job, the arrival of its ranks, and the factory of groups between processes.
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
#include "colonnade/comm/by_device.h"
#include "colonnade/comm/c10d_backends.h"
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

/// The members whose keys are absent; all when the store itself is gone.
std::vector<int> absent(c10d::Store& store, const std::string& prefix, const std::vector<int>& ranks) {
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

/// Returns when all have arrived at `name`, or after kQuietStart with a line that names who is late.
void say_who_is_late(c10d::Store& store, const std::string& name, const std::vector<int>& ranks,
                     milliseconds timeout) {
  constexpr milliseconds kPause(20);
  for (const auto start = Clock::now(); Clock::now() - start < kQuietStart;
       std::this_thread::sleep_for(kPause))
    if (store.check({name + "/all"})) return;
  const std::vector<int> missing = absent(store, name, ranks);
  if (missing.empty()) return;  // the last one has come since
  log::info("{}: waiting for {} of {} ranks, up to {}: {}", name, missing.size(), ranks.size(),
            seconds_text(timeout), list_ranks(missing));
}

/// Marks this rank as arrived at `name` and waits for the others; `aloud`: says so where that takes long.
void arrive(c10d::Store& store, const std::string& name, const std::vector<int>& ranks, int rank,
            milliseconds timeout, bool aloud = false) {
  const std::string all = name + "/all";
  std::string reason;
  try {
    store.set(fmt::format("{}/{}", name, rank), std::vector<std::uint8_t>{1});
    if (store.add(name + "/count", 1) == static_cast<std::int64_t>(ranks.size())) {
      store.set(all, std::vector<std::uint8_t>{1});
    }
    const auto start = Clock::now();
    if (aloud && timeout > kQuietStart) say_who_is_late(store, name, ranks, timeout);
    const auto left = timeout - std::chrono::duration_cast<milliseconds>(Clock::now() - start);
    store.wait({all}, std::max(left, milliseconds(1)));  // 0 would be without end
    return;
  } catch (const c10::Error& error) {
    reason = error.what_without_backtrace();
  }
  const std::vector<int> missing = absent(store, name, ranks);
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

/// On one machine rank 0 hosts a store beside the one of torchrun's agent, which other machines can reach.
bool hosts_store(const launch::Place& place) {
  return place.rank == 0 && (!place.store_is_hosted || place.one_machine());
}

/// The host of the store leaves last: who has not read yet that all have arrived would find no store.
void leave(c10d::Store& store, const std::string& name, const launch::Place& place, milliseconds timeout) {
  const std::string left = name + "/left", empty = name + "/empty";
  try {
    if (hosts_store(place)) {
      store.wait({empty}, timeout);
    } else if (store.add(left, 1) == place.world_size - 1) {
      store.set(empty, std::vector<std::uint8_t>{1});
    }
  } catch (const c10::Error&) {  // all have arrived; who is lost since then is missed in what comes next
  }
}

/// The store that rank 0 hosts at `socket`.
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
    throw CommError(
        fmt::format("rendezvous: rank 0 must be able to host the store of the job; got, at port {}: {}; "
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
    throw CommError(
        fmt::format("rendezvous: the store of the job must answer; got, at {}:{}: {}; see the log of rank 0",
                    address, port, error.what_without_backtrace()));
  }
}

/// Through the store of torchrun's agent the ranks learn the port of their own store on this machine.
StorePtr store_beside_agents(const launch::Place& place, const std::string& prefix, milliseconds timeout) {
  const StorePtr agents = join_store(place.master_address, place.master_port, timeout);
  const std::string key = prefix + "/port";
  if (!hosts_store(place)) {
    std::vector<std::uint8_t> port;
    try {
      port = agents->get(key);
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
  agents->set(key, std::vector<std::uint8_t>(port.begin(), port.end()));
  return store;
}

StorePtr open_store(const launch::Place& place, const std::string& prefix, milliseconds timeout) {
  const bool local = place.one_machine();
  if (place.store_is_hosted && local) return store_beside_agents(place, prefix, timeout);
  if (hosts_store(place)) return host_store(listen_on(place.master_port, local), timeout);
  // The ranks of one machine need no name service for it.
  return join_store(local ? kLoopback : place.master_address, place.master_port, timeout);
}

class ProcessFactory final : public GroupFactory {
 public:
  ProcessFactory(StorePtr store, const launch::Place& place, const ConnectOptions& options)
      : store_(std::move(store)), place_(place), options_(options) {}

  std::shared_ptr<Backend> make(const std::vector<int>& ranks, int my_index,
                                const std::string& name) override {
    const std::string key = fmt::format("group {}#{}", name, made_[name]++);
    GroupSeat seat = seat_of(place_, options_);
    seat.store = c10::make_intrusive<c10d::PrefixStore>(key, store_);
    seat.ranks = ranks;
    seat.index = my_index;
    arrive(*store_, key, ranks, place_.rank, options_.timeout);
    try {
      if (!options_.cuda || options_.gloo_for_cuda) return make_gloo(seat);
      if (!flights_) flights_ = nccl_flights(options_.timeout);
      seat.flights = flights_;
      GroupSeat of_host = seat;
      of_host.store = c10::make_intrusive<c10d::PrefixStore>("host", seat.store);
      return by_device(make_gloo(of_host), make_nccl(seat));
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
        "{}: its ranks must reach each other over the network; got on rank {} (ranks {}): {}; check "
        "firewalls, and GLOO_SOCKET_IFNAME where machines have several networks",
        key, place_.rank, list_ranks(ranks), reason);
  }

  StorePtr store_;
  launch::Place place_;
  ConnectOptions options_;
  std::shared_ptr<Flights> flights_;  ///< with NCCL only
  std::map<std::string, int> made_;   ///< groups of equal name: two meshes of one job may want them
};

/// What c10d writes about its sockets is said in our words by the error that follows.
void quiet_sockets() {
  if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr)
    FLAGS_caffe2_log_level = std::max(FLAGS_caffe2_log_level, c10::GLOG_ERROR);
}

/// A world of one has no groups to make.
class LonelyFactory final : public GroupFactory {
 public:
  std::shared_ptr<Backend> make(const std::vector<int>& ranks, int, const std::string& name) override {
    COL_CHECK(false, "group {}: a world of one has no other ranks; got ranks {}", name, list_ranks(ranks));
  }
};

}  // namespace

GroupSeat seat_of(const launch::Place& place, const ConnectOptions& options) {
  GroupSeat seat;
  seat.timeout = options.timeout;
  seat.one_machine = place.one_machine();
  seat.device_index = options.device_index;
  return seat;
}

struct World::Meeting {
  StorePtr store;
};

void World::barrier(std::string_view name) const { barrier(name, timeout_); }

void World::barrier(std::string_view name, milliseconds timeout) const {
  if (size() == 1) return;
  const std::string full = fmt::format("barrier \"{}\"", name);
  arrive(*meeting_->store, full, all_ranks(size()), rank(), timeout);
  leave(*meeting_->store, full, place_, timeout);
}

World connect(const launch::Place& place, const ConnectOptions& options) {
  World world;
  world.place_ = place;
  world.timeout_ = options.timeout;
  if (place.world_size == 1) {
    world.factory_ = std::make_shared<LonelyFactory>();
    return world;
  }
  quiet_sockets();
  const auto start = Clock::now();
  // A launcher that starts the ranks again may keep its store: old keys must not be found. Nor may those of
  // another job that has come to the same port.
  const std::string prefix =
      fmt::format("colonnade/{}{}{}", place.job_token, place.job_token.empty() ? "" : "/", place.restart);
  const StorePtr store =
      c10::make_intrusive<c10d::PrefixStore>(prefix, open_store(place, prefix, options.timeout));
  const auto spent = std::chrono::duration_cast<milliseconds>(Clock::now() - start);
  arrive(*store, "rendezvous", all_ranks(place.world_size), place.rank,
         std::max(options.timeout - spent, milliseconds(1000)), place.rank == 0);
  world.meeting_ = std::make_shared<World::Meeting>(World::Meeting{store});
  world.factory_ = std::make_shared<ProcessFactory>(store, place, options);
  return world;
}

}  // namespace colonnade::comm
