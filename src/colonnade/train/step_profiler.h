// --profile: traces of some steps of a run.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "colonnade/comm/group.h"
#include "colonnade/config/training.h"

namespace colonnade::train {

/// Profiles the steps [profile_step_start, profile_step_end) of the ranks in profile_ranks, by number as on
/// log lines. Kineto, in LibTorch, records operators, CUDA kernels and comm::TraceRange: steps
/// ("ProfilerStep#12"), passes of micro-batches, collectives, gradient sync, optimizer. After the last of
/// these steps, or at the end of the run, each rank writes FOLDER/torch_profile/rank-<rank>.json (Chrome
/// trace), and rank 0 merges the files that it finds into FOLDER/torch_profile/trace.json. With nvtx_ranges
/// NVTX ranges replace the trace. On CUDA, unless use_pytorch_profiler is set, the CUDA profiler API marks
/// the steps for Nsight Systems. With pytorch_profiler_collect_chakra each rank also writes
/// FOLDER/chakra/rank-<rank>.json. A file that cannot be written is a warning. Without --profile every call
/// returns at once. Source: Megatron's training.py (profiled steps, file names), torch.profiler.
class StepProfiler {
 public:
  /// `rank_names`: processes of the merged trace, by rank.
  StepProfiler(const config::Profiling& settings, const std::filesystem::path& folder, comm::Group world,
               at::Device device, std::vector<std::string> rank_names);
  ~StepProfiler();
  StepProfiler(const StepProfiler&) = delete;
  StepProfiler& operator=(const StepProfiler&) = delete;

  void before_step(std::int64_t step);
  /// Collective over the world after the last profiled step.
  void after_step(std::int64_t step);
  /// At the end of the run; collective if a profile is not written yet.
  void finish();

 private:
  void start();
  void stop(bool writes);
  void write_all();
  [[nodiscard]] std::filesystem::path trace_file(int rank) const;

  config::Profiling settings_;
  std::filesystem::path folder_;
  comm::Group world_;
  at::Device device_;
  std::vector<std::string> rank_names_;
  bool is_open_ = false;  ///< the current step is profiled, on some rank
  bool is_done_ = false;  ///< the profile is complete
  bool records_ = false;  ///< this rank records now
};

}  // namespace colonnade::train
