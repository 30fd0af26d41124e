// Settings of logs, experiment trackers and profiles.
#include "colonnade/config/access.h"

namespace colonnade::config {

namespace {

constexpr auto kLogging = &Run::logging;
constexpr auto kProfiling = &Run::profiling;

void logs(Table& t) {
  t.group("logging");
  t.add<kLogging, &Logging::log_interval>("--log-interval", "steps between log lines")
      .unit("steps")
      .at_least(1)
      .megatron_default("100")
      .common();
  t.add<kLogging, &Logging::tensorboard_dir>(
      "--tensorboard-dir", "folder of TensorBoard event files; empty: tensorboard/ in the run folder");
  t.add<kLogging, &Logging::tensorboard_log_interval>("--tensorboard-log-interval",
                                                      "steps between values written to TensorBoard")
      .unit("steps")
      .at_least(1);
  t.add<kLogging, &Logging::log_params_norm>("--log-params-norm", "log the norm of all weights");
  t.add<kLogging, &Logging::log_num_zeros_in_grad>("--log-num-zeros-in-grad",
                                                   "log the number of zero gradient elements");
  t.add<kLogging, &Logging::log_max_attention_logit>(
      "--log-max-attention-logit",
      "log the largest attention score of the step, before the softmax; costs a second QK^T");
  t.add<kLogging, &Logging::log_timers_to_tensorboard>("--log-timers-to-tensorboard",
                                                       "write phase times to TensorBoard");
  t.add<kLogging, &Logging::log_memory_to_tensorboard>("--log-memory-to-tensorboard",
                                                       "write memory use to TensorBoard");
  t.add<kLogging, &Logging::log_validation_ppl_to_tensorboard>("--log-validation-ppl-to-tensorboard",
                                                               "write validation perplexity to TensorBoard");
  t.add<kLogging, &Logging::logging_level>(
       "--logging-level",
       "minimum log level on standard error, as a Python number: above 20 hides notes, above 30 also "
       "warnings; errors, losses and the summary are always printed")
      .at_least(0);
}

void timers(Table& t) {
  t.add<kLogging, &Logging::timing_log_level>(
       "--timing-log-level",
       "phase times on a line after each log line and in metrics.jsonl: 0 none, 1 the phases of a step, 2 also "
       "forward and backward passes")
      .range(0, 2);
  t.add<kLogging, &Logging::timing_log_option>(
       "--timing-log-option",
       "ranks of the phase times with --timing-log-level 1 or 2: max, minmax (minimum and maximum), or all")
      .choices({"max", "minmax", "all"});
  t.add<kLogging, &Logging::log_memory_interval>(
       "--log-memory-interval", "steps between reports of every rank's memory to the log and metrics.jsonl")
      .unit("steps")
      .at_least(1);
  t.add<kLogging, &Logging::log_energy>(
      "--log-energy",
      "energy and power of every GPU on a line after each log line, in metrics.jsonl and trackers");
}

void trackers(Table& t) {
  t.add<kLogging, &Logging::wandb_project>(
      "--wandb-project", "Weights & Biases project: writes an offline run that `wandb sync` uploads");
  t.add<kLogging, &Logging::wandb_exp_name>("--wandb-exp-name",
                                            "name of the W&B run; empty: name of the run folder");
  t.add<kLogging, &Logging::wandb_save_dir>(
      "--wandb-save-dir", "folder that gets the folder wandb/ of offline runs; empty: the run folder");
  t.add<kLogging, &Logging::wandb_entity>("--wandb-entity",
                                          "W&B user or team; empty: the default of the uploading user");
}

std::string set_profile_ranks(Run& run, const Words& words) {
  std::vector<std::int64_t> all;
  for (const std::string& word : words)
    if (std::int64_t one = 0; read_number(word, one) && one >= 0)
      all.push_back(one);
    else
      return "must be integers of at least 0";
  run.profiling.profile_ranks = std::move(all);
  return "";
}

std::optional<Words> get_profile_ranks(const Run& run) {
  Words words;
  for (const std::int64_t one : run.profiling.profile_ranks) words.push_back(fmt::format("{}", one));
  return words;
}

void profiles(Table& t) {
  t.group("profiling");
  t.add<kProfiling, &Profiling::profile>(
      "--profile",
      "write a trace of some steps per rank, and one of all ranks, to torch_profile/ in the run folder");
  t.add<kProfiling, &Profiling::profile_step_start>("--profile-step-start", "first step of --profile")
      .at_least(0);
  t.add<kProfiling, &Profiling::profile_step_end>("--profile-step-end",
                                                  "step after the last one of --profile")
      .at_least(0);
  t.special("--profile-ranks", "ranks of --profile and --record-memory-history; empty: all")
      .accessors(Kind::kList, &set_profile_ranks, &get_profile_ranks);
  t.add<kProfiling, &Profiling::use_pytorch_profiler>(
      "--use-pytorch-profiler",
      "the trace only; without it --profile on CUDA also marks the steps for `nsys --capture-range=cudaProfilerApi`");
  t.add<kProfiling, &Profiling::pytorch_profiler_collect_shapes>("--pytorch-profiler-collect-shapes",
                                                                 "input shapes of operators in the trace");
  t.add<kProfiling, &Profiling::pytorch_profiler_collect_chakra>(
      "--pytorch-profiler-collect-chakra",
      "also write execution traces for Chakra to chakra/ in the run folder");
  t.add<kProfiling, &Profiling::record_shapes>("--record-shapes",
                                               "input shapes of operators in NVTX ranges and in the trace");
  t.add<kProfiling, &Profiling::nvtx_ranges>(
      "--nvtx-ranges",
      "NVTX ranges of operators, passes and collectives for nsys instead of the trace; CUDA only");
  t.add<kProfiling, &Profiling::record_memory_history>(
      "--record-memory-history",
      "write a memory snapshot for pytorch.org/memory_viz at each log line, and when memory runs out; CUDA only");
  t.add<kProfiling, &Profiling::memory_snapshot_path>(
      "--memory-snapshot-path",
      "file of --record-memory-history: NAME.EXT becomes NAME_RANK.EXT; relative to the run folder");
}

}  // namespace

void add_logging(Table& t) {
  logs(t);
  timers(t);
  trackers(t);
  profiles(t);
}

}  // namespace colonnade::config
