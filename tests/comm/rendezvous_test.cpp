// Rendezvous at the port of rank 0: errors and logs of one rank when it fails.
#include <ATen/ATen.h>
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "colonnade/base/error.h"
#include "colonnade/comm/rendezvous.h"
#include "colonnade/comm/tcp_probe.h"
#include "colonnade/launch/process.h"

namespace colonnade::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

/// A listening socket that need not answer.
class Listener {
 public:
  Listener() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    socklen_t size = sizeof(address);
    auto* const raw = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(fd_, raw, size), 0);
    EXPECT_EQ(listen(fd_, 8), 0);
    EXPECT_EQ(getsockname(fd_, raw, &size), 0);
    port_ = ntohs(address.sin_port);
  }
  ~Listener() { close(fd_); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  [[nodiscard]] int port() const { return port_; }
  [[nodiscard]] int accepted() const { return accept(fd_, nullptr, nullptr); }
  void end() const { shutdown(fd_, SHUT_RDWR); }

 private:
  int fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int port_ = 0;
};

launch::RankEnvironment place_of(int rank, int world, int port) {
  launch::RankEnvironment place;
  place.rank = place.local_rank = rank;
  place.world_size = place.local_world_size = world;
  place.master_address = "127.0.0.1";
  place.master_port = port;
  return place;
}

Communicators communicators_in(const World& world) {
  config::Parallel parallel;
  parallel.world_size = world.size();
  return {layout::Mesh(parallel), world.rank(), world.factory()};
}

/// Error of an attempt to connect, or "connected".
std::string outcome(const std::function<void()>& attempt) {
  try {
    attempt();
  } catch (const ConfigError& error) {
    return fmt::format("ConfigError {}", error.what());
  } catch (const CommError& error) {
    return fmt::format("CommError {}", error.what());
  }
  return "connected";
}

TEST(Connect, APortInUseIsAConfigError) {
  const Listener other;
  EXPECT_THAT(outcome([&] { connect(place_of(0, 2, other.port()), {.timeout = milliseconds(500)}); }),
              testing::AllOf(testing::StartsWith("ConfigError"),
                             HasSubstr(fmt::format("got port {}: Address already in use", other.port()))));
}

TEST(Connect, AnUnreachableMasterIsACommErrorAndAnUnknownHostAConfigError) {
  launch::RankEnvironment place = place_of(1, 2, launch::free_port());
  EXPECT_THAT(outcome([&] { connect(place, {.timeout = milliseconds(200)}); }),
              testing::AllOf(testing::StartsWith("CommError"),
                             HasSubstr("got no answer within 0.2 s: Connection refused")));
  place.local_world_size = 1;                                // on one machine the name is not used
  place.master_address = std::string(64, 'a') + ".invalid";  // too long for a DNS name: fails without a query
  EXPECT_THROW(connect(place, {.timeout = milliseconds(100)}), ConfigError);
}

/// With a single ephemeral port, a connection to that port connects to itself.
TEST(Connect, ASelfConnectionIsNotReportedAsAnotherProgram) {
  constexpr int kPort = 40'000;
  std::string reported;
  std::thread([&] {
    if (unshare(CLONE_NEWNET) != 0) return;
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ifreq loopback{};
    std::strcpy(loopback.ifr_name, "lo");
    loopback.ifr_flags = IFF_UP | IFF_RUNNING;
    const bool up = ioctl(fd, SIOCSIFFLAGS, &loopback) == 0;
    close(fd);
    std::ofstream range("/proc/sys/net/ipv4/ip_local_port_range");
    range << kPort << ' ' << kPort << std::endl;
    if (up && range) reported = outcome([&] { wait_for_store("127.0.0.1", kPort, milliseconds(300)); });
  }).join();
  if (reported.empty()) GTEST_SKIP() << "needs a network of its own, which root can make";
  EXPECT_THAT(reported,
              testing::StartsWith("CommError rendezvous: rank 0 must listen at 127.0.0.1:40000; got no"));
}

