// Ranks as real processes over gloo: this test binary runs itself once per rank. The disabled tests of suite
// Rank are the bodies of those ranks; the tests of suite Processes start them and check the results.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <exception>
#include <filesystem>
#include <limits>
#include <map>
#include <thread>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/comm/backend.h"
#include "colonnade/comm/rendezvous.h"
#include "colonnade/launch/process.h"
#include "comm/collective_checks.h"
#include "support/device.h"

namespace colonnade::comm {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
using testing::HasSubstr;

// ---- starting ranks ----

struct ExitedRank {
  int code = -1;    ///< exit code, or 1000 + signal
  std::string log;  ///< standard output and error
};

/// The processes of one world; each runs the disabled test Rank.DISABLED_<body>.
class Job {
 public:
  Job(std::string body, int world) : body_(std::move(body)), world_(world) {
    folder_ = std::filesystem::temp_directory_path() / fmt::format("colonnade_comm_{}_{}", getpid(), body_);
    std::filesystem::create_directories(folder_);
  }
  ~Job() { std::filesystem::remove_all(folder_); }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  void start(int rank) {
    const std::string log = log_of(rank), filter = "--gtest_filter=Rank.DISABLED_" + body_;
    const std::vector<std::pair<const char*, std::string>> env = {
        {"RANK", std::to_string(rank)},
        {"LOCAL_RANK", std::to_string(rank)},
        {"WORLD_SIZE", std::to_string(world_)},
        {"LOCAL_WORLD_SIZE", std::to_string(world_)},
        {"MASTER_ADDR", "127.0.0.1"},
        {"MASTER_PORT", std::to_string(port_)},
        {"OMP_NUM_THREADS", "1"}};
    const pid_t pid = fork();
    if (pid == 0) {
      for (const auto& [name, value] : env) setenv(name, value.c_str(), 1);
      if (std::freopen(log.c_str(), "w", stdout) == nullptr || dup2(1, 2) < 0) _exit(99);
      execl("/proc/self/exe", "rank", filter.c_str(), "--gtest_also_run_disabled_tests", nullptr);
      _exit(98);
    }
    started_.emplace_back(rank, pid);
  }

  /// Returns when the rank has printed `words`, or fails after a minute.
  void wait_for(int rank, const std::string& words) const {
    const auto printed = [&] {
      return std::filesystem::exists(log_of(rank)) &&
             read_file(log_of(rank)).find(words) != std::string::npos;
    };
    for (int i = 0; i < 3000 && !printed(); ++i) std::this_thread::sleep_for(milliseconds(20));
    EXPECT_TRUE(printed()) << "rank " << rank << " has not printed " << words;
  }

  /// Exit codes and logs by rank.
  std::map<int, ExitedRank> finish() {
    std::map<int, ExitedRank> exited;
    for (const auto& [rank, pid] : started_) {
      int status = 0;
      waitpid(pid, &status, 0);
      exited[rank] = {WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status),
                      read_file(log_of(rank))};
    }
    return exited;
  }

 private:
  [[nodiscard]] std::string log_of(int rank) const { return folder_ / fmt::format("{}.log", rank); }

  std::string body_;
  int world_;
  int port_ = launch::free_port();
  std::filesystem::path folder_;
  std::vector<std::pair<int, pid_t>> started_;
};

/// Starts all ranks of a world together and waits for them.
std::map<int, ExitedRank> run_processes(const std::string& body, int world) {
  Job job(body, world);
  for (int rank = 0; rank < world; ++rank) job.start(rank);
  return job.finish();
}

World connect_at(const launch::RankEnvironment& place, milliseconds timeout) {
  return connect(place, {.timeout = timeout, .cuda = test::device().is_cuda(), .gloo_for_cuda = true});
}

World connect_here() {
  return connect_at(launch::read_rank_environment(launch::environment_of_process()),
                    std::chrono::seconds(60));
}

