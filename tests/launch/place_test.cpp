// Places out of the variables that torchrun, Kubeflow and Slurm set.
#include "colonnade/launch/place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "colonnade/base/error.h"

namespace colonnade::launch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string fault_in(const Environment& env) {
  try {
    const Place place = find_place(env);
    ADD_FAILURE() << "accepted: " << describe(place);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return {};
}

const Environment kTorchrun = {{"RANK", "5"},
                               {"WORLD_SIZE", "8"},
                               {"LOCAL_RANK", "1"},
                               {"LOCAL_WORLD_SIZE", "4"},
                               {"MASTER_ADDR", "node1"},
                               {"MASTER_PORT", "29500"},
                               {"TORCHELASTIC_RUN_ID", "none"},
                               {"TORCHELASTIC_RESTART_COUNT", "2"},
                               {"TORCHELASTIC_USE_AGENT_STORE", "True"}};

const Environment kSlurm = {{"SLURM_PROCID", "9"},
                            {"SLURM_NTASKS", "16"},
                            {"SLURM_LOCALID", "1"},
                            {"SLURM_JOB_ID", "4711"},
                            {"SLURM_NODELIST", "gpu[003-004],cpu7"}};

Environment without(Environment env, const std::string& name) {
  env.erase(name);
  return env;
}
Environment with(Environment env, const std::string& name, const std::string& value) {
  env[name] = value;
  return env;
}

TEST(Place, AnEmptyEnvironmentIsAWorldOfOne) {
  const Place place = find_place({{"PATH", "/bin"}, {"MASTER_PORT", "1"}, {"SLURM_JOB_ID", "12"}});
  EXPECT_EQ(place.rank, 0);
  EXPECT_EQ(place.world_size, 1);
  EXPECT_TRUE(place.one_machine());
  EXPECT_EQ(place.launcher, "none");
}

TEST(Place, TorchrunHostsTheStore) {
  const Place place = find_place(kTorchrun);
  EXPECT_EQ(place.rank, 5);
  EXPECT_EQ(place.world_size, 8);
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_EQ(place.local_size, 4);
  EXPECT_FALSE(place.one_machine());
  EXPECT_EQ(place.master_address, "node1");
  EXPECT_EQ(place.master_port, 29500);
  EXPECT_TRUE(place.store_is_hosted);
  EXPECT_EQ(place.restart, 2);
  EXPECT_EQ(place.launcher, "torchrun");
  EXPECT_EQ(describe(place),
            "rank 5 of 8 (RANK, WORLD_SIZE), local rank 1 (LOCAL_RANK), master node1:29500 (MASTER_ADDR, "
            "MASTER_PORT)");
}

TEST(Place, OwnLauncherAndPlainVariables) {
  const Place place = find_place({{"RANK", "1"},
                                  {"WORLD_SIZE", "2"},
                                  {"LOCAL_RANK", "1"},
                                  {"LOCAL_WORLD_SIZE", "2"},
                                  {"MASTER_ADDR", "127.0.0.1"},
                                  {"MASTER_PORT", "4000"},
                                  {"COLONNADE_RESTART_COUNT", "3"}});
  EXPECT_FALSE(place.store_is_hosted);
  EXPECT_TRUE(place.one_machine());
  EXPECT_EQ(place.restart, 3);
  EXPECT_EQ(find_place({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).world_size, 1);
}

TEST(Place, ALoopbackMasterMeansThatAllRanksAreHere) {
  const Environment plain = {
      {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}, {"MASTER_PORT", "4000"}};
  for (const char* address : {"127.0.0.1", "127.0.1.1", "::1", "localhost"})
    EXPECT_TRUE(find_place(with(plain, "MASTER_ADDR", address)).one_machine()) << address;
  for (const char* address : {"10.0.0.1", "128.0.0.1", "::2", "node1", "127", "localhost.cluster"})
    EXPECT_FALSE(find_place(with(plain, "MASTER_ADDR", address)).one_machine()) << address;
  const Environment pod = with(plain, "KUBERNETES_SERVICE_HOST", "10.96.0.1");
  EXPECT_FALSE(find_place(with(pod, "MASTER_ADDR", "localhost")).one_machine());
  EXPECT_TRUE(find_place(with(pod, "MASTER_ADDR", "127.0.0.1")).one_machine());
}

TEST(Place, TheTokenOfTheJobIsReadUnderEveryLauncher) {
  for (const Environment& env : {kTorchrun, kSlurm, Environment{}}) {
    EXPECT_EQ(find_place(env).job_token, "");
    EXPECT_EQ(find_place(with(env, "COLONNADE_JOB_TOKEN", "a1")).job_token, "a1");
  }
}

TEST(Place, TorchrunInsideSlurmAndKubeflowWins) {
  Environment env = kTorchrun;
  env.insert(kSlurm.begin(), kSlurm.end());
  env["PET_NNODES"] = "2";
  env["PET_NPROC_PER_NODE"] = "4";
  EXPECT_EQ(find_place(env).rank, 5);
}

TEST(Place, AllFaultsAreListedAtOnce) {
  const std::string text = fault_in({{"RANK", "x"}, {"MASTER_PORT", "70000"}});
  EXPECT_THAT(text, HasSubstr("RANK must be a whole number from 0"));
  EXPECT_THAT(text, HasSubstr("got 'x'"));
  EXPECT_THAT(text, HasSubstr("WORLD_SIZE is not set"));
  EXPECT_THAT(text, HasSubstr("MASTER_ADDR is not set"));
  EXPECT_THAT(text, HasSubstr("MASTER_PORT must be a whole number from 1 to 65535"));
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}) {
    EXPECT_THAT(fault_in(without(kTorchrun, name)), HasSubstr(std::string(name) + " is not set")) << name;
  }
}

