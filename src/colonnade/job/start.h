// The start of every verb that computes: launcher environment, settings, connection.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "colonnade/comm/communicators.h"
#include "colonnade/comm/rendezvous.h"
#include "colonnade/config/run.h"
#include "colonnade/launch/rank_environment.h"
#include "colonnade/rules/rules.h"

namespace colonnade::job {

struct StartedRun {
  config::Run run;
  comm::World world;
  comm::Communicators ranks;
  /// Steps of the checkpoints in --save before the settings were completed from them; none: unknown.
  std::optional<std::vector<std::int64_t>> steps_seen = std::nullopt;
};

/// Sets the log level (--logging-level), reads this process's rank from the environment, completes and checks
/// the settings, sets the number of threads (OMP_NUM_THREADS, or launch::intra_op_threads), makes this rank's
/// GPU current, connects to the other ranks and compares settings with them. Nothing is started before the
/// settings are valid. Throws ConfigError with all faults, `faults` of the command line included, or when the
/// run does not fit the memory of this machine (memory_check.h, on the CPU).
StartedRun start(config::Run run, rules::Purpose purpose, std::vector<std::string> faults = {});

/// Makes CUDA runs bitwise reproducible: fused attention and cuBLAS sum in a fixed order, and LibTorch's
/// other nondeterministic kernels are errors from here on, in the whole process. Sets CUBLAS_WORKSPACE_CONFIG
/// where it is not set, to the default workspace of an H100.
void require_deterministic_kernels();

/// Default of --device: cuda where CUDA is compiled in and finds a GPU, else cpu.
std::string default_device();

/// Index of the rank's GPU among the `gpus` it sees: 0 where the launcher gives each rank one GPU; else its
/// local rank under nccl, and its local rank modulo `gpus` under gloo. Throws ConfigError when there are too
/// few.
int choose_gpu(const launch::RankEnvironment& place, int gpus, const std::string& backend);

}  // namespace colonnade::job
