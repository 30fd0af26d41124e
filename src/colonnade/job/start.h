// The way every verb that computes begins: place, settings, connection.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "colonnade/comm/communicators.h"
#include "colonnade/comm/rendezvous.h"
#include "colonnade/config/run.h"
#include "colonnade/launch/place.h"
#include "colonnade/rules/rules.h"

namespace colonnade::job {

struct Started {
  config::Run run;
  comm::World world;
  comm::Communicators ranks;
  /// The steps of the checkpoints in --save before the settings were completed from them; nothing: not known.
  std::optional<std::vector<std::int64_t>> steps_seen = std::nullopt;
};

/// Sets the level of the log (--logging-level), finds this process's place in the environment, completes and
/// checks the settings (nothing is started before they are sound), sets the number of threads
/// (launch::threads_of unless OMP_NUM_THREADS says it), makes this rank's GPU the current one, meets the
/// other ranks and compares settings with them. Throws ConfigError with all faults, `faults` of the command
/// line included, or when the run does not fit the memory of this machine (memory_check.h, on the CPU).
Started start(config::Run run, rules::Purpose purpose, std::vector<std::string> faults = {});

/// A step that is done again gives equal bits on CUDA: fused attention and cuBLAS sum in an order that does
/// not depend on which thread comes first. LibTorch's other kernels that do not are errors from here on, in
/// the whole process. Sets CUBLAS_WORKSPACE_CONFIG where it is not set, to the workspace that an H100 has
/// anyway.
void choose_repeatable_kernels();

/// The --device of a run that was not given one: cuda where CUDA is compiled in and finds a GPU, else cpu.
std::string default_device();

/// The number of the GPU that the rank takes out of the `gpus` that it sees: the only one where the
/// launcher gives it one of its own; else that of its local rank under nccl, and under gloo ranks share them
/// in turn. Throws ConfigError when there are too few.
int choose_gpu(const launch::Place& place, int gpus, const std::string& backend);

}  // namespace colonnade::job
