// Ranks as real processes over gloo: this test binary starts itself once per rank. The bodies of those
// ranks are the disabled tests of suite Rank; the tests of suite Processes start and judge them.
#include <ATen/ATen.h>
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <thread>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/comm/backend.h"
#include "colonnade/comm/rendezvous.h"
#include "colonnade/comm/thread_ranks.h"
#include "comm/collective_checks.h"
#include "support/device.h"

namespace colonnade::comm {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

// ---- starting ranks ----

struct Ended {
  int code = -1;    ///< exit code, or 1000 + signal
  std::string log;  ///< standard output and error
};

/// A port of this machine that nobody listens on, or listens on while `socket` lives.
int listen_anywhere(int* socket_out = nullptr) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t size = sizeof(address);
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(listen(fd, 8), 0);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  if (socket_out != nullptr) {
    *socket_out = fd;
  } else {
    close(fd);
  }
  return ntohs(address.sin_port);
}

launch::Place place_of(int rank, int world, int port) {
  launch::Place place;
  place.rank = place.local_rank = rank;
  place.world_size = place.local_size = world;
  place.master_address = "127.0.0.1";
  place.master_port = port;
  return place;
}

/// Runs the disabled test Rank.DISABLED_<body> as `ranks` of a world of `world` processes.
std::vector<Ended> run_processes(const std::string& body, int world, std::vector<int> ranks) {
  const int port = listen_anywhere();
  const auto folder =
      std::filesystem::temp_directory_path() / fmt::format("colonnade_comm_{}_{}", getpid(), body);
  std::filesystem::create_directories(folder);
  std::vector<pid_t> pids;
  for (const int rank : ranks) {
    const std::string log = folder / fmt::format("{}.log", rank);
    const std::string filter = "--gtest_filter=Rank.DISABLED_" + body;
    const std::vector<std::pair<const char*, std::string>> env = {{"RANK", std::to_string(rank)},
                                                                  {"LOCAL_RANK", std::to_string(rank)},
                                                                  {"WORLD_SIZE", std::to_string(world)},
                                                                  {"LOCAL_WORLD_SIZE", std::to_string(world)},
                                                                  {"MASTER_ADDR", "127.0.0.1"},
                                                                  {"MASTER_PORT", std::to_string(port)},
                                                                  {"OMP_NUM_THREADS", "1"}};
    const pid_t pid = fork();
    if (pid == 0) {
      for (const auto& [name, value] : env) setenv(name, value.c_str(), 1);
      if (std::freopen(log.c_str(), "w", stdout) == nullptr || dup2(1, 2) < 0) _exit(99);
      execl("/proc/self/exe", "rank", filter.c_str(), "--gtest_also_run_disabled_tests", nullptr);
      _exit(98);
    }
    pids.push_back(pid);
  }
  std::vector<Ended> ended;
  for (std::size_t i = 0; i < pids.size(); ++i) {
    int status = 0;
    waitpid(pids[i], &status, 0);
    ended.push_back({WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status),
                     read_file(folder / fmt::format("{}.log", ranks[i]))});
  }
  std::filesystem::remove_all(folder);
  return ended;
}

World connect_here(milliseconds timeout = std::chrono::seconds(60)) {
  return connect(launch::find_place(launch::environment_of_process()),
                 {.timeout = timeout, .cuda = test::device().is_cuda(), .gloo_for_cuda = true});
}

Communicators communicators(const World& world, int tensor) {
  config::Parallel parallel;
  parallel.world_size = world.size();
  parallel.tensor_model_parallel_size = tensor;
  return {plan::Mesh(parallel), world.rank(), world.factory()};
}

/// Ends like the program does after the error `body` throws: message and exit code, at once.
template <typename Body>
void run_as_program(const Body& body) {
  int code = 0;
  try {
    body();
  } catch (const CommError& error) {
    fmt::print(stderr, "CommError {}\n", error.what());
    code = kExitRankLost;
  } catch (const ConfigError& error) {
    fmt::print(stderr, "ConfigError {}\n", error.what());
    code = kExitSettings;
  }
  std::fflush(nullptr);
  std::_Exit(code);
}

// ---- bodies of ranks ----

TEST(Rank, DISABLED_Collectives) {
  const World world = connect_here();
  Communicators ranks = communicators(world, 1);
  for (const at::ScalarType type : test::kTypes) {
    test::check_collectives(ranks.world(), type);
    test::check_point_to_point(ranks.world(), type);
  }
  test::check_texts(ranks.world());
  at::Tensor low = at::full({5}, world.rank() == 0 ? 256.0 : 1.0, test::options(at::kBFloat16));
  ranks.world().all_reduce(low, "test").wait();
  EXPECT_EQ(low[4].item<float>(), at::full({1}, 255.0 + world.size()).to(at::kBFloat16).item<float>());
  check_same_settings(ranks.world(), {{"lr", "0.1"}, {"seed", "1"}});
  world.barrier("end");
}

