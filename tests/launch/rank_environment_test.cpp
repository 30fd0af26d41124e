// Rank environment from the variables of torchrun, Kubeflow and Slurm.
#include "colonnade/launch/rank_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "colonnade/base/error.h"

namespace colonnade::launch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string error_in(const Environment& env) {
  try {
    const RankEnvironment place = read_rank_environment(env);
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

TEST(RankEnvironment, EmptyEnvironmentIsWorldSizeOne) {
  const RankEnvironment place =
      read_rank_environment({{"PATH", "/bin"}, {"MASTER_PORT", "1"}, {"SLURM_JOB_ID", "12"}});
  EXPECT_EQ(place.rank, 0);
  EXPECT_EQ(place.world_size, 1);
  EXPECT_TRUE(place.is_single_node());
  EXPECT_EQ(place.launcher, "none");
}

TEST(RankEnvironment, TorchrunAgentHostsTheStore) {
  const RankEnvironment place = read_rank_environment(kTorchrun);
  EXPECT_EQ(place.rank, 5);
  EXPECT_EQ(place.world_size, 8);
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_EQ(place.local_world_size, 4);
  EXPECT_FALSE(place.is_single_node());
  EXPECT_EQ(place.master_address, "node1");
  EXPECT_EQ(place.master_port, 29500);
  EXPECT_TRUE(place.has_agent_store);
  EXPECT_EQ(place.restart, 2);
  EXPECT_EQ(place.launcher, "torchrun");
  EXPECT_EQ(describe(place),
            "rank 5 of 8 (RANK, WORLD_SIZE), local rank 1 (LOCAL_RANK), master node1:29500 (MASTER_ADDR, "
            "MASTER_PORT)");
}

TEST(RankEnvironment, ReadsOwnLauncherAndPlainVariables) {
  const RankEnvironment place = read_rank_environment({{"RANK", "1"},
                                                       {"WORLD_SIZE", "2"},
                                                       {"LOCAL_RANK", "1"},
                                                       {"LOCAL_WORLD_SIZE", "2"},
                                                       {"MASTER_ADDR", "127.0.0.1"},
                                                       {"MASTER_PORT", "4000"},
                                                       {"COLONNADE_RESTART_COUNT", "3"}});
  EXPECT_FALSE(place.has_agent_store);
  EXPECT_TRUE(place.is_single_node());
  EXPECT_EQ(place.restart, 3);
  EXPECT_EQ(read_rank_environment({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).world_size, 1);
}

TEST(RankEnvironment, LoopbackMasterMeansASingleNode) {
  const Environment plain = {
      {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}, {"MASTER_PORT", "4000"}};
  for (const char* address : {"127.0.0.1", "127.0.1.1", "::1", "localhost"})
    EXPECT_TRUE(read_rank_environment(with(plain, "MASTER_ADDR", address)).is_single_node()) << address;
  for (const char* address : {"10.0.0.1", "128.0.0.1", "::2", "node1", "127", "localhost.cluster"})
    EXPECT_FALSE(read_rank_environment(with(plain, "MASTER_ADDR", address)).is_single_node()) << address;
  const Environment pod = with(plain, "KUBERNETES_SERVICE_HOST", "10.96.0.1");
  EXPECT_FALSE(read_rank_environment(with(pod, "MASTER_ADDR", "localhost")).is_single_node());
  EXPECT_TRUE(read_rank_environment(with(pod, "MASTER_ADDR", "127.0.0.1")).is_single_node());
}

TEST(RankEnvironment, JobTokenIsReadUnderEveryLauncher) {
  for (const Environment& env : {kTorchrun, kSlurm, Environment{}}) {
    EXPECT_EQ(read_rank_environment(env).job_token, "");
    EXPECT_EQ(read_rank_environment(with(env, "COLONNADE_JOB_TOKEN", "a1")).job_token, "a1");
  }
}

TEST(RankEnvironment, TorchrunTakesPrecedenceOverSlurmAndKubeflow) {
  Environment env = kTorchrun;
  env.insert(kSlurm.begin(), kSlurm.end());
  env["PET_NNODES"] = "2";
  env["PET_NPROC_PER_NODE"] = "4";
  EXPECT_EQ(read_rank_environment(env).rank, 5);
}

TEST(RankEnvironment, ReportsAllErrorsAtOnce) {
  const std::string text = error_in({{"RANK", "x"}, {"MASTER_PORT", "70000"}});
  EXPECT_THAT(text, HasSubstr("RANK must be an integer from 0"));
  EXPECT_THAT(text, HasSubstr("got 'x'"));
  EXPECT_THAT(text, HasSubstr("WORLD_SIZE is not set"));
  EXPECT_THAT(text, HasSubstr("MASTER_ADDR is not set"));
  EXPECT_THAT(text, HasSubstr("MASTER_PORT must be an integer from 1 to 65535"));
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}) {
    EXPECT_THAT(error_in(without(kTorchrun, name)), HasSubstr(std::string(name) + " is not set")) << name;
  }
}

TEST(RankEnvironment, ContradictionsAreRejected) {
  EXPECT_THAT(error_in(with(kTorchrun, "RANK", "8")), HasSubstr("RANK=8 must be below WORLD_SIZE=8"));
  EXPECT_THAT(error_in(with(kTorchrun, "LOCAL_WORLD_SIZE", "9")), HasSubstr("LOCAL_WORLD_SIZE=9"));
  EXPECT_THAT(error_in(with(kTorchrun, "LOCAL_RANK", "4")),
              HasSubstr("LOCAL_RANK=4 must be below the 4 ranks"));
  EXPECT_THAT(error_in(with(kTorchrun, "WORLD_SIZE", "99999999999999999999")),
              HasSubstr("WORLD_SIZE must be"));
  EXPECT_THAT(error_in(with(kTorchrun, "RANK", "-1")), HasSubstr("got '-1'"));
}

TEST(RankEnvironment, ReadsKubeflowNodes) {
  const Environment pod = {{"PET_NNODES", "4"},
                           {"PET_NPROC_PER_NODE", "1"},
                           {"PET_NODE_RANK", "2"},
                           {"PET_MASTER_ADDR", "job-master-0"},
                           {"PET_MASTER_PORT", "23456"}};
  const RankEnvironment place = read_rank_environment(pod);
  EXPECT_EQ(place.rank, 2);
  EXPECT_EQ(place.world_size, 4);
  EXPECT_EQ(place.local_rank, 0);
  EXPECT_EQ(place.local_world_size, 1);
  EXPECT_EQ(place.master_address, "job-master-0");
  EXPECT_EQ(place.master_port, 23456);
  EXPECT_THAT(error_in(with(pod, "PET_NPROC_PER_NODE", "8")), HasSubstr("colonnade launch"));
  EXPECT_THAT(error_in(with(pod, "PET_NNODES", "2:4")), HasSubstr("PET_NNODES"));
  EXPECT_THAT(error_in(without(pod, "PET_MASTER_ADDR")), HasSubstr("PET_MASTER_ADDR is not set"));

  // Its older jobs set RANK and WORLD_SIZE per pod and no LOCAL_RANK.
  const Environment old = {{"RANK", "1"},
                           {"WORLD_SIZE", "2"},
                           {"MASTER_ADDR", "job-master-0"},
                           {"MASTER_PORT", "23456"},
                           {"PET_NPROC_PER_NODE", "auto"},
                           {"PET_NNODES", "2"}};
  EXPECT_EQ(read_rank_environment(old).local_rank, 0);
  EXPECT_THAT(error_in(with(old, "PET_NNODES", "1")), HasSubstr("LOCAL_RANK is not set"));
}

TEST(RankEnvironment, ReadsSlurmTasks) {
  const RankEnvironment place = read_rank_environment(kSlurm);
  EXPECT_EQ(place.rank, 9);
  EXPECT_EQ(place.world_size, 16);
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_EQ(place.master_address, "gpu003");
  EXPECT_EQ(place.master_port, 20000 + 4711 * 7 % 12000);
  EXPECT_EQ(place.launcher, "slurm");
  EXPECT_EQ(place.sources.at("master_address"), "the first host of SLURM_NODELIST");
  EXPECT_EQ(read_rank_environment(with(kSlurm, "SLURM_STEP_ID", "1")).master_port, place.master_port + 1);
  EXPECT_EQ(read_rank_environment(with(kSlurm, "SLURM_STEP_NODELIST", "cpu7,gpu003")).master_address, "cpu7");
  EXPECT_EQ(read_rank_environment(with(kSlurm, "MASTER_ADDR", "head")).master_address, "head");
  EXPECT_EQ(read_rank_environment(with(kSlurm, "MASTER_PORT", "1234")).master_port, 1234);
  const RankEnvironment one_machine = read_rank_environment(with(kSlurm, "SLURM_NODELIST", "gpu003"));
  EXPECT_EQ(one_machine.master_address, "127.0.0.1");
  EXPECT_TRUE(one_machine.is_single_node());
  EXPECT_TRUE(read_rank_environment(with(with(kSlurm, "SLURM_NODELIST", "gpu003"), "MASTER_ADDR", "head"))
                  .is_single_node());
  EXPECT_FALSE(read_rank_environment(with(kSlurm, "MASTER_ADDR", "head")).is_single_node());
  EXPECT_THAT(error_in(without(kSlurm, "SLURM_NODELIST")), HasSubstr("SLURM_STEP_NODELIST"));
  EXPECT_THAT(error_in(without(kSlurm, "SLURM_JOB_ID")), HasSubstr("SLURM_JOB_ID"));
  EXPECT_THAT(error_in(without(kSlurm, "SLURM_LOCALID")), HasSubstr("SLURM_LOCALID is not set"));
  EXPECT_THAT(error_in(with(kSlurm, "SLURM_NODELIST", "gpu[3-1]")), HasSubstr("3-1"));
}

TEST(RankEnvironment, ReadsLocalWorldSizeFromSlurm) {
  struct Case {
    Environment more;
    int local_world_size;
  };
  const Case cases[] = {
      {{}, 0},
      {{{"SLURM_STEP_TASKS_PER_NODE", "8(x2)"}}, 8},
      {{{"SLURM_STEP_TASKS_PER_NODE", "8(x2)"}, {"SLURM_NODEID", "1"}}, 8},
      {{{"SLURM_STEP_TASKS_PER_NODE", "6,5(x2)"}, {"SLURM_NODEID", "0"}}, 6},
      {{{"SLURM_STEP_TASKS_PER_NODE", "6,5(x2)"}, {"SLURM_NODEID", "2"}}, 5},
      {{{"SLURM_STEP_TASKS_PER_NODE", "6,5(x2)"}}, 0},  // node index unknown
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
    EXPECT_EQ(read_rank_environment(env).local_world_size, c.local_world_size)
        << testing::PrintToString(c.more);
  }
}

TEST(RankEnvironment, ReadsCoresAndExclusiveGpuFromSlurm) {
  EXPECT_EQ(read_rank_environment(kSlurm).cores, 0);
  EXPECT_EQ(read_rank_environment(with(kSlurm, "SLURM_CPUS_PER_TASK", "12")).cores, 12);
  EXPECT_FALSE(read_rank_environment(kSlurm).exclusive_gpu);
  EXPECT_TRUE(read_rank_environment(with(kSlurm, "SLURM_GPUS_PER_TASK", "1")).exclusive_gpu);
  EXPECT_TRUE(read_rank_environment(with(kSlurm, "SLURM_GPUS_PER_TASK", "h100:1")).exclusive_gpu);
  EXPECT_TRUE(read_rank_environment(with(kSlurm, "SLURM_NTASKS_PER_GPU", "1")).exclusive_gpu);
  EXPECT_FALSE(read_rank_environment(with(kSlurm, "SLURM_GPUS_PER_TASK", "2")).exclusive_gpu);
  EXPECT_FALSE(read_rank_environment(with(kSlurm, "CUDA_VISIBLE_DEVICES", "0")).exclusive_gpu)
      << "may be shared by all ranks";
  EXPECT_FALSE(read_rank_environment(with(kTorchrun, "SLURM_GPUS_PER_TASK", "1")).exclusive_gpu)
      << "shared by torchrun's ranks";
}

TEST(RankEnvironment, ThreadsAreTheRanksShareOfCores) {
  const auto threads = [](int local_world_size, int given, int usable) {
    RankEnvironment place;
    place.local_world_size = local_world_size;
    place.cores = given;
    return intra_op_threads(place, usable);
  };
  EXPECT_EQ(threads(4, 0, 64), 16);
  EXPECT_EQ(threads(0, 0, 64), 64) << "local world size unknown";
  EXPECT_EQ(threads(8, 0, 4), 1);
  EXPECT_EQ(threads(4, 12, 64), 12) << "Slurm's value takes precedence";
  EXPECT_EQ(threads(4, 12, 8), 8) << "limited by the affinity mask";
}

TEST(NodeList, ExpandsBracketsRangesAndPlainNames) {
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
