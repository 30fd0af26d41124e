// Rules for profiles, memory snapshots and energy.
#include <algorithm>
#include <string>

#include "colonnade/rules/table.h"

namespace colonnade::rules {

namespace {

using config::Run;
using Broken = std::optional<Finding>;

Broken profile_steps(const Run& r) {
  const config::Profiling& p = r.profiling;
  if (!p.profile || p.profile_step_end > p.profile_step_start) return std::nullopt;
  return Finding{"--profile-step-end",
                 "must be above --profile-step-start",
                 fmt::format("{} and {}", p.profile_step_end, p.profile_step_start),
                 {{"profile_step_end", text(p.profile_step_start + 2)}},
                 ""};
}

/// A run too short for the first profiled step would write no trace.
Broken profile_in_run(const Run& r) {
  const config::Profiling& p = r.profiling;
  const auto& last = r.training.train_iters;
  if (!p.profile || !last || *last < 1 || p.profile_step_start <= *last) return std::nullopt;
  return Finding{"--profile-step-start",
                 "must be at most --train-iters",
                 fmt::format("{} and {}", p.profile_step_start, *last),
                 {{"profile_step_start", text(std::max<std::int64_t>(*last - 1, 1))},
                  {"profile_step_end", text(*last + 1)}},
                 ""};
}

Broken profile_ranks(const Run& r) {
  const config::Profiling& p = r.profiling;
  const std::int64_t ranks = r.parallel.world_size;
  const auto is_outside = [&](std::int64_t rank) { return rank >= ranks; };
  if ((!p.profile && !p.record_memory_history) || std::ranges::none_of(p.profile_ranks, is_outside))
    return std::nullopt;
  std::string inside;
  for (const std::int64_t rank : p.profile_ranks)
    if (!is_outside(rank)) inside += (inside.empty() ? "" : " ") + text(rank);
  return Finding{"--profile-ranks",
                 fmt::format("must be ranks of the run, 0 to {}", ranks - 1),
                 fmt::format("{}", fmt::join(p.profile_ranks, " ")),
                 {{"profile_ranks", inside}},
                 ""};
}

Broken nvtx_device(const Run& r) {
  if (!r.profiling.profile || !r.profiling.nvtx_ranges || r.training.device == "cuda") return std::nullopt;
  return Finding{"--nvtx-ranges",
                 "requires --device cuda",
                 r.training.device,
                 {{"nvtx_ranges", "false"}},
                 "remove the flag; the trace of --profile has the same ranges",
                 /*missing=*/false,
                 /*of_data=*/false,
                 /*of_device=*/true};
}

Broken nvtx_or_trace(const Run& r) {
  const config::Profiling& p = r.profiling;
  if (!p.profile || !p.nvtx_ranges || r.training.device != "cuda") return std::nullopt;
  Finding found{"", "must not be used with --nvtx-ranges", "", {}, ""};
  found.add_if(r, p.use_pytorch_profiler, "use_pytorch_profiler", "false");
  found.add_if(r, p.pytorch_profiler_collect_shapes, "pytorch_profiler_collect_shapes", "false");
  if (found.edits.empty()) return std::nullopt;
  found.fix = fmt::format("{}, or --nvtx-ranges", removal(found));
  return found;
}

Broken memory_history(const Run& r) {
  if (!r.profiling.record_memory_history || r.training.device == "cuda") return std::nullopt;
  return Finding{"--record-memory-history",
                 "requires --device cuda",
                 r.training.device,
                 {{"record_memory_history", "false"}},
                 "remove the flag; --log-memory-interval reports every rank's memory",
                 /*missing=*/false,
                 /*of_data=*/false,
                 /*of_device=*/true};
}

Broken energy_device(const Run& r) {
  if (!r.logging.log_energy || r.training.device == "cuda") return std::nullopt;
  return Finding{"--log-energy",    "requires --device cuda", r.training.device, {{"log_energy", "false"}},
                 "remove the flag",
                 /*missing=*/false,
                 /*of_data=*/false,
                 /*of_device=*/true};
}

constexpr Rule kProfiling[] = {
    {"profile-steps", true, profile_steps, "profile=true; profile_step_start=5; profile_step_end=5",
     "The profiled steps are those from the start to before the end.", "profile"},
    {"profile-in-run", true, profile_in_run, "profile=true; profile_step_start=200; profile_step_end=202",
     "No step would be profiled.", "profile train_iters"},
    {"profile-ranks", true, profile_ranks, "profile=true; profile_ranks=0 8", "",
     "profile record_memory_history"},
    {"nvtx-device", true, nvtx_device, "profile=true; nvtx_ranges=true",
     "NVTX ranges are read by Nsight Systems, which profiles GPUs.", "profile device"},
    {"nvtx-or-trace", true, nvtx_or_trace,
     "profile=true; device=cuda; nvtx_ranges=true; use_pytorch_profiler=true",
     "LibTorch records either a trace or NVTX ranges.", "profile device nvtx_ranges"},
    {"memory-history", true, memory_history, "record_memory_history=true",
     "Only the CUDA caching allocator records its history.", "device"},
    {"energy-device", true, energy_device, "log_energy=true",
     "NVIDIA's management library counts the energy of GPUs.", "device"},
};

}  // namespace

std::span<const Rule> profiling_rules() { return kProfiling; }

}  // namespace colonnade::rules