/// Many operations on three groups under way at once, waited for in another order.
TEST(Rank, DISABLED_Overlap) {
  const World world = connect_here();
  Communicators ranks = communicators(world, 2);
  Communicators second = communicators(world, 2);
  const std::vector<Group> groups = {ranks.world(), ranks.group({plan::Axis::kTp}),
                                     ranks.group({plan::Axis::kDp}), second.group({plan::Axis::kTp})};
  std::vector<Work> works;
  std::vector<at::Tensor> tensors, expected;
  for (int i = 0; i < 60; ++i) {
    const Group& group = groups[static_cast<std::size_t>(i) % groups.size()];
    at::Tensor sum = at::zeros({300});
    for (const int r : group.ranks()) sum.add_(test::values(r + i, {300}, at::kFloat));
    const at::Tensor mine = test::values(world.rank() + i, {300}, at::kFloat);
    if (i % 3 == 0) {
      at::Tensor slice = at::empty({300 / group.size()});
      works.push_back(group.reduce_scatter(slice, mine, "test / reduce_scatter"));
      tensors.push_back(slice);
      expected.push_back(sum.chunk(group.size())[static_cast<std::size_t>(group.rank())]);
    } else {
      works.push_back(group.all_reduce(mine, "test / all_reduce"));
      tensors.push_back(mine);
      expected.push_back(sum);
    }
  }
  for (std::size_t i = works.size(); i-- > 0;) works[i].wait();
  for (std::size_t i = 0; i < works.size(); ++i)
    EXPECT_TRUE(at::allclose(tensors[i], expected[i], 1e-5, 1e-4)) << i;
}

TEST(Rank, DISABLED_Dying) {
  run_as_program([] {
    const World world = connect_here();
    Communicators ranks = communicators(world, 2);
    at::Tensor x = at::ones({1000});
    for (int step = 0;; ++step) {
      if (world.rank() == 2 && step == 3) std::raise(SIGKILL);
      ranks.group({plan::Axis::kTp}).all_reduce(x, fmt::format("step {} / layer 3 / sum", step)).wait();
      ranks.world().all_reduce(x, fmt::format("step {} / dp.grad.bucket 0", step)).wait();
    }
  });
}

TEST(Rank, DISABLED_DyingSender) {
  run_as_program([] {
    const World world = connect_here();
    Group group = communicators(world, 1).world();
    at::Tensor x = at::ones({1000});
    if (world.rank() == 1) std::raise(SIGKILL);
    group.recv(x, 1, 0, "activation of micro-batch 5").wait();
  });
}

TEST(Rank, DISABLED_Slow) {
  run_as_program([] {
    const World world = connect_here(milliseconds(1500));
    Group group = communicators(world, 1).world();
    if (world.rank() == 1) std::this_thread::sleep_for(milliseconds(3500));
    at::Tensor x = at::ones({10});
    group.all_reduce(x, "late").wait();
  });
}

TEST(Rank, DISABLED_Incomplete) {
  run_as_program([] { connect_here(milliseconds(5500)); });
}

TEST(Rank, DISABLED_OtherSettings) {
  run_as_program([] {
    const World world = connect_here();
    std::map<std::string, std::string> settings = {{"lr", "0.1"}, {"seed", "1"}};
    if (world.rank() == 1) settings["lr"] = "0.2";
    if (world.rank() == 2) settings["swiglu"] = "true";
    check_same_settings(communicators(world, 1).world(), settings);
  });
}

TEST(Rank, DISABLED_Barrier) {
  run_as_program([] {
    const World world = connect_here();
    world.barrier("step 1");
    if (world.rank() != 1) world.barrier("step 2", milliseconds(500));
  });
}

/// As under `srun --gpus-per-task=1`: every local rank has its GPU as number 0. Groups of one, since NCCL
/// wants one GPU per member.
TEST(Rank, DISABLED_OwnGpu) {
  const World world = connect(launch::find_place(launch::environment_of_process()), {.cuda = true});
  const auto alone = world.factory()->make({world.rank()}, 0, fmt::format("alone {}", world.rank()));
  const at::Tensor x = at::ones({10}, test::options(at::kFloat));
  alone->all_reduce(x, Reduce::kSum, {"all_reduce"}).wait();
  alone->barrier({"barrier"});
  world.barrier("end");
}

