// The schedules: pure functions from sizes to one list of actions per rank.
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
        fmt::format("{} schedule: it needs at least one micro-batch; got {}; raise --global-batch-size", kind,
                    microbatches));
  }
  return {.ranks = ranks,
          .chunks = chunks,
          .microbatches = microbatches,
          .kind = kind,
          .placement = std::move(placement),
          .programs = {}};
}

Schedule gpipe(int ranks, int microbatches) {
  Schedule schedule = empty_schedule(Placement::loop(ranks, 1), microbatches, "gpipe");
  for (int rank = 0; rank < ranks; ++rank) {
    Writer writer(schedule, rank);
    for (int m = 0; m < microbatches; ++m) writer.forward({0, m});
    for (int m = 0; m < microbatches; ++m) writer.backward({0, m});
    schedule.programs.push_back(writer.take());
  }
  return schedule;
}

Schedule one_f_one_b(int ranks, int microbatches) {
  Schedule schedule = empty_schedule(Placement::loop(ranks, 1), microbatches, "1f1b");
  for (int rank = 0; rank < ranks; ++rank) {
    Writer writer(schedule, rank);
    const int warmup = std::min(ranks - rank - 1, microbatches);
    for (int m = 0; m < microbatches + warmup; ++m) {
      if (m < microbatches) writer.forward({0, m});
      if (m >= warmup) writer.backward({0, m - warmup});
    }
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

Schedule interleaved(int ranks, int chunks, int microbatches, int group) {
  Schedule schedule = empty_schedule(Placement::loop(ranks, chunks), microbatches, "interleaved");
  if (group < ranks || group > microbatches) {
    throw ConfigError(fmt::format(
        "--microbatch-group-size-per-virtual-pipeline-stage must lie between the pipeline size {} and "
        "the number of micro-batches {}; got {}; use at least {} micro-batches per step and a group in this "
        "range",
        ranks, microbatches, group, ranks));
  }
  if (const int rest = microbatches % group; rest > 0 && rest < ranks) {
    throw ConfigError(fmt::format(
        "interleaved schedule: the last group must be empty or hold at least as many micro-batches as there "
        "are pipeline ranks; got {} micro-batches in groups of {}, so {} in the last one for {} ranks; use a "
        "multiple of {}",
        microbatches, group, rest, ranks, group));
  }
  const std::vector<ChunkStep> order = interleaved_order(chunks, microbatches, group);
  const int total = static_cast<int>(order.size());
  for (int rank = 0; rank < ranks; ++rank) {
    Writer writer(schedule, rank);
    const int warmup = std::min(2 * (ranks - rank - 1) + (chunks - 1) * group, total);
    for (int k = 0; k < total + warmup; ++k) {
      if (k < total) {
        const ChunkStep step = order[static_cast<std::size_t>(k)];
        writer.forward(step);
      }
      if (k >= warmup) {
        const ChunkStep step = order[static_cast<std::size_t>(k - warmup)];
        writer.backward({chunks - 1 - step.chunk, step.microbatch});
      }
    }
    schedule.programs.push_back(writer.take());
  }
  return schedule;
}

Schedule with_delayed_weights(Schedule schedule) {
  for (Program& program : schedule.programs) {
    Program split;
    for (std::size_t i = 0; i < program.size(); ++i) {
      const Action a = program[i];
      if (a.act != Do::kBackward) {
        split.push_back(a);
        continue;
      }
      split.push_back({Do::kBackwardInput, a.chunk, a.microbatch});
      if (i + 1 < program.size() && program[i + 1].act == Do::kSendGradient) split.push_back(program[++i]);
      split.push_back({Do::kBackwardWeight, a.chunk, a.microbatch});
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
                     group > 0 ? group : p.pipeline_model_parallel_size);
}

/// A schedule that is a function of ranks and micro-batches alone.
template <Schedule (*kMake)(int ranks, int microbatches)>
Schedule plain(const Parallel& p, int /*chunks*/, int microbatches) {
  return kMake(p.pipeline_model_parallel_size, microbatches);
}

Schedule dualpipe_in_turn(int ranks, int microbatches) { return dualpipe_v(ranks, microbatches); }

constexpr ScheduleKind kKinds[] = {
    {"gpipe", Shape::kLoop, 1, false, plain<gpipe>},
    {"1f1b", Shape::kLoop, 1, false, plain<one_f_one_b>},
    {"interleaved", Shape::kLoop, 0, false, make_interleaved},
    {"zb-h1", Shape::kLoop, 1, true, plain<zb_h1>},
    {"zb-v", Shape::kVee, 2, true, plain<zb_v>},
    {"dualpipe-v", Shape::kVee, 2, true, plain<dualpipe_in_turn>},
};

}  // namespace

std::span<const ScheduleKind> schedule_kinds() { return kKinds; }

const ScheduleKind& schedule_kind(const config::Parallel& parallel, int chunks) {
  const std::string_view asked = parallel.pipeline_schedule;
  const std::string_view name = asked != "auto" ? asked : chunks > 1 ? "interleaved" : "1f1b";
  std::string names = "auto";
  for (const ScheduleKind& kind : kKinds) {
    if (kind.name == name) return kind;
    names += fmt::format(", {}", kind.name);
  }
  throw ConfigError(fmt::format("--pipeline-schedule must be one of {}; got '{}'; use auto", names, asked));
}

bool splits_backward(const config::Parallel& parallel) {
  return parallel.delay_wgrad_compute || std::ranges::any_of(kKinds, [&](const ScheduleKind& kind) {
           return kind.splits_backward && kind.name == parallel.pipeline_schedule;
         });
}

Schedule make_schedule(const config::Parallel& parallel, int chunks, int microbatches) {
  const ScheduleKind& kind = schedule_kind(parallel, chunks);
  if (!runs(kind, chunks)) {
    throw ConfigError(fmt::format(
        "--pipeline-schedule: {} runs {} virtual stages per rank; got {}; change their number, or use auto",
        kind.name, kind.chunks == 0 ? "two or more" : fmt::format("{}", kind.chunks), chunks));
  }
  Schedule schedule = kind.make(parallel, chunks, microbatches);
  return parallel.delay_wgrad_compute && !kind.splits_backward ? with_delayed_weights(std::move(schedule))
                                                               : schedule;
}

}  // namespace colonnade::schedule
