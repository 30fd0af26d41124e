// Where this process stands among the ranks of its job, read from the environment that torchrun,
// `colonnade launch`, Kubeflow or Slurm gives it.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace colonnade::launch {

using Environment = std::map<std::string, std::string>;

/// The variables of this process.
Environment environment_of_process();

struct Place {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;          ///< among the ranks of this machine
  int local_size = 0;          ///< ranks on this machine; 0: not known
  int cores = 0;               ///< that the launcher gives this rank; 0: not known
  bool own_gpu = false;        ///< the launcher shows this rank one GPU, which no other rank sees
  std::string master_address;  ///< host of the job's store; "" in a world of one
  int master_port = 0;
  bool loopback_master = false;  ///< master_address is a loopback address, so every rank is on this machine
  bool store_is_hosted = false;  ///< torchrun's agent answers at the master's port, so rank 0 does not
  int restart = 0;               ///< how often the launcher has started the ranks again
  std::string job_token;  ///< prefix of the job's keys in the store, from COLONNADE_JOB_TOKEN; "": none
  std::string launcher = "none";  ///< "torchrun", "environment", "kubeflow", "slurm"; "none": alone
  /// Where each value came from: {"rank", "SLURM_PROCID"}, {"master_port", "20000 + SLURM_JOB_ID ..."}.
  std::map<std::string, std::string> sources;

  /// All ranks are on this machine: the launcher says so, or they reach rank 0 by a loopback address.
  [[nodiscard]] bool one_machine() const { return local_size == world_size || loopback_master; }
};

/// The place that `env` describes. The first that applies:
///   RANK or WORLD_SIZE   RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT; torchrun adds
///                        LOCAL_WORLD_SIZE and TORCHELASTIC_*. LOCAL_RANK may be missing where each
///                        node has one rank (world size 1, PET_NPROC_PER_NODE=1 or PET_NNODES = world).
///   PET_NNODES           Kubeflow: addresses nodes; with PET_NPROC_PER_NODE=1 the process is the
///                        node's rank. PET_NODE_RANK, PET_MASTER_ADDR, PET_MASTER_PORT.
///   SLURM_PROCID         srun: SLURM_NTASKS, SLURM_LOCALID; the master is the first host of
///                        SLURM_STEP_NODELIST or SLURM_NODELIST (this machine when it is the only one),
///                        its port a function of SLURM_JOB_ID; MASTER_ADDR and MASTER_PORT override.
///                        Ranks of this machine: all, where the node list has one host; else
///                        SLURM_STEP_TASKS_PER_NODE and SLURM_NODEID, else SLURM_NTASKS_PER_NODE. Cores:
///                        SLURM_CPUS_PER_TASK. own_gpu: SLURM_GPUS_PER_TASK or SLURM_NTASKS_PER_GPU is 1.
///   none of them         a world of one
/// COLONNADE_JOB_TOKEN is read in every case.
/// Throws ConfigError that lists every missing, malformed or contradictory variable.
Place find_place(const Environment& env);

/// "rank 3 of 8 (SLURM_PROCID, SLURM_NTASKS), local rank 1 (SLURM_LOCALID), master n01:20815 (...)".
std::string describe(const Place& place);

/// Threads of this rank: the cores that the launcher gives it, else its share of the machine's; at most
/// `usable_cores`, those that the process may use, and at least 1.
int threads_of(const Place& place, int usable_cores);

/// Tasks of node number `node` of a step by Slurm's list: "8(x2),4" is 8, 8, 4. `node` -1: where all nodes
/// have the same. 0 when the list does not say.
int tasks_of_node(const std::string& list, int node);

/// The hosts of a Slurm node list: "n[01-03,7],gpu5" is n01, n02, n03, n7, gpu5. At most `most` are
/// given. Throws ConfigError when brackets or ranges are malformed.
std::vector<std::string> expand_node_list(const std::string& list, std::size_t most = 65536);

}  // namespace colonnade::launch