Communicators communicators(const World& world, int tensor) {
  config::Parallel parallel;
  parallel.world_size = world.size();
  parallel.tensor_model_parallel_size = tensor;
  return {layout::Mesh(parallel), world.rank(), world.factory()};
}

/// Runs `body` and exits at once like the program: error message and exit code.
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

/// Gradient norms rely on this: a NaN of any rank survives a sum, and an infinity a maximum.
TEST(Rank, DISABLED_NotFinite) {
  const World world = connect_here();
  Communicators ranks = communicators(world, 1);
  const auto infinity = std::numeric_limits<double>::infinity();
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf})
    for (int bad = 0; bad < world.size(); ++bad)
      for (const std::int64_t numel : {1, 3, 100}) {
        SCOPED_TRACE(fmt::format("{} of rank {}, {} elements", c10::toString(type), bad, numel));
        at::Tensor sum = at::full({numel}, 1.0, test::options(type)), largest = sum.clone();
        if (world.rank() == bad) sum[numel - 1] = std::nan(""), largest[numel - 1] = infinity;
        ranks.world().all_reduce(sum, "test").wait();
        ranks.world().all_reduce(largest, "test", Reduce::kMax).wait();
        EXPECT_TRUE(std::isnan(sum[numel - 1].item<double>()));
        EXPECT_EQ(largest[numel - 1].item<double>(), infinity);
      }
  world.barrier("end");
}