TEST(Place, ContradictionsAreRefused) {
  EXPECT_THAT(fault_in(with(kTorchrun, "RANK", "8")), HasSubstr("RANK=8 must be below WORLD_SIZE=8"));
  EXPECT_THAT(fault_in(with(kTorchrun, "LOCAL_WORLD_SIZE", "9")), HasSubstr("LOCAL_WORLD_SIZE=9"));
  EXPECT_THAT(fault_in(with(kTorchrun, "LOCAL_RANK", "4")),
              HasSubstr("LOCAL_RANK=4 must be below the 4 ranks"));
  EXPECT_THAT(fault_in(with(kTorchrun, "WORLD_SIZE", "99999999999999999999")),
              HasSubstr("WORLD_SIZE must be"));
  EXPECT_THAT(fault_in(with(kTorchrun, "RANK", "-1")), HasSubstr("got '-1'"));
}

TEST(Place, KubeflowAddressesNodes) {
  const Environment pod = {{"PET_NNODES", "4"},
                           {"PET_NPROC_PER_NODE", "1"},
                           {"PET_NODE_RANK", "2"},
                           {"PET_MASTER_ADDR", "job-master-0"},
                           {"PET_MASTER_PORT", "23456"}};
  const Place place = find_place(pod);
  EXPECT_EQ(place.rank, 2);
  EXPECT_EQ(place.world_size, 4);
  EXPECT_EQ(place.local_rank, 0);
  EXPECT_EQ(place.local_size, 1);
  EXPECT_EQ(place.master_address, "job-master-0");
  EXPECT_EQ(place.master_port, 23456);
  EXPECT_THAT(fault_in(with(pod, "PET_NPROC_PER_NODE", "8")), HasSubstr("colonnade launch"));
  EXPECT_THAT(fault_in(with(pod, "PET_NNODES", "2:4")), HasSubstr("PET_NNODES"));
  EXPECT_THAT(fault_in(without(pod, "PET_MASTER_ADDR")), HasSubstr("PET_MASTER_ADDR is not set"));

  // Its older jobs set RANK and WORLD_SIZE per pod and no LOCAL_RANK.
  const Environment old = {{"RANK", "1"},
                           {"WORLD_SIZE", "2"},
                           {"MASTER_ADDR", "job-master-0"},
                           {"MASTER_PORT", "23456"},
                           {"PET_NPROC_PER_NODE", "auto"},
                           {"PET_NNODES", "2"}};
  EXPECT_EQ(find_place(old).local_rank, 0);
  EXPECT_THAT(fault_in(with(old, "PET_NNODES", "1")), HasSubstr("LOCAL_RANK is not set"));
}

