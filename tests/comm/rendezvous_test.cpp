// Meeting at the port of rank 0 when something is wrong there: what one rank says of it.
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

/// Somebody who listens and need not answer.
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

launch::Place place_of(int rank, int world, int port) {
  launch::Place place;
  place.rank = place.local_rank = rank;
  place.world_size = place.local_size = world;
  place.master_address = "127.0.0.1";
  place.master_port = port;
  return place;
}

Communicators communicators_in(const World& world) {
  config::Parallel parallel;
  parallel.world_size = world.size();
  return {layout::Mesh(parallel), world.rank(), world.factory()};
}

/// What an attempt to connect ends with.
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

TEST(Connect, APortInUseIsASettingsError) {
  const Listener other;
  EXPECT_THAT(outcome([&] { connect(place_of(0, 2, other.port()), {.timeout = milliseconds(500)}); }),
              testing::AllOf(testing::StartsWith("ConfigError"),
                             HasSubstr(fmt::format("got port {}: Address already in use", other.port()))));
}

TEST(Connect, ASilentMasterIsACommErrorAndAnUnknownOneASettingsError) {
  launch::Place place = place_of(1, 2, launch::free_port());
  EXPECT_THAT(outcome([&] { connect(place, {.timeout = milliseconds(200)}); }),
              testing::AllOf(testing::StartsWith("CommError"),
                             HasSubstr("got no answer within 0.2 s: Connection refused")));
  place.local_size = 1;                                      // on one machine the name would not matter
  place.master_address = std::string(64, 'a') + ".invalid";  // too long for a name: nobody else is asked
  EXPECT_THROW(connect(place, {.timeout = milliseconds(100)}), ConfigError);
}

/// The system gives this thread one port for outgoing connections, so a connection to that port meets itself.
TEST(Connect, AConnectionToItselfIsNotTakenForAnotherProgram) {
  constexpr int kPort = 40'000;
  std::string said;
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
    if (up && range) said = outcome([&] { wait_for_store("127.0.0.1", kPort, milliseconds(300)); });
  }).join();
  if (said.empty()) GTEST_SKIP() << "needs a network of its own, which root can make";
  EXPECT_THAT(said,
              testing::StartsWith("CommError rendezvous: rank 0 must listen at 127.0.0.1:40000; got no"));
}

/// What rank 1 of 2 says where rank 0 should listen but `serve` answers each connection.
std::string talk_to(milliseconds timeout, const std::function<void(int connection)>& serve) {
  const Listener listener;
  std::thread other([&] {
    for (int connection = 0; (connection = listener.accepted()) >= 0;) serve(connection);
  });
  const std::string said = outcome([&] { connect(place_of(1, 2, listener.port()), {.timeout = timeout}); });
  listener.end();
  other.join();
  return said;
}

TEST(Connect, AProgramThatIsNoStoreAtTheMastersPortIsASettingsErrorWhereItIsKnown) {
  std::vector<int> open;
  EXPECT_THAT(
      talk_to(seconds(1), [&](int connection) { open.push_back(connection); }),
      testing::AllOf(testing::StartsWith("CommError rendezvous: rank 0 must answer at 127.0.0.1:"),
                     HasSubstr("got silence for 1 s"), HasSubstr("see whether rank 0 is stopped, or")));
  for (const int connection : open) close(connection);
  EXPECT_THAT(talk_to(seconds(30),
                      [](int connection) {
                        std::array<char, 10> question{};
                        EXPECT_EQ(recv(connection, question.data(), question.size(), MSG_WAITALL), 10);
                        EXPECT_EQ(write(connection, "SSH-2.0-x", 9), 9);
                        close(connection);
                      }),
              testing::AllOf(testing::StartsWith("ConfigError MASTER_PORT: rank 0 must listen at"),
                             HasSubstr("got another program there: it does not speak as a store; end it")));
  EXPECT_THAT(talk_to(seconds(4), [](int connection) { close(connection); }),
              testing::AllOf(testing::StartsWith("CommError rendezvous: rank 0 must listen at"),
                             HasSubstr("within 4 s: connections are closed at once; see its log")));
}