/// Many concurrent operations on three groups, awaited in another order.
TEST(Rank, DISABLED_Overlap) {
  const World world = connect_here();
  Communicators ranks = communicators(world, 2);
  Communicators second = communicators(world, 2);
  const std::vector<Group> groups = {ranks.world(), ranks.group({layout::Axis::kTp}),
                                     ranks.group({layout::Axis::kDp}), second.group({layout::Axis::kTp})};
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

/// In-place reduce-scatters and all-gathers of tensors sent in many chunks, two in flight at once.
TEST(Rank, DISABLED_LongTensors) {
  const World world = connect_here();
  const Group group = communicators(world, 1).world();
  const std::int64_t shard = (std::int64_t{3} << 20) + 7;
  const auto mine = [&](const at::Tensor& all) { return all.narrow(0, group.rank() * shard, shard); };
  std::vector<at::Tensor> all;
  std::vector<Work> works;
  for (int i = 0; i < 2; ++i) {
    // Multiples of 0.5, which fp32 adds exactly.
    const at::Tensor base = at::arange(shard * group.size(), at::kFloat).remainder(1000).mul(0.5);
    all.push_back(base.add(world.rank() + i));
    works.push_back(group.reduce_scatter(mine(all.back()), all.back(), "test / reduce_scatter"));
  }
  for (std::size_t i = works.size(); i-- > 0;) works[i].wait();
  for (const at::Tensor& tensor : all)
    works.push_back(group.all_gather(tensor, mine(tensor), "test / all_gather"));
  for (std::size_t i = works.size(); i-- > 0;) works[i].wait();
  const int n = group.size();
  for (int i = 0; i < 2; ++i) {
    const at::Tensor base = at::arange(shard * n, at::kFloat).remainder(1000).mul(0.5);
    const double rank_sum = n * (n - 1) / 2.0 + n * i;
    EXPECT_TRUE(at::equal(all[static_cast<std::size_t>(i)], base.mul(n).add(rank_sum))) << i;
  }
  world.barrier("end");
}

TEST(Rank, DISABLED_Killed) {
  run_as_program([] {
    const World world = connect_here();
    Communicators ranks = communicators(world, 2);
    at::Tensor x = at::ones({1000});
    for (int step = 0;; ++step) {
      if (world.rank() == 2 && step == 3) std::raise(SIGKILL);
      const auto begin = Clock::now();
      try {
        ranks.group({layout::Axis::kTp}).all_reduce(x, fmt::format("step {} / layer 3 / sum", step)).wait();
        ranks.world().all_reduce(x, fmt::format("step {} / dp.grad.bucket 0", step)).wait();
      } catch (const CommError&) {
        COL_CHECK(Clock::now() - begin < std::chrono::seconds(30),
                  "a lost rank must be detected long before the timeout of 60 s; got more than 30 s");
        throw;
      }
    }
  });
}

TEST(Rank, DISABLED_BrokenPipe) {
  run_as_program([] {
    Group group = communicators(connect_here(), 1).world();
    at::Tensor x = at::ones({10});
    group.all_reduce(x, "before").wait();
    std::raise(SIGPIPE);  // as a write to a lost peer does
    group.all_reduce(x, "after").wait();
  });
}

TEST(Rank, DISABLED_KilledSender) {
  run_as_program([] {
    const World world = connect_here();
    Group group = communicators(world, 1).world();
    at::Tensor x = at::ones({1000});
    world.barrier("both are connected");
    if (world.rank() == 1) std::raise(SIGKILL);
    group.recv(x, 1, 0, "activation of micro-batch 5").wait();
  });
}

/// The short timeout starts after a first rendezvous, so process start-up does not count. Rank 1 continues
/// only after rank 0 has given up.
TEST(Rank, DISABLED_Slow) {
  run_as_program([] {
    const World first = connect_here();
    launch::RankEnvironment place = first.place();
    place.has_agent_store = true;  // by the first world
    place.restart = 1;             // for separate keys
    const World world = connect_at(place, std::chrono::seconds(5));
    Group group = communicators(world, 1).world();
    std::exception_ptr given_up;
    try {
      if (world.rank() == 0) group.all_reduce(at::ones({10}), "late").wait();
    } catch (const CommError&) {
      given_up = std::current_exception();
    }
    first.barrier("rank 0 has given up");
    if (given_up) std::rethrow_exception(given_up);
  });
}

TEST(Rank, DISABLED_Incomplete) {
  run_as_program([] {
    fmt::print("about to connect\n");
    std::fflush(stdout);
    const launch::RankEnvironment place = launch::read_rank_environment(launch::environment_of_process());
    connect_at(place, std::chrono::seconds(place.rank == 0 ? 8 : 60));
  });
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

/// As under `srun --gpus-per-task=1`: every local rank sees its GPU as device 0. Uses groups of one, because
/// NCCL needs one GPU per member.
TEST(Rank, DISABLED_OwnGpu) {
  const World world =
      connect(launch::read_rank_environment(launch::environment_of_process()), {.cuda = true});
  const auto alone = world.factory()->make({world.rank()}, 0, fmt::format("alone {}", world.rank()));
  const at::Tensor x = at::ones({10}, test::options(at::kFloat));
  alone->all_reduce(x, Reduce::kSum, {"all_reduce"}).wait();
  alone->barrier({"barrier"});
  world.barrier("end");
}

// ---- tests ----

TEST(Processes, CollectivesAgreeWithPlainArithmetic) {
  for (const int world : {2, 3, 4})
    for (const auto& [rank, exited] : run_processes("Collectives", world))
      EXPECT_EQ(exited.code, 0) << exited.log;
}

TEST(Processes, ReductionsPropagateNanAndInfinity) {
  for (const auto& [rank, exited] : run_processes("NotFinite", 3)) EXPECT_EQ(exited.code, 0) << exited.log;
}

TEST(GpuNcclProcesses, EveryLocalRankUsesItsOwnGpu) {
  if (!test::device().is_cuda()) GTEST_SKIP() << "needs a GPU and COLONNADE_TEST_DEVICE=cuda";
  for (const auto& [rank, exited] : run_processes("OwnGpu", 2)) EXPECT_EQ(exited.code, 0) << exited.log;
}

TEST(Processes, OperationsOfSeveralGroupsOverlap) {
  for (const auto& [rank, exited] : run_processes("Overlap", 4)) EXPECT_EQ(exited.code, 0) << exited.log;
}

TEST(Processes, ReduceScatterAndAllGatherWorkInPlaceOnLargeTensors) {
  for (const int world : {2, 3})
    for (const auto& [rank, exited] : run_processes("LongTensors", world))
      EXPECT_EQ(exited.code, 0) << exited.log;
}

TEST(Processes, SigpipeDoesNotKillARank) {
  for (const auto& [rank, exited] : run_processes("BrokenPipe", 2)) EXPECT_EQ(exited.code, 0) << exited.log;
}

TEST(Processes, AKilledRankIsDetectedByAllWithinSeconds) {
  std::map<int, ExitedRank> exited = run_processes("Killed", 4);
  EXPECT_EQ(exited[2].code, 1000 + SIGKILL);
  for (const int rank : {0, 1, 3}) {
    const ExitedRank& peer = exited[rank];
    EXPECT_EQ(peer.code, kExitRankLost) << peer.log;
    EXPECT_THAT(peer.log, HasSubstr("CommError all_reduce \"step 3 / "));
  }
  EXPECT_THAT(exited[3].log,
              HasSubstr("layer 3 / sum\": every rank of group tp must take part; got an error on rank 3"));
}

TEST(Processes, AKilledSenderEndsTheReceive) {
  std::map<int, ExitedRank> exited = run_processes("KilledSender", 2);
  EXPECT_EQ(exited[0].code, kExitRankLost) << exited[0].log;
  EXPECT_THAT(exited[0].log, HasSubstr("recv \"activation of micro-batch 5\""));
  EXPECT_EQ(exited[1].code, 1000 + SIGKILL) << exited[1].log;
}

TEST(Processes, GroupsUseTheTimeout) {
  std::map<int, ExitedRank> exited = run_processes("Slow", 2);
  EXPECT_EQ(exited[0].code, kExitRankLost) << exited[0].log;
  EXPECT_THAT(exited[0].log, HasSubstr("all_reduce \"late\""));
  EXPECT_EQ(exited[1].code, 0) << "rank 0 must give up long before the barrier's 60 s\n" << exited[1].log;
}

TEST(Processes, MissingRanksAreCountedAndNamed) {
  Job job("Incomplete", 4);
  for (const int rank : {1, 3}) job.start(rank);
  for (const int rank : {1, 3}) job.wait_for(rank, "about to connect");
  job.start(0);  // last: its timeout starts here
  std::map<int, ExitedRank> exited = job.finish();
  for (const auto& [rank, end] : exited) EXPECT_EQ(end.code, kExitRankLost) << end.log;
  EXPECT_THAT(exited[0].log, HasSubstr("all ranks must arrive; got 3 of 4 within"));
  EXPECT_THAT(exited[0].log, HasSubstr("missing: rank 2; see"));
  EXPECT_THAT(exited[0].log,
              testing::ContainsRegex("rendezvous: waiting for 1 of 4 ranks, up to [0-9.]+ s: 2\n"));
}

TEST(Processes, DifferingSettingsAreReportedWithTheirRank) {
  for (const auto& [rank, exited] : run_processes("OtherSettings", 3)) {
    EXPECT_EQ(exited.code, kExitSettings) << exited.log;
    EXPECT_THAT(exited.log, HasSubstr("lr is '0.2' on rank 1 and '0.1' on rank 0"));
    EXPECT_THAT(exited.log, HasSubstr("swiglu is 'true' on rank 2 and nothing on rank 0"));
    EXPECT_THAT(exited.log, testing::Not(HasSubstr("seed")));
  }
}

TEST(Processes, ABarrierNamesTheMissingRank) {
  std::map<int, ExitedRank> exited = run_processes("Barrier", 2);
  EXPECT_EQ(exited[0].code, kExitRankLost) << exited[0].log;
  EXPECT_THAT(exited[0].log,
              HasSubstr("barrier \"step 2\": all ranks must arrive; got 1 of 2 within 0.5 s; missing: "
                        "rank 1"));
  EXPECT_EQ(exited[1].code, 0) << exited[1].log;
}

}  // namespace
}  // namespace colonnade::comm
