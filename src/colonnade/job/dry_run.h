// A run without its machines: the real model of one rank on meta tensors, whose groups move nothing, and one
// whole training step of the real code on it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "colonnade/comm/call_log.h"
#include "colonnade/config/run.h"
#include "colonnade/cost/memory.h"
#include "colonnade/job/job.h"

namespace colonnade::job {

/// What one rank was seen to hold and to say; bytes of tensors.
struct DryRun {
  int rank = 0;
  int pipeline_rank = 0;
  int expert_rank = 0;
  int alike = 1;  ///< ranks that it stands for, itself with them; 0: another one does for it
  std::int64_t num_parameters = 0;  ///< local elements, tied copies and filling rows with them
  std::int64_t parameters = 0;      ///< bytes, as in cost::StageMemory
  std::int64_t gradients = 0;
  std::int64_t optimizer = 0;
  std::int64_t peak = 0;            ///< most alive in forward and backward and the sums of gradients
  std::int64_t optimizer_peak = 0;  ///< most alive while the optimizer steps
  std::vector<comm::LoggedCall> calls;
};

/// Bytes of main parameters under 16-bit ones and of moments that the job holds.
std::int64_t optimizer_bytes(Job& job);

/// Builds rank `rank` of `run` (complete and sound) and trains one step: forward and backward of all
/// micro-batches in the order of its schedule, sums of gradients, update. What depends on data follows one
/// assumption (layout::assumed_share): experts of a rank get equally many tokens, those of all ranks too
/// unless the settings say otherwise. The first call puts a counter in front of the allocator of meta
/// tensors, so no meta tensor should be there before.
DryRun dry_run(const config::Run& run, int rank);

/// The same of ranks that stand for all of the world, ascending: every rank of up to 16; otherwise the first
/// one of each class (cost::rank_classes), and of every group in which the first rank of a pipeline stage was
/// seen to speak the first and the last member. The first ranks of all stages are a pipeline, so each message
/// has both its ends.
std::vector<DryRun> dry_run_all(const config::Run& run);

/// A micro-batch without content on the run's device: tokens and labels are 0.
tensor::Batch empty_batch(const config::Run& run);
/// Steps on such micro-batches.
pipeline::Steps empty_steps(const config::Run& run);

/// What each of these dry runs is held against, the plan of its stage and of its experts' share of the rows:
/// meta tensors go the ways of the CPU, which copies the output of attention where CUDA may not.
std::vector<cost::StageMemory> plans_of(const config::Run& run, const std::vector<DryRun>& seen);

/// What that plan promised otherwise than `seen`, a sentence each: other numbers of parameters or bytes
/// between steps, a peak more than 3 % away.
std::vector<std::string> broken_promises(const config::Run& run, const std::vector<DryRun>& seen);

/// What the calls of these ranks would run into (comm::misfits), and stages whose ranks differ among
/// themselves.
std::vector<std::string> broken_talk(const std::vector<DryRun>& seen);

}  // namespace colonnade::job