TEST(Place, SlurmTasks) {
  const Place place = find_place(kSlurm);
  EXPECT_EQ(place.rank, 9);
  EXPECT_EQ(place.world_size, 16);
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_EQ(place.master_address, "gpu003");
  EXPECT_EQ(place.master_port, 20000 + 4711 * 7 % 12000);
  EXPECT_EQ(place.launcher, "slurm");
  EXPECT_EQ(place.sources.at("master_address"), "the first host of SLURM_NODELIST");
  EXPECT_EQ(find_place(with(kSlurm, "SLURM_STEP_ID", "1")).master_port, place.master_port + 1);
  EXPECT_EQ(find_place(with(kSlurm, "SLURM_STEP_NODELIST", "cpu7,gpu003")).master_address, "cpu7");
  EXPECT_EQ(find_place(with(kSlurm, "MASTER_ADDR", "head")).master_address, "head");
  EXPECT_EQ(find_place(with(kSlurm, "MASTER_PORT", "1234")).master_port, 1234);
  const Place one_machine = find_place(with(kSlurm, "SLURM_NODELIST", "gpu003"));
  EXPECT_EQ(one_machine.master_address, "127.0.0.1");
  EXPECT_TRUE(one_machine.one_machine());
  EXPECT_TRUE(
      find_place(with(with(kSlurm, "SLURM_NODELIST", "gpu003"), "MASTER_ADDR", "head")).one_machine());
  EXPECT_FALSE(find_place(with(kSlurm, "MASTER_ADDR", "head")).one_machine());
  EXPECT_THAT(fault_in(without(kSlurm, "SLURM_NODELIST")), HasSubstr("SLURM_STEP_NODELIST"));
  EXPECT_THAT(fault_in(without(kSlurm, "SLURM_JOB_ID")), HasSubstr("SLURM_JOB_ID"));
  EXPECT_THAT(fault_in(without(kSlurm, "SLURM_LOCALID")), HasSubstr("SLURM_LOCALID is not set"));
  EXPECT_THAT(fault_in(with(kSlurm, "SLURM_NODELIST", "gpu[3-1]")), HasSubstr("3-1"));
}

TEST(Place, SlurmSaysHowManyRanksAMachineHas) {
  struct Case {
    Environment more;
    int local_size;
  };
  const Case cases[] = {
      {{}, 0},
      {{{"SLURM_STEP_TASKS_PER_NODE", "8(x2)"}}, 8},
      {{{"SLURM_STEP_TASKS_PER_NODE", "8(x2)"}, {"SLURM_NODEID", "1"}}, 8},
      {{{"SLURM_STEP_TASKS_PER_NODE", "6,5(x2)"}, {"SLURM_NODEID", "0"}}, 6},
      {{{"SLURM_STEP_TASKS_PER_NODE", "6,5(x2)"}, {"SLURM_NODEID", "2"}}, 5},
      {{{"SLURM_STEP_TASKS_PER_NODE", "6,5(x2)"}}, 0},  // which node this is is not known
      {{{"SLURM_NTASKS_PER_NODE", "4"}, {"SLURM_NODEID", "3"}}, 4},
      {{{"SLURM_NTASKS_PER_NODE", "4"}, {"SLURM_STEP_TASKS_PER_NODE", "8(x2)"}}, 8},
      {{{"SLURM_NTASKS_PER_NODE", "1"}}, 0},   // of the job; this step has local rank 1
      {{{"SLURM_NTASKS_PER_NODE", "64"}}, 0},  // more than the step has
      {{{"SLURM_STEP_TASKS_PER_NODE", "8(x"}}, 0},
      {{{"SLURM_STEP_TASKS_PER_NODE", "8(x2)9"}}, 0},
      {{{"SLURM_STEP_TASKS_PER_NODE", "many"}}, 0},
  };
  for (const Case& c : cases) {
    Environment env = kSlurm;
    env.insert(c.more.begin(), c.more.end());
    EXPECT_EQ(find_place(env).local_size, c.local_size) << testing::PrintToString(c.more);
  }
}