/// Outcome on rank 1 of 2 when `serve` answers each connection in place of rank 0.
std::string connect_to_server(milliseconds timeout, const std::function<void(int connection)>& serve) {
  const Listener listener;
  std::thread other([&] {
    for (int connection = 0; (connection = listener.accepted()) >= 0;) serve(connection);
  });
  const std::string reported =
      outcome([&] { connect(place_of(1, 2, listener.port()), {.timeout = timeout}); });
  listener.end();
  other.join();
  return reported;
}

TEST(Connect, AnotherProgramAtTheMasterPortIsReported) {
  std::vector<int> open;
  EXPECT_THAT(
      connect_to_server(seconds(1), [&](int connection) { open.push_back(connection); }),
      testing::AllOf(testing::StartsWith("CommError rendezvous: rank 0 must answer at 127.0.0.1:"),
                     HasSubstr("got no data for 1 s"), HasSubstr("check whether rank 0 is suspended, stop")));
  for (const int connection : open) close(connection);
  EXPECT_THAT(connect_to_server(seconds(30),
                                [](int connection) {
                                  std::array<char, 10> request{};
                                  EXPECT_EQ(recv(connection, request.data(), request.size(), MSG_WAITALL),
                                            10);
                                  EXPECT_EQ(write(connection, "SSH-2.0-x", 9), 9);
                                  close(connection);
                                }),
              testing::AllOf(testing::StartsWith("ConfigError MASTER_PORT: rank 0 must listen at"),
                             HasSubstr("got another program there: it does not answer as a store; stop it")));
  EXPECT_THAT(connect_to_server(seconds(4), [](int connection) { close(connection); }),
              testing::AllOf(testing::StartsWith("CommError rendezvous: rank 0 must listen at"),
                             HasSubstr("within 4 s: connections are closed at once; see its log")));
}

TEST(Connect, ALongWaitForRankZeroIsLogged) {
  testing::internal::CaptureStderr();
  EXPECT_THROW(connect(place_of(1, 2, launch::free_port()), {.timeout = milliseconds(5200)}), CommError);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::AllOf(HasSubstr("rendezvous: waiting for rank 0 at 127.0.0.1:"),
                             HasSubstr(", up to 5.2 s; so far: Connection refused\n")));
}

TEST(Connect, NoRankIsReportedMissingWhenAllHaveArrived) {
  c10d::TCPStoreOptions options;
  options.isServer = true;
  options.waitWorkers = false;
  options.port = 0;
  const auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  store->set("colonnade/0/rendezvous/1", {1});  // rank 1 has arrived but not yet incremented the count
  launch::RankEnvironment place = place_of(0, 2, store->getPort());
  place.has_agent_store = true;
  place.local_world_size = 1;  // else rank 0 would host its own store
  testing::internal::CaptureStderr();
  EXPECT_THROW(connect(place, {.timeout = seconds(8)}), CommError);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::Not(HasSubstr("waiting for")));
}

/// Ranks of another job at the same port must not complete this job's rendezvous.
TEST(Connect, KeysOfAnotherJobAreIgnored) {
  const int port = launch::free_port();
  const auto with_token = [&](int rank, const char* token) {
    launch::RankEnvironment place = place_of(rank, 2, port);
    place.job_token = token;
    return place;
  };
  std::string other_job;
  std::thread other([&] {
    other_job = outcome([&] { connect(with_token(1, "two"), {.timeout = seconds(1)}); });
    c10d::TCPStoreOptions options;
    options.port = static_cast<std::uint16_t>(port);
    options.waitWorkers = false;
    const auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
    for (const char* prefix : {"", "colonnade/0/", "colonnade/two/0/"}) {
      store->add(std::string(prefix) + "rendezvous/count", 2);
      store->set(std::string(prefix) + "rendezvous/all", {1});
    }
  });
  EXPECT_THAT(outcome([&] { connect(with_token(0, "one"), {.timeout = seconds(4)}); }),
              testing::StartsWith("CommError rendezvous: all ranks must arrive; got 1 of 2"));
  other.join();
  EXPECT_THAT(other_job, testing::StartsWith("CommError rendezvous: all ranks must arrive; got 1 of 2"));
}