// ---- judges ----

TEST(Processes, CollectivesAgreeWithPlainArithmetic) {
  for (const int world : {2, 3, 4}) {
    std::vector<int> ranks;
    for (int r = 0; r < world; ++r) ranks.push_back(r);
    for (const Ended& ended : run_processes("Collectives", world, ranks))
      EXPECT_EQ(ended.code, 0) << ended.log;
  }
}

TEST(GpuNcclProcesses, EveryLocalRankWorksOnTheGpuThatItTook) {
  if (!test::device().is_cuda()) GTEST_SKIP() << "needs a GPU and COLONNADE_TEST_DEVICE=cuda";
  for (const Ended& ended : run_processes("OwnGpu", 2, {0, 1})) EXPECT_EQ(ended.code, 0) << ended.log;
}

TEST(Processes, OperationsOfSeveralGroupsOverlap) {
  for (const Ended& ended : run_processes("Overlap", 4, {0, 1, 2, 3})) EXPECT_EQ(ended.code, 0) << ended.log;
}

TEST(Processes, AKilledRankIsNoticedByAllWithinSeconds) {
  const auto start = std::chrono::steady_clock::now();
  const std::vector<Ended> ended = run_processes("Dying", 4, {0, 1, 2, 3});
  EXPECT_LT(std::chrono::steady_clock::now() - start,
            std::chrono::seconds(30));  // start-up included; time-out 60 s
  EXPECT_EQ(ended[2].code, 1000 + SIGKILL);
  for (const int rank : {0, 1, 3}) {
    const Ended& peer = ended[static_cast<std::size_t>(rank)];
    EXPECT_EQ(peer.code, kExitRankLost) << peer.log;
    EXPECT_THAT(peer.log, HasSubstr("CommError all_reduce \"step 3 / "));
  }
  EXPECT_THAT(ended[3].log,
              HasSubstr("layer 3 / sum\": every rank of group tp must take part; got on rank 3"));
}

TEST(Processes, AKilledSenderEndsTheReceive) {
  const std::vector<Ended> ended = run_processes("DyingSender", 2, {0, 1});
  EXPECT_EQ(ended[0].code, kExitRankLost) << ended[0].log;
  EXPECT_THAT(ended[0].log, HasSubstr("recv \"activation of micro-batch 5\""));
}

TEST(Processes, TheTimeoutReachesGroups) {
  const std::vector<Ended> ended = run_processes("Slow", 2, {0, 1});
  EXPECT_EQ(ended[0].code, kExitRankLost) << ended[0].log;
  EXPECT_THAT(ended[0].log, HasSubstr("all_reduce \"late\""));
}

TEST(Processes, RanksThatDoNotArriveAreCountedAndNamed) {
  const std::vector<Ended> ended = run_processes("Incomplete", 4, {0, 1, 3});
  for (const Ended& rank : ended) EXPECT_EQ(rank.code, kExitRankLost) << rank.log;
  EXPECT_THAT(ended[0].log, HasSubstr("all ranks must arrive; got 3 of 4 within"));
  EXPECT_THAT(ended[0].log, HasSubstr("missing: rank 2; see"));
  EXPECT_THAT(ended[0].log, HasSubstr("rendezvous: waiting for 1 of 4 ranks, up to 5."));
}

TEST(Processes, ARankWithOtherSettingsIsNamed) {
  for (const Ended& ended : run_processes("OtherSettings", 3, {0, 1, 2})) {
    EXPECT_EQ(ended.code, kExitSettings) << ended.log;
    EXPECT_THAT(ended.log, HasSubstr("lr is '0.2' on rank 1 and '0.1' on rank 0"));
    EXPECT_THAT(ended.log, HasSubstr("swiglu is 'true' on rank 2 and nothing on rank 0"));
    EXPECT_THAT(ended.log, testing::Not(HasSubstr("seed")));
  }
}

TEST(Processes, ABarrierNamesWhoIsMissing) {
  const std::vector<Ended> ended = run_processes("Barrier", 2, {0, 1});
  EXPECT_EQ(ended[0].code, kExitRankLost) << ended[0].log;
  EXPECT_THAT(ended[0].log,
              HasSubstr("barrier \"step 2\": all ranks must arrive; got 1 of 2 within 0.5 s; missing: "
                        "rank 1"));
  EXPECT_EQ(ended[1].code, 0) << ended[1].log;
}

