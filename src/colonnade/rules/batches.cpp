// Rules for batch sizes that change during a run.
#include <algorithm>

#include "colonnade/config/batch_schedule.h"
#include "colonnade/rules/table.h"

namespace colonnade::rules {

namespace {

using config::BatchSchedule;
using config::Run;
using Broken = std::optional<Finding>;

bool has_step_schedule(const Run& r) { return !r.training.step_batch_size_schedule.empty(); }

Broken step_schedule_form(const Run& r) {
  const std::string fault = config::step_schedule_fault(r.training);
  if (fault.empty()) return std::nullopt;
  return Finding{"--step-batch-size-schedule",
                 fault,
                 "\"" + r.training.step_batch_size_schedule + "\"",
                 {{"step_batch_size_schedule", ""}},
                 "write for example \"0:768 250B:1536\""};
}

Broken step_schedule_once(const Run& r) {
  const std::int64_t last = config::final_size_of_step_schedule(r.training);
  if (last == 0 || r.training.global_batch_size == last) return std::nullopt;
  return Finding{"--global-batch-size",
                 "must be left out with --step-batch-size-schedule, or be its last size",
                 fmt::format("{} and {}", r.training.global_batch_size, last),
                 {{"global_batch_size", "0"}},
                 "remove --global-batch-size"};
}

Broken step_schedule_rounding(const Run& r) {
  if (!has_step_schedule(r) || !r.training.decrease_batch_size_if_needed) return std::nullopt;
  return Finding{"--decrease-batch-size-if-needed",
                 "is not supported with --step-batch-size-schedule",
                 "both",
                 {{"decrease_batch_size_if_needed", "false"}},
                 "remove the flag"};
}

Broken rampup_form(const Run& r) {
  const std::string fault = config::rampup_fault(r.training);
  if (fault.empty() || has_step_schedule(r)) return std::nullopt;
  return Finding{"--rampup-batch-size",
                 fault,
                 fmt::format("{}", fmt::join(r.training.rampup_batch_size, " ")),
                 {{"rampup_batch_size", ""}},
                 "write for example 16 16 100000 with --global-batch-size 256"};
}

Broken one_schedule(const Run& r) {
  if (!has_step_schedule(r) || r.training.rampup_batch_size.empty()) return std::nullopt;
  return Finding{"--rampup-batch-size",
                 "is not supported with --step-batch-size-schedule",
                 "both",
                 {{"rampup_batch_size", ""}},
                 "remove one of them"};
}

Broken scheduled_sizes(const Run& r) {
  const std::int64_t step = samples_per_microbatch(r);
  if (!has_batch_schedule(r) || step < 1) return std::nullopt;
  const BatchSchedule schedule = config::batch_schedule(r.training);
  const auto is_faulty = [step](const BatchSchedule::Size& size) {
    return size.global_batch_size < step || size.global_batch_size % step != 0;
  };
  const auto faulty = std::ranges::find_if(schedule.sizes(), is_faulty);
  if (faulty == schedule.sizes().end()) return std::nullopt;
  Finding found{has_step_schedule(r) ? "--step-batch-size-schedule" : "--rampup-batch-size",
                "must have multiples of micro-batch size x data-parallel size",
                fmt::format("{} for {} x {} data-parallel ranks", faulty->global_batch_size,
                            r.training.micro_batch_size, r.parallel.data_parallel_size()),
                scheduled_multiples(r, step), ""};
  found.fix = has_step_schedule(r) ? fmt::format("write \"{}\"", found.edits.front().value)
                                   : fmt::format(
                                         "choose START and INCREMENT as multiples of {}, or add "
                                         "--decrease-batch-size-if-needed",
                                         step);
  return found;
}

Broken eval_batch(const Run& r) {
  const config::Training& t = r.training;
  const std::int64_t micro = config::eval_micro_batch_size(t), batch = config::eval_batch_size(t);
  if (!config::has_eval_batch_size(t) || samples_per_microbatch(r) < 1) return std::nullopt;
  const std::int64_t step = micro * r.parallel.data_parallel_size();
  if (batch >= step && batch % step == 0) return std::nullopt;
  return Finding{
      "--eval-global-batch-size",
      "must be a multiple of evaluation micro-batch size x data-parallel size",
      fmt::format("{} for {} x {} data-parallel ranks", batch, micro, r.parallel.data_parallel_size()),
      {{"eval_global_batch_size", text(round_up(std::max<std::int64_t>(batch, 1), step))}},
      ""};
}

constexpr Rule kBatches[] = {
    {"step-schedule", true, step_schedule_form, "step_batch_size_schedule=0:8 64:x",
     "As in Megatron, the first size begins at 0 tokens, and the batch size never decreases."},
    {"step-schedule-once", true, step_schedule_once,
     "global_batch_size=16; step_batch_size_schedule=0:8 1K:32",
     "The last size is the global batch size: evaluations use it, and it converts iterations of the learning "
     "rate schedule into samples.",
     "step_batch_size_schedule"},
    {"step-schedule-rounding", true, step_schedule_rounding,
     "step_batch_size_schedule=0:8 1K:16; decrease_batch_size_if_needed=true",
     "As in Megatron, the sizes of a schedule are exact."},
    {"rampup", true, rampup_form, "rampup_batch_size=4 8 100",
     "As in Megatron, every increment is equal and the last one reaches the global batch size.",
     "global_batch_size"},
    {"batch-schedule-once", true, one_schedule,
     "step_batch_size_schedule=0:8 1K:16; rampup_batch_size=8 8 100",
     "Two schedules for one batch size could contradict each other."},
    {"eval-batch", true, eval_batch, "eval_global_batch_size=15",
     "Every data-parallel rank runs the same number of micro-batches per evaluation step.",
     "micro_batch_size global_batch_size tensor_model_parallel_size pipeline_model_parallel_size "
     "context_parallel_size"},
    {"batch-sizes", true, scheduled_sizes, "rampup_batch_size=6 2 100",
     "Every data-parallel rank runs the same number of micro-batches in every step.",
     "micro_batch_size tensor_model_parallel_size pipeline_model_parallel_size context_parallel_size"},
};

}  // namespace

bool has_batch_schedule(const Run& r) {
  return has_step_schedule(r) || !r.training.rampup_batch_size.empty();
}

std::int64_t samples_per_microbatch(const Run& r) {
  const config::Parallel& p = r.parallel;
  const std::int64_t block =
      std::int64_t{p.tensor_model_parallel_size} * p.pipeline_model_parallel_size * p.context_parallel_size;
  if (block < 1 || p.world_size < 1 || p.world_size % block != 0) return 0;
  return r.training.micro_batch_size * p.data_parallel_size();
}

std::vector<Edit> scheduled_multiples(const Run& r, std::int64_t multiple) {
  if (!has_step_schedule(r)) return {{"rampup_batch_size", ""}};
  std::string sizes;
  const BatchSchedule schedule = config::batch_schedule(r.training);
  for (const BatchSchedule::Size& size : schedule.sizes())
    sizes += fmt::format("{}{}:{}", sizes.empty() ? "" : " ", size.from_samples * r.training.seq_length,
                         round_up(std::max<std::int64_t>(size.global_batch_size, 1), multiple));
  return {{"step_batch_size_schedule", sizes}, {"global_batch_size", "0"}};
}

std::span<const Rule> batch_rules() { return kBatches; }

}  // namespace colonnade::rules
