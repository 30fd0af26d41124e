// See step_profiler.h.
#include "colonnade/train/step_profiler.h"

#include <fmt/format.h>
#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/csrc/profiler/standalone/execution_trace_observer.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <set>
#include <utility>

#include "colonnade/base/files.h"
#include "colonnade/base/log.h"
#include "colonnade/base/progress.h"
#include "colonnade/kernels/device.h"
#include "colonnade/record/merge_traces.h"

namespace colonnade::train {
namespace {

namespace fs = std::filesystem;
namespace profiler = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;
using torch::profiler::impl::ProfilerConfig;
using torch::profiler::impl::ProfilerState;

/// Larger traces are not merged: the ranks wait, and a viewer could hardly open the result.
constexpr std::uintmax_t kMostMergedBytes = std::uintmax_t{256} << 20U;

/// Runs `action`; a failure is a warning, since a profile must not end a run.
template <typename Action>
void warn_on_failure(const Action& action) {
  try {
    action();
  } catch (const std::exception& e) {
    log::warning("--profile: {}; the run continues", e.what());
  }
}

std::set<ActivityType> activities_of(at::Device device) {
  std::set<ActivityType> activities{ActivityType::CPU};
  if (device.is_cuda()) activities.insert(ActivityType::CUDA);
  return activities;
}

ProfilerConfig profiler_config(const config::Profiling& settings) {
  return ProfilerConfig(settings.nvtx_ranges ? ProfilerState::NVTX : ProfilerState::KINETO,
                        settings.record_shapes || settings.pytorch_profiler_collect_shapes);
}

/// Whether the CUDA profiler API marks the steps, for `nsys profile --capture-range=cudaProfilerApi`.
bool marks_steps(const config::Profiling& settings, at::Device device) {
  return device.is_cuda() && !settings.use_pytorch_profiler;
}

}  // namespace

StepProfiler::StepProfiler(const config::Profiling& settings, const fs::path& folder, comm::Group world,
                           at::Device device, std::vector<std::string> rank_names)
    : settings_(settings),
      folder_(folder),
      world_(std::move(world)),
      device_(device),
      rank_names_(std::move(rank_names)),
      is_done_(!settings.profile) {}

StepProfiler::~StepProfiler() {
  if (records_) warn_on_failure([&] { stop(/*writes=*/false); });
}

fs::path StepProfiler::trace_file(int rank) const {
  return folder_ / "torch_profile" / fmt::format("rank-{}.json", rank);
}

void StepProfiler::before_step(std::int64_t step) {
  if (is_done_ || is_open_ || step < settings_.profile_step_start) return;
  if (step >= settings_.profile_step_end) {
    is_done_ = true;
    if (world_.rank() == 0)
      log::warning(
          "--profile: steps {} to {} are before the first step of this process, {}; nothing is profiled",
          settings_.profile_step_start, settings_.profile_step_end - 1, step);
    return;
  }
  is_open_ = true;
  const auto& ranks = settings_.profile_ranks;
  if (ranks.empty() || std::ranges::find(ranks, world_.rank()) != ranks.end())
    warn_on_failure([&] { start(); });
}

void StepProfiler::start() {
  if (settings_.pytorch_profiler_collect_chakra) {
    const fs::path file = folder_ / "chakra" / fmt::format("rank-{}.json", world_.rank());
    create_folders(file.parent_path());
    if (torch::profiler::impl::addExecutionTraceObserver(file.string()))
      torch::profiler::impl::enableExecutionTraceObserver();
  }
  if (marks_steps(settings_, device_)) kernels::cuda::start_profiler();
  // Without a GPU Kineto would print an error about it.
  if (!device_.is_cuda()) ::setenv("KINETO_LOG_LEVEL", "5", /*overwrite=*/0);
  const ProfilerConfig config = profiler_config(settings_);
  const std::set<ActivityType> activities = activities_of(device_);
  if (!settings_.nvtx_ranges) profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities);
  records_ = true;
}

void StepProfiler::stop(bool writes) {
  records_ = false;
  const auto result = profiler::disableProfiler();
  if (marks_steps(settings_, device_)) kernels::cuda::stop_profiler();
  if (settings_.pytorch_profiler_collect_chakra) {
    torch::profiler::impl::disableExecutionTraceObserver();
    torch::profiler::impl::removeExecutionTraceObserver();
  }
  if (!writes || settings_.nvtx_ranges || result == nullptr) return;
  const fs::path file = trace_file(world_.rank());
  create_folders(file.parent_path());
  result->save(file.string());
}

void StepProfiler::after_step(std::int64_t step) {
  if (is_open_ && step + 1 >= settings_.profile_step_end) write_all();
}

void StepProfiler::finish() {
  if (is_open_) write_all();
  if (std::exchange(is_done_, true) || world_.rank() != 0) return;
  log::warning("--profile: the run has ended before step {}; nothing is profiled",
               settings_.profile_step_start);
}

void StepProfiler::write_all() {
  is_open_ = false;
  is_done_ = true;
  progress().set_phase("profile");
  // Files of an earlier profile in this folder are not merged with those of this one.
  if (world_.rank() == 0)
    warn_on_failure([&] {
      for (int rank = 0; rank < world_.size(); ++rank) fs::remove(trace_file(rank));
    });
  world_.barrier("old traces removed");
  if (records_) warn_on_failure([&] { stop(/*writes=*/true); });
  world_.barrier("traces written");
  if (world_.rank() != 0 || settings_.nvtx_ranges) return;
  warn_on_failure([&] {
    std::vector<record::RankTrace> traces;
    for (int rank = 0; rank < world_.size(); ++rank)
      if (fs::exists(trace_file(rank)))
        traces.push_back({rank, rank_names_[static_cast<std::size_t>(rank)], trace_file(rank)});
    if (traces.empty()) return;
    std::uintmax_t bytes = 0;
    for (const record::RankTrace& trace : traces) bytes += fs::file_size(trace.file);
    // The other ranks wait for this one meanwhile.
    if (bytes > kMostMergedBytes) {
      log::info("profile of {} ranks: {}; {} MB are too large to merge, open single files", traces.size(),
                (folder_ / "torch_profile").string(), bytes >> 20U);
      return;
    }
    const fs::path merged = folder_ / "torch_profile" / "trace.json";
    const std::int64_t events = record::merge_traces(traces, merged);
    log::info("profile of {} ranks, {} events: {}; open it in ui.perfetto.dev", traces.size(), events,
              merged.string());
  });
}

}  // namespace colonnade::train
