// Rank, world size and rendezvous address of this process, read from the environment variables of torchrun,
// `colonnade launch`, Kubeflow or Slurm.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace colonnade::launch {

using Environment = std::map<std::string, std::string>;

/// Environment variables of this process.
Environment environment_of_process();

/// Identity of this process in its job.
struct RankEnvironment {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;          ///< rank on this machine
  int local_world_size = 0;    ///< ranks on this machine; 0: unknown
  int cores = 0;               ///< CPU cores assigned to this rank; 0: unknown
  bool exclusive_gpu = false;  ///< the launcher exposes one GPU, visible to no other rank
  std::string master_address;  ///< host of the job's TCPStore; "" if the world size is 1
  int master_port = 0;
  bool loopback_master = false;   ///< master_address is loopback, so all ranks are on this machine
  bool has_agent_store = false;   ///< torchrun's agent hosts the store at master_port, not rank 0
  int restart = 0;                ///< restart count of the launcher
  std::string job_token;          ///< key prefix of the job in the store, from COLONNADE_JOB_TOKEN; "": none
  std::string launcher = "none";  ///< "torchrun", "environment", "kubeflow", "slurm" or "none"
  /// Source of each value: {"rank", "SLURM_PROCID"}, {"master_port", "20000 + SLURM_JOB_ID ..."}.
  std::map<std::string, std::string> sources;

  /// Whether all ranks are on this machine: by local world size, or because the master address is loopback.
  [[nodiscard]] bool is_single_node() const { return local_world_size == world_size || loopback_master; }
};

/// Reads `env`. The first match applies:
///   RANK or WORLD_SIZE   RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT; torchrun adds
///                        LOCAL_WORLD_SIZE and TORCHELASTIC_*. LOCAL_RANK may be missing if each node
///                        has one rank (world size 1, PET_NPROC_PER_NODE=1 or PET_NNODES = world).
///   PET_NNODES           Kubeflow: describes nodes; with PET_NPROC_PER_NODE=1 the process is the
///                        node's only rank. PET_NODE_RANK, PET_MASTER_ADDR, PET_MASTER_PORT.
///   SLURM_PROCID         srun: SLURM_NTASKS, SLURM_LOCALID; the master is the first host of
///                        SLURM_STEP_NODELIST or SLURM_NODELIST (127.0.0.1 if it is the only host),
///                        its port a function of SLURM_JOB_ID; MASTER_ADDR and MASTER_PORT override.
///                        Ranks on this machine: all, if the node list has one host; else
///                        SLURM_STEP_TASKS_PER_NODE and SLURM_NODEID, else SLURM_NTASKS_PER_NODE. Cores:
///                        SLURM_CPUS_PER_TASK. exclusive_gpu: SLURM_GPUS_PER_TASK or SLURM_NTASKS_PER_GPU
///                        is 1.
///   none of them         world size 1
/// COLONNADE_JOB_TOKEN is read in every case.
/// Throws ConfigError that lists every missing, malformed or contradictory variable.
RankEnvironment read_rank_environment(const Environment& env);

/// "rank 3 of 8 (SLURM_PROCID, SLURM_NTASKS), local rank 1 (SLURM_LOCALID), master n01:20815 (...)".
std::string describe(const RankEnvironment& place);

/// Intra-op threads of this rank: the cores assigned by the launcher, else its share of `usable_cores`; at
/// least 1 and at most `usable_cores` (the process's affinity mask).
int intra_op_threads(const RankEnvironment& place, int usable_cores);

/// Tasks on node index `node` of a Slurm step from Slurm's list: "8(x2),4" means 8, 8, 4. `node` -1: unknown,
/// valid if all nodes have the same count. 0 if undetermined.
int tasks_of_node(const std::string& list, int node);

/// Hosts of a Slurm node list: "n[01-03,7],gpu5" is n01, n02, n03, n7, gpu5. Returns at most `limit` hosts.
/// Throws ConfigError if brackets or ranges are malformed.
std::vector<std::string> expand_node_list(const std::string& list, std::size_t limit = 65536);

}  // namespace colonnade::launch
