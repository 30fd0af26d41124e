// GPipe, 1F1B and interleaved 1F1B, and the selection of schedules by name.
#include <algorithm>

#include "colonnade/base/error.h"
#include "colonnade/config/parallel.h"
#include "colonnade/schedule/kinds.h"
#include "colonnade/schedule/writer.h"

namespace colonnade::schedule {

Schedule empty_schedule(Placement placement, int microbatches, const char* kind) {
  const int ranks = placement.ranks();
  const int chunks = placement.chunks();
  if (microbatches < 1) {
    throw ConfigError(
        fmt::format("{} schedule must have at least one micro-batch; got {}; raise --global-batch-size", kind,
                    microbatches));
  }
  return {.ranks = ranks,
          .chunks = chunks,
          .microbatches = microbatches,
          .kind = kind,
          .placement = std::move(placement),
          .programs = {},
          .pairs_passes = false};
}

Schedule gpipe(int ranks, int microbatches) {
  Schedule schedule = empty_schedule(Placement::loop(ranks, 1), microbatches, "gpipe");
  for (int rank = 0; rank < ranks; ++rank) {
    ProgramWriter writer(schedule, rank);
    for (int m = 0; m < microbatches; ++m) writer.forward({0, m});
    for (int m = 0; m < microbatches; ++m) writer.backward({0, m});
    schedule.programs.push_back(writer.take());
  }
  return schedule;
}

Schedule one_f_one_b(int ranks, int microbatches, bool paired) {
  Schedule schedule = empty_schedule(Placement::loop(ranks, 1), microbatches, "1f1b");
  schedule.pairs_passes = paired;
  for (int rank = 0; rank < ranks; ++rank) {
    ProgramWriter writer(schedule, rank);
    const int later = ranks - rank - 1;
    const int warmup = std::min(paired ? 2 * later + 1 : later, microbatches);
    for (int m = 0; m < warmup; ++m) writer.forward({0, m});
    for (int m = warmup; m < microbatches; ++m) writer.step({0, m}, {0, m - warmup}, paired);
    for (int m = microbatches - warmup; m < microbatches; ++m) writer.backward({0, m});
    schedule.programs.push_back(writer.take());
  }
  return schedule;
}

std::vector<ChunkStep> interleaved_order(int chunks, int microbatches, int group) {
  std::vector<ChunkStep> order;
  for (int begin = 0; begin < microbatches; begin += group) {
    const int end = std::min(begin + group, microbatches);
    for (int chunk = 0; chunk < chunks; ++chunk) {
      for (int m = begin; m < end; ++m) order.push_back({chunk, m});
    }
  }
  return order;
}

Schedule interleaved(int ranks, int chunks, int microbatches, int group, bool paired) {
  Schedule schedule = empty_schedule(Placement::loop(ranks, chunks), microbatches, "interleaved");
  schedule.pairs_passes = paired;
  if (group < ranks || group > microbatches) {
    throw ConfigError(fmt::format(
        "--microbatch-group-size-per-virtual-pipeline-stage must be between the pipeline size {} and the "
        "number of micro-batches {}; got {}; use at least {} micro-batches per step and a group size in this "
        "range",
        ranks, microbatches, group, ranks));
  }
  if (const int remainder = microbatches % group; remainder > 0 && remainder < ranks) {
    throw ConfigError(fmt::format(
        "interleaved schedule must have a last group of at least as many micro-batches as pipeline ranks; "
        "got {} micro-batches in groups of {}, with {} in the last group for {} ranks; use a multiple of {}",
        microbatches, group, remainder, ranks, group));
  }
  const std::vector<ChunkStep> order = interleaved_order(chunks, microbatches, group);
  const int total = static_cast<int>(order.size());
  for (int rank = 0; rank < ranks; ++rank) {
    ProgramWriter writer(schedule, rank);
    const int warmup = std::min(2 * (ranks - rank - 1) + (chunks - 1) * group + (paired ? 1 : 0), total);
    const auto forward = [&](int k) { return order[static_cast<std::size_t>(k)]; };
    const auto backward = [&](int k) {
      return ChunkStep{chunks - 1 - forward(k).chunk, forward(k).microbatch};
    };
    for (int k = 0; k < warmup; ++k) writer.forward(forward(k));
    for (int k = warmup; k < total; ++k) writer.step(forward(k), backward(k - warmup), paired);
    for (int k = total - warmup; k < total; ++k) writer.backward(backward(k));
    schedule.programs.push_back(writer.take());
  }
  return schedule;
}

Schedule with_delayed_wgrad(Schedule schedule) {
  for (Program& program : schedule.programs) {
    Program split;
    for (std::size_t i = 0; i < program.size(); ++i) {
      const Action a = program[i];
      if (a.kind != ActionKind::kBackward) {
        split.push_back(a);
        continue;
      }
      split.push_back({ActionKind::kBackwardInput, a.chunk, a.microbatch});
      while (i + 1 < program.size() && is_send(program[i + 1].kind)) split.push_back(program[++i]);
      split.push_back({ActionKind::kBackwardWeight, a.chunk, a.microbatch});
    }
    program = std::move(split);
  }
  schedule.kind += " with delayed weight gradients";
  return schedule;
}

namespace {

using config::Parallel;
using Shape = ScheduleKind::Shape;

Schedule make_interleaved(const Parallel& p, int chunks, int microbatches) {
  const int group = p.microbatch_group_size_per_virtual_pipeline_stage;
  return interleaved(p.pipeline_model_parallel_size, chunks, microbatches,
                     group > 0 ? group : p.pipeline_model_parallel_size, p.pairs_passes());
}

/// Adapts a schedule that depends only on ranks and micro-batches.
template <Schedule (*kMake)(int ranks, int microbatches)>
Schedule from_sizes(const Parallel& p, int /*chunks*/, int microbatches) {
  return kMake(p.pipeline_model_parallel_size, microbatches);
}
/// The same for one whose passes may run in pairs.
template <Schedule (*kMake)(int ranks, int microbatches, bool paired)>
Schedule from_sizes_in_pairs(const Parallel& p, int /*chunks*/, int microbatches) {
  return kMake(p.pipeline_model_parallel_size, microbatches, p.pairs_passes());
}

constexpr ScheduleKind kKinds[] = {
    {"gpipe", Shape::kLoop, 1, false, false, from_sizes<gpipe>},
    {"1f1b", Shape::kLoop, 1, false, true, from_sizes_in_pairs<one_f_one_b>},
    {"interleaved", Shape::kLoop, 0, false, true, make_interleaved},
    {"zb-h1", Shape::kLoop, 1, true, false, from_sizes<zb_h1>},
    {"zb-v", Shape::kVee, 2, true, false, from_sizes<zb_v>},
    {"dualpipe-v", Shape::kVee, 2, true, true, from_sizes_in_pairs<dualpipe_v>},
};

}  // namespace

std::span<const ScheduleKind> schedule_kinds() { return kKinds; }

const ScheduleKind& schedule_kind(const config::Parallel& parallel, int chunks) {
  const std::string_view requested = parallel.pipeline_schedule;
  const std::string_view name = requested != "auto" ? requested : chunks > 1 ? "interleaved" : "1f1b";
  std::string names = "auto";
  for (const ScheduleKind& kind : kKinds) {
    if (kind.name == name) return kind;
    names += fmt::format(", {}", kind.name);
  }
  throw ConfigError(
      fmt::format("--pipeline-schedule must be one of {}; got '{}'; use auto", names, requested));
}

bool splits_backward(const config::Parallel& parallel) {
  return parallel.delay_wgrad_compute || std::ranges::any_of(kKinds, [&](const ScheduleKind& kind) {
           return kind.splits_backward && kind.name == parallel.pipeline_schedule;
         });
}

Schedule make_schedule(const config::Parallel& parallel, int chunks, int microbatches) {
  const ScheduleKind& kind = schedule_kind(parallel, chunks);
  if (!supports(kind, chunks)) {
    throw ConfigError(fmt::format(
        "--pipeline-schedule {} requires {} virtual stages per rank; got {}; change their number, or use "
        "auto",
        kind.name, kind.chunks == 0 ? "two or more" : fmt::format("{}", kind.chunks), chunks));
  }
  Schedule schedule = kind.make(parallel, chunks, microbatches);
  return parallel.delay_wgrad_compute && !kind.splits_backward ? with_delayed_wgrad(std::move(schedule))
                                                               : schedule;
}

}  // namespace colonnade::schedule