TEST(Connect, ALongWaitForRankZeroIsSaid) {
  testing::internal::CaptureStderr();
  EXPECT_THROW(connect(place_of(1, 2, launch::free_port()), {.timeout = milliseconds(5200)}), CommError);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::AllOf(HasSubstr("rendezvous: waiting for rank 0 at 127.0.0.1:"),
                             HasSubstr(", up to 5.2 s; so far: Connection refused\n")));
}

TEST(Connect, NobodyIsSaidToBeLateWhereAllHaveCome) {
  c10d::TCPStoreOptions options;
  options.isServer = true;
  options.waitWorkers = false;
  options.port = 0;
  const auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  store->set("colonnade/0/rendezvous/1", {1});  // rank 1 has come and not yet counted itself
  launch::Place place = place_of(0, 2, store->getPort());
  place.store_is_hosted = true;
  place.local_size = 1;  // else rank 0 would host another
  testing::internal::CaptureStderr();
  EXPECT_THROW(connect(place, {.timeout = seconds(8)}), CommError);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::Not(HasSubstr("waiting for")));
}

/// Other programs that find the port, by chance or not: a rank must not go on too early.
TEST(Connect, KeysOfAnotherJobAreNotOurs) {
  const int port = launch::free_port();
  const auto with_token = [&](int rank, const char* token) {
    launch::Place place = place_of(rank, 2, port);
    place.job_token = token;
    return place;
  };
  std::string stranger;
  std::thread other([&] {
    stranger = outcome([&] { connect(with_token(1, "two"), {.timeout = seconds(1)}); });
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
  EXPECT_THAT(stranger, testing::StartsWith("CommError rendezvous: all ranks must arrive; got 1 of 2"));
}

bool connects(int family, const char* address, int port) {
  const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_storage to{};
  auto& v4 = reinterpret_cast<sockaddr_in&>(to);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(to);
  to.ss_family = static_cast<sa_family_t>(family);
  v4.sin_port = htons(static_cast<std::uint16_t>(port));  // that of IPv6 lies at the same place
  inet_pton(family, address, family == AF_INET ? static_cast<void*>(&v4.sin_addr) : &v6.sin6_addr);
  const bool connected = connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0;
  close(fd);
  return connected;
}

/// 127.0.0.2 stands for an address of the network: the kernel takes it to the sockets of all addresses only.
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

/// The ranks of one machine need neither the name of the master nor a store that other machines can reach.
TEST(Connect, RanksOfOneMachineMeetOnLoopback) {
  c10d::TCPStoreOptions options;
  options.isServer = true;
  options.waitWorkers = false;
  options.port = 0;
  const auto agents = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  for (const bool hosted : {false, true}) {
    const auto place = [&, port = hosted ? agents->getPort() : launch::free_port()](int rank) {
      launch::Place made = place_of(rank, 2, port);
      made.store_is_hosted = hosted;
      if (!hosted) made.master_address = std::string(64, 'a') + ".invalid";
      return made;
    };
    std::thread other([&] { connect(place(1), {.timeout = seconds(60)}).barrier("met"); });
    connect(place(0), {.timeout = seconds(60)}).barrier("met");
    other.join();
  }
  EXPECT_TRUE(agents->check({"colonnade/0/port"}));
  EXPECT_FALSE(agents->check({"colonnade/0/rendezvous/count"}));
}

/// Its store is asked by the others until they have read that all have arrived. Rank 1 is played here.
TEST(Connect, TheHostOfTheStoreLeavesABarrierLast) {
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

TEST(Connect, AWorldOfOneOpensNothing) {
  const auto open_files = [] {
    const std::filesystem::directory_iterator files("/proc/self/fd");
    return std::distance(begin(files), end(files));
  };
  const auto before = open_files();
  const World world = connect(launch::Place(), {});
  Communicators ranks = communicators_in(world);
  at::Tensor x = at::ones({2});
  ranks.world().all_reduce(x, "test").wait();
  world.barrier("test");
  EXPECT_EQ(open_files(), before);
  EXPECT_THROW(world.factory()->make({0, 1}, 0, "pair"), Error);
}

TEST(Connect, ACpuBuildOrMachineWithoutNcclSaysSo) {
  // Two ranks in one process are enough: the group is refused before anything is exchanged with NCCL.
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
