// The schedules: pure functions from sizes to one list of actions per rank.
#include <algorithm>

#include "colonnade/base/error.h"
#include "colonnade/config/parallel.h"
#include "colonnade/plan/program.h"

namespace colonnade::plan {
namespace {

/// Appends forwards and backwards of one rank, each with the transfers it needs.
class Writer {
 public:
  Writer(const Schedule& schedule, int rank)
      : ranks_(schedule.ranks), rank_(rank), stages_(schedule.stages()) {}

  void forward(int chunk, int microbatch) {
    if (ranks_ > 1 && !first(chunk)) add(Do::kRecvActivation, chunk, microbatch);
    add(Do::kForward, chunk, microbatch);
    if (ranks_ > 1 && !last(chunk)) add(Do::kSendActivation, chunk, microbatch);
  }
  void backward(int chunk, int microbatch) {
    if (ranks_ > 1 && !last(chunk)) add(Do::kRecvGradient, chunk, microbatch);
    add(Do::kBackward, chunk, microbatch);
    if (ranks_ > 1 && !first(chunk)) add(Do::kSendGradient, chunk, microbatch);
  }
  Program take() { return std::move(program_); }

 private:
  [[nodiscard]] bool first(int chunk) const { return chunk * ranks_ + rank_ == 0; }
  [[nodiscard]] bool last(int chunk) const { return chunk * ranks_ + rank_ == stages_ - 1; }
  void add(Do act, int chunk, int microbatch) { program_.push_back({act, chunk, microbatch}); }

  int ranks_;
  int rank_;
  int stages_;
  Program program_;
};

Schedule empty(int ranks, int chunks, int microbatches, const char* kind) {
  if (std::min({ranks, chunks, microbatches}) < 1) {
    throw ConfigError(
        fmt::format("{} schedule: ranks, virtual stages and micro-batches must each be at least 1; got {}, "
                    "{} and {}; raise the one that is 0",
                    kind, ranks, chunks, microbatches));
  }
  return {.ranks = ranks, .chunks = chunks, .microbatches = microbatches, .kind = kind, .programs = {}};
}

}  // namespace

Schedule gpipe(int ranks, int microbatches) {
  Schedule schedule = empty(ranks, 1, microbatches, "gpipe");
  for (int rank = 0; rank < ranks; ++rank) {
    Writer writer(schedule, rank);
    for (int m = 0; m < microbatches; ++m) writer.forward(0, m);
    for (int m = 0; m < microbatches; ++m) writer.backward(0, m);
    schedule.programs.push_back(writer.take());
  }
  return schedule;
}

Schedule one_f_one_b(int ranks, int microbatches) {
  Schedule schedule = empty(ranks, 1, microbatches, "1f1b");
  for (int rank = 0; rank < ranks; ++rank) {
    Writer writer(schedule, rank);
    const int warmup = std::min(ranks - rank - 1, microbatches);
    for (int m = 0; m < microbatches + warmup; ++m) {
      if (m < microbatches) writer.forward(0, m);
      if (m >= warmup) writer.backward(0, m - warmup);
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
  Schedule schedule = empty(ranks, chunks, microbatches, "interleaved");
  if (group < ranks || group > microbatches) {
    throw ConfigError(fmt::format(
        "--microbatch-group-size-per-virtual-pipeline-stage: must lie between the pipeline size {} and "
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
        writer.forward(step.chunk, step.microbatch);
      }
      if (k >= warmup) {
        const ChunkStep step = order[static_cast<std::size_t>(k - warmup)];
        writer.backward(chunks - 1 - step.chunk, step.microbatch);
      }
    }
    schedule.programs.push_back(writer.take());
  }
  return schedule;
}

Schedule make_schedule(const config::Parallel& parallel, int chunks, int microbatches) {
  const int ranks = parallel.pipeline_model_parallel_size;
  const std::string kind = parallel.pipeline_schedule != "auto" ? parallel.pipeline_schedule
                           : chunks > 1                         ? "interleaved"
                                                                : "1f1b";
  if (kind == "interleaved") {
    const int group = parallel.microbatch_group_size_per_virtual_pipeline_stage;
    return interleaved(ranks, chunks, microbatches, group > 0 ? group : ranks);
  }
  if (kind != "gpipe" && kind != "1f1b") {
    throw ConfigError(fmt::format(
        "--pipeline-schedule: must be auto, gpipe, 1f1b or interleaved; got '{}'; use auto", kind));
  }
  if (chunks > 1) {
    throw ConfigError(fmt::format(
        "--pipeline-schedule: {} runs one virtual stage per rank; got {}; use interleaved or auto", kind,
        chunks));
  }
  return kind == "gpipe" ? gpipe(ranks, microbatches) : one_f_one_b(ranks, microbatches);
}

}  // namespace colonnade::plan