TEST(Connect, APortInUseIsASettingsError) {
  int socket = -1;
  const int port = listen_anywhere(&socket);
  try {
    connect(place_of(0, 2, port), {.timeout = milliseconds(500)});
    ADD_FAILURE() << "connected";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr(fmt::format("got port {}: Address already in use", port)));
  }
  close(socket);
}

TEST(Connect, ASilentMasterIsACommErrorAndAnUnknownOneASettingsError) {
  launch::Place place = place_of(1, 2, listen_anywhere());
  try {
    connect(place, {.timeout = milliseconds(200)});
    ADD_FAILURE() << "connected";
  } catch (const CommError& error) {
    EXPECT_THAT(error.what(), HasSubstr("got no answer within 0.2 s: Connection refused"));
  }
  place.master_address = "no-such-host.invalid";
  EXPECT_THROW(connect(place, {.timeout = milliseconds(100)}), ConfigError);
}

/// What rank 1 of 2 says where rank 0 should listen but `serve` answers each connection. At most two seconds.
std::string talk_to(const std::function<void(int connection)>& serve) {
  int socket = -1;
  const int port = listen_anywhere(&socket);
  std::thread other([&] {
    for (int connection = 0; (connection = accept(socket, nullptr, nullptr)) >= 0;) serve(connection);
  });
  std::string said = "connected";
  try {
    connect(place_of(1, 2, port), {.timeout = milliseconds(1000)});
  } catch (const ConfigError& error) {
    said = fmt::format("ConfigError {}", error.what());
  } catch (const CommError& error) {
    said = fmt::format("CommError {}", error.what());
  }
  shutdown(socket, SHUT_RDWR);
  other.join();
  close(socket);
  return said;
}

TEST(Connect, AProgramThatIsNoStoreAtTheMastersPortIsASettingsErrorWhereItIsKnown) {
  std::vector<int> open;
  EXPECT_THAT(
      talk_to([&](int connection) { open.push_back(connection); }),
      testing::AllOf(testing::StartsWith("CommError rendezvous: rank 0 must answer at 127.0.0.1:"),
                     HasSubstr("got silence for 1 s"), HasSubstr("see whether rank 0 is stopped, or")));
  for (const int connection : open) close(connection);
  EXPECT_THAT(talk_to([](int connection) {
                std::array<char, 10> question{};
                EXPECT_EQ(recv(connection, question.data(), question.size(), MSG_WAITALL), 10);
                EXPECT_EQ(write(connection, "SSH-2.0-x", 9), 9);
                close(connection);
              }),
              testing::AllOf(testing::StartsWith("ConfigError MASTER_PORT: rank 0 must listen at"),
                             HasSubstr("got another program there: it does not speak as a store; end it")));
  EXPECT_THAT(talk_to([](int connection) { close(connection); }),
              testing::AllOf(testing::StartsWith("CommError rendezvous: rank 0 must listen at"),
                             HasSubstr("within 1 s: connections are closed at once; see its log")));
}

TEST(Connect, ALongWaitForRankZeroIsSaid) {
  testing::internal::CaptureStderr();
  EXPECT_THROW(connect(place_of(1, 2, listen_anywhere()), {.timeout = milliseconds(5200)}), CommError);
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
  testing::internal::CaptureStderr();
  EXPECT_THROW(connect(place, {.timeout = milliseconds(5200)}), CommError);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::Not(HasSubstr("waiting for")));
}

TEST(Connect, AWorldOfOneOpensNothing) {
  const auto open_files = [] {
    const std::filesystem::directory_iterator files("/proc/self/fd");
    return std::distance(begin(files), end(files));
  };
  const auto before = open_files();
  const World world = connect(launch::Place(), {});
  Communicators ranks = communicators(world, 1);
  at::Tensor x = at::ones({2});
  ranks.world().all_reduce(x, "test").wait();
  world.barrier("test");
  EXPECT_EQ(open_files(), before);
  EXPECT_THROW(world.factory()->make({0, 1}, 0, "pair"), Error);
}

TEST(Connect, ACpuBuildOrMachineWithoutNcclSaysSo) {
  // Two ranks in one process are enough: the group is refused before anything is exchanged with NCCL.
  const int port = listen_anywhere();
  std::thread other([&] {
    const World world = connect(place_of(1, 2, port), {.timeout = std::chrono::seconds(20), .cuda = true});
    EXPECT_THROW(communicators(world, 1).world(), Error);
  });
  const World world = connect(place_of(0, 2, port), {.timeout = std::chrono::seconds(20), .cuda = true});
  EXPECT_THROW(communicators(world, 1).world(), Error);
  other.join();
}

}  // namespace
}  // namespace colonnade::comm