bool connects(int family, const char* address, int port) {
  const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_storage to{};
  auto& v4 = reinterpret_cast<sockaddr_in&>(to);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(to);
  to.ss_family = static_cast<sa_family_t>(family);
  v4.sin_port = htons(static_cast<std::uint16_t>(port));  // IPv6 has its port at the same offset
  inet_pton(family, address, family == AF_INET ? static_cast<void*>(&v4.sin_addr) : &v6.sin6_addr);
  const bool connected = connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0;
  close(fd);
  return connected;
}

/// 127.0.0.2 stands for a network address: only sockets bound to all addresses accept it.
TEST(ListenOn, LoopbackOnlyOrAllAddresses) {
  for (const bool loopback_only : {true, false}) {
    const int socket = listen_on(0, loopback_only);
    EXPECT_TRUE(connects(AF_INET, "127.0.0.1", port_of(socket)));
    EXPECT_EQ(connects(AF_INET, "127.0.0.2", port_of(socket)), !loopback_only);
    EXPECT_FALSE(loopback_only && connects(AF_INET6, "::1", port_of(socket)));
    EXPECT_THROW(listen_on(port_of(socket), loopback_only), ConfigError);
    close(socket);
  }
}

/// Ranks of one machine need neither the master's host name nor a store reachable from outside.
TEST(Connect, RanksOfOneMachineUseLoopback) {
  c10d::TCPStoreOptions options;
  options.isServer = true;
  options.waitWorkers = false;
  options.port = 0;
  const auto agent_store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  for (const bool hosted : {false, true}) {
    const auto place = [&, port = hosted ? agent_store->getPort() : launch::free_port()](int rank) {
      launch::RankEnvironment made = place_of(rank, 2, port);
      made.has_agent_store = hosted;
      if (!hosted) made.master_address = std::string(64, 'a') + ".invalid";
      return made;
    };
    std::thread other([&] { connect(place(1), {.timeout = seconds(60)}).barrier("met"); });
    connect(place(0), {.timeout = seconds(60)}).barrier("met");
    other.join();
  }
  EXPECT_TRUE(agent_store->check({"colonnade/0/port"}));
  EXPECT_FALSE(agent_store->check({"colonnade/0/rendezvous/count"}));
}

/// Other ranks query the host's store until they see the barrier complete. The test acts as rank 1.
TEST(Connect, TheStoreHostLeavesABarrierLast) {
  const int port = launch::free_port();
  std::atomic<bool> left = false;
  std::thread host([&] {
    connect(place_of(0, 2, port), {.timeout = seconds(60)}).barrier("end");
    left = true;
  });
  connect(place_of(1, 2, port), {.timeout = seconds(60)});
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(port);
  options.waitWorkers = false;
  const auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  const std::string barrier = "colonnade/0/barrier \"end\"";
  store->set(barrier + "/1", {1});
  while (store->add(barrier + "/count", 0) == 0) std::this_thread::sleep_for(milliseconds(5));
  store->set(barrier + "/all", {1});
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_FALSE(left);
  if (!left) {
    store->add(barrier + "/left", 1);
    store->set(barrier + "/empty", {1});
  }
  host.join();
}

TEST(Connect, AWorldOfOneOpensNoSocket) {
  const auto open_files = [] {
    const std::filesystem::directory_iterator files("/proc/self/fd");
    return std::distance(begin(files), end(files));
  };
  const auto before = open_files();
  const World world = connect(launch::RankEnvironment(), {});
  Communicators ranks = communicators_in(world);
  at::Tensor x = at::ones({2});
  ranks.world().all_reduce(x, "test").wait();
  world.barrier("test");
  EXPECT_EQ(open_files(), before);
  EXPECT_THROW(world.factory()->make({0, 1}, 0, "pair"), Error);
}

TEST(Connect, MissingNcclIsAnError) {
  // Two ranks in one process suffice: group creation fails before any NCCL communication.
  const int port = launch::free_port();
  std::thread other([&] {
    const World world = connect(place_of(1, 2, port), {.timeout = seconds(20), .cuda = true});
    EXPECT_THROW(communicators_in(world).world(), Error);
  });
  const World world = connect(place_of(0, 2, port), {.timeout = seconds(20), .cuda = true});
  EXPECT_THROW(communicators_in(world).world(), Error);
  other.join();
}

}  // namespace
}  // namespace colonnade::comm
