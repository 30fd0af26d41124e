// A training run without devices: the real model of one rank on meta tensors, with process groups that
// transfer nothing, and one full training step of the real code.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "colonnade/comm/call_log.h"
#include "colonnade/config/run.h"
#include "colonnade/cost/memory.h"
#include "colonnade/job/job.h"

namespace colonnade::job {

/// Memory and collectives of one rank, measured in a dry run; tensor sizes in bytes.
struct DryRun {
  int rank = 0;
  int pipeline_rank = 0;
  int expert_rank = 0;
  int represented_ranks =
      1;  ///< number of ranks it represents, itself included; 0: another one represents it
  std::int64_t num_parameters = 0;  ///< local elements, with tied copies and padding rows
  std::int64_t parameters = 0;      ///< bytes, as in cost::StageMemory
  std::int64_t gradients = 0;
  std::int64_t optimizer = 0;
  std::int64_t peak = 0;            ///< peak of forward, backward and gradient reduction
  std::int64_t optimizer_peak = 0;  ///< peak of the optimizer step
  std::vector<comm::LoggedCall> calls;
};

/// Installs the counting allocator of meta tensors once; it stays. No meta tensor should exist before.
void count_meta_tensors();

/// Bytes of the job's fp32 main parameters (of 16-bit ones) and moments.
std::int64_t optimizer_bytes(Job& job);

/// Builds rank `rank` of `run` (complete and checked) and trains one step: forward and backward of all
/// micro-batches in schedule order, gradient reduction, update. Data-dependent sizes follow one assumption
/// (layout::assumed_share): the experts of a rank get equally many tokens, and so do all ranks unless the
/// settings say otherwise. Calls count_meta_tensors().
DryRun dry_run(const config::Run& run, int rank);

/// Dry runs of ranks that represent the whole world, ascending: every rank of up to 16; otherwise the first
/// rank of each class (cost::rank_classes), and the first and last member of every group in which the first
/// rank of a pipeline stage called a collective. The first ranks of all stages form a pipeline, so each
/// message has both its ends.
std::vector<DryRun> dry_run_all(const config::Run& run);

/// A micro-batch without content on the run's device: tokens and labels are 0.
tensor::Batch empty_batch(const config::Run& run);
/// Steps on empty micro-batches.
pipeline::Steps empty_steps(const config::Run& run);

/// The memory plan that each dry run is compared with: that of its stage, with its expert rank's share of the
/// tokens. Meta tensors follow the CPU path, which copies the attention output where CUDA may not.
std::vector<cost::StageMemory> planned_memory_of(const config::Run& run, const std::vector<DryRun>& seen);

/// Differences between the plan and `seen`, one sentence each: other numbers of parameters or of bytes
/// between steps, a peak more than 3 % off; with pairs of passes, whose plan is an upper bound, more than
/// 25 % below.
std::vector<std::string> plan_mismatches(const config::Run& run, const std::vector<DryRun>& seen);

/// Faults in the collectives of these ranks (comm::call_mismatches), and differences between ranks of the
/// same stage.
std::vector<std::string> collective_mismatches(const std::vector<DryRun>& seen);

}  // namespace colonnade::job