TEST(Place, SlurmSaysWhatATaskAloneHas) {
  EXPECT_EQ(find_place(kSlurm).cores, 0);
  EXPECT_EQ(find_place(with(kSlurm, "SLURM_CPUS_PER_TASK", "12")).cores, 12);
  EXPECT_FALSE(find_place(kSlurm).own_gpu);
  EXPECT_TRUE(find_place(with(kSlurm, "SLURM_GPUS_PER_TASK", "1")).own_gpu);
  EXPECT_TRUE(find_place(with(kSlurm, "SLURM_GPUS_PER_TASK", "h100:1")).own_gpu);
  EXPECT_TRUE(find_place(with(kSlurm, "SLURM_NTASKS_PER_GPU", "1")).own_gpu);
  EXPECT_FALSE(find_place(with(kSlurm, "SLURM_GPUS_PER_TASK", "2")).own_gpu);
  EXPECT_FALSE(find_place(with(kSlurm, "CUDA_VISIBLE_DEVICES", "0")).own_gpu) << "all ranks may share it";
  EXPECT_FALSE(find_place(with(kTorchrun, "SLURM_GPUS_PER_TASK", "1")).own_gpu)
      << "torchrun's ranks share it";
}

TEST(Place, ThreadsAreTheRanksShareOfTheCores) {
  const auto threads = [](int local_size, int given, int usable) {
    Place place;
    place.local_size = local_size;
    place.cores = given;
    return threads_of(place, usable);
  };
  EXPECT_EQ(threads(4, 0, 64), 16);
  EXPECT_EQ(threads(0, 0, 64), 64) << "nobody says how many ranks there are";
  EXPECT_EQ(threads(8, 0, 4), 1);
  EXPECT_EQ(threads(4, 12, 64), 12) << "Slurm's word counts";
  EXPECT_EQ(threads(4, 12, 8), 8) << "but no more than the process may use";
}

TEST(NodeList, BracketsRangesAndPlainNames) {
  EXPECT_THAT(expand_node_list("a"), ElementsAre("a"));
  EXPECT_THAT(expand_node_list("n[01-03,7],gpu5,x[9]"), ElementsAre("n01", "n02", "n03", "n7", "gpu5", "x9"));
  EXPECT_THAT(expand_node_list("n[098-101]"), ElementsAre("n098", "n099", "n100", "n101"));
  EXPECT_THAT(expand_node_list("rack-1-n2,rack-1-n3"), ElementsAre("rack-1-n2", "rack-1-n3"));
  EXPECT_THAT(expand_node_list("n[0-999999999]", 2), ElementsAre("n0", "n1"));
  EXPECT_TRUE(expand_node_list("").empty());
  for (const char* bad : {"n[1-", "n[]", "n[a-b]", "n[1]x", "n[3-1]", "n[1,,2]", "n[99999999999]"}) {
    EXPECT_THROW(expand_node_list(bad), ConfigError) << bad;
  }
}

}  // namespace
}  // namespace colonnade::launch
