// Listening sockets of a run on one machine: on loopback only, with every launcher and every name of
// the master.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <set>
#include <sstream>

#include "program.h"

namespace colonnade::e2e {
namespace {

namespace fs = std::filesystem;

/// Inodes of the open sockets of a process.
std::set<std::string> sockets_of(pid_t process) {
  std::set<std::string> inodes;
  std::error_code gone;
  for (const auto& entry : fs::directory_iterator(fs::path("/proc") / std::to_string(process) / "fd", gone)) {
    const std::string target = fs::read_symlink(entry.path(), gone).string();  // "socket:[123]"
    if (target.starts_with("socket:[")) inodes.insert(target.substr(8, target.size() - 9));
  }
  return inodes;
}

/// Local addresses on which a process listens, in the kernel's notation: "0100007F" is 127.0.0.1.
std::vector<std::string> listens_at(pid_t process) {
  const std::set<std::string> mine = sockets_of(process);
  std::vector<std::string> addresses;
  for (const char* table : {"tcp", "tcp6"}) {
    std::ifstream lines(fs::path("/proc") / std::to_string(process) / "net" / table);
    std::string line;
    std::getline(lines, line);  // header line
    while (std::getline(lines, line)) {
      std::istringstream words(line);
      std::string number, local, remote, state, queues, timer, retransmits, user, timeout, inode;
      words >> number >> local >> remote >> state >> queues >> timer >> retransmits >> user >> timeout >>
          inode;
      if (state == "0A" && mine.contains(inode)) addresses.push_back(local.substr(0, local.find(':')));
    }
  }
  return addresses;
}

/// A run that continues until it is stopped.
Words long_run(const TempFolder& folder) {
  return small_gpt() + Words{"--train-iters",
                             "100000",
                             "--save-interval",
                             "100000",
                             "--eval-iters",
                             "0",
                             "--tensor-model-parallel-size",
                             "2",
                             "--save",
                             folder.path().string()};
}

/// Expects loopback listeners only, for `programs` and their descendants that are `colonnade`; 2 ranks.
void expect_only_loopback(const TempFolder& folder, std::vector<std::unique_ptr<Program>> programs) {
  ASSERT_TRUE(programs.front()->wait_until([&] { return !iterations(folder.path()).empty(); }))
      << programs.front()->text();
  int listeners = 0;
  for (const auto& program : programs) {
    std::vector<pid_t> processes = descendants(program->pid());
    processes.push_back(program->pid());
    for (const pid_t process : processes) {
      const std::string name = read_text(fs::path("/proc") / std::to_string(process) / "comm");
      if (name != "colonnade\n") continue;
      const std::vector<std::string> addresses = listens_at(process);
      EXPECT_THAT(addresses, testing::Each("0100007F"));
      listeners += addresses.empty() ? 0 : 1;
    }
  }
  EXPECT_EQ(listeners, 2) << "each rank listens for the other, and rank 0 for the store";
  for (const auto& program : programs) program->send(SIGTERM);
  for (const auto& program : programs) program->finish();
}

/// A network interface that other machines can reach; "" without one.
std::string interface_to_others() {
  std::string name;
  if (struct if_nameindex* const all = ::if_nameindex(); all != nullptr) {
    for (const auto* one = all; one->if_index != 0; ++one)
      if (std::string(one->if_name) != "lo") name = one->if_name;
    ::if_freenameindex(all);
  }
  return name;
}

std::vector<std::unique_ptr<Program>> ranks(const TempFolder& folder, Variables common,
                                            const std::vector<std::string>& numbered) {
  std::vector<std::unique_ptr<Program>> started;
  for (const char* rank : {"0", "1"}) {
    for (const std::string& name : numbered) common[name] = rank;
    started.push_back(std::make_unique<Program>(colonnade(long_run(folder)), common));
  }
  return started;
}

TEST(Listening, OwnLauncherWithTheNameOfAMachineAndAnInterface) {
  const TempFolder folder;
  std::vector<std::unique_ptr<Program>> programs;
  programs.push_back(std::make_unique<Program>(
      launch(2, folder.path(), long_run(folder), {"--master-addr", "node-17.invalid"}),
      Variables{{"GLOO_SOCKET_IFNAME", interface_to_others()}}));
  expect_only_loopback(folder, std::move(programs));
}

TEST(Listening, PlainVariablesWithLocalhost) {
  const TempFolder folder;
  const Variables common{{"WORLD_SIZE", "2"},
                         {"MASTER_ADDR", "localhost"},
                         {"MASTER_PORT", free_port()},
                         {"KUBERNETES_SERVICE_HOST", ""}};
  expect_only_loopback(folder, ranks(folder, common, {"RANK", "LOCAL_RANK"}));
}

TEST(Listening, SlurmOnOneNodeWithItsNameAsMaster) {
  const TempFolder folder;
  const Variables common{{"SLURM_NTASKS", "2"},
                         {"SLURM_STEP_NODELIST", "gpu003"},
                         {"MASTER_ADDR", "gpu003"},
                         {"SLURM_JOB_ID", "815"},
                         {"MASTER_PORT", free_port()}};
  expect_only_loopback(folder, ranks(folder, common, {"SLURM_PROCID", "SLURM_LOCALID"}));
}

TEST(Listening, Torchrun) {
  const std::string python = std::string(COLONNADE_PYTHON_BIN) + "/python";
  const TempFolder folder;
  std::vector<std::unique_ptr<Program>> programs;
  programs.push_back(std::make_unique<Program>(
      Words{python, "-m", "torch.distributed.run", "--no-python", "--standalone", "--nproc-per-node", "2"} +
      colonnade(long_run(folder))));
  expect_only_loopback(folder, std::move(programs));
}

}  // namespace
}  // namespace colonnade::e2e
