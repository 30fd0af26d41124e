// See loop.h.
#include "colonnade/train/loop.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <map>
#include <tuple>

#include "colonnade/audit/ledger.h"
#include "colonnade/base/error.h"
#include "colonnade/base/log.h"
#include "colonnade/base/progress.h"
#include "colonnade/comm/trace_range.h"
#include "colonnade/config/batch_schedule.h"
#include "colonnade/config/parse.h"
#include "colonnade/fault/inject.h"
#include "colonnade/job/checkpoint.h"
#include "colonnade/job/prepare.h"
#include "colonnade/job/resume_policy.h"
#include "colonnade/job/token_steps.h"
#include "colonnade/job/upcycling.h"
#include "colonnade/kernels/device.h"
#include "colonnade/launch/resume_hint.h"
#include "colonnade/record/layer_metrics.h"
#include "colonnade/record/merge_traces.h"
#include "colonnade/record/recorder.h"
#include "colonnade/record/step_line.h"
#include "colonnade/record/summary.h"
#include "colonnade/tensor/counting_allocator.h"
#include "colonnade/train/data_sufficiency.h"
#include "colonnade/train/energy_meter.h"
#include "colonnade/train/export_model.h"
#include "colonnade/train/lr_schedule.h"
#include "colonnade/train/lr_state.h"
#include "colonnade/train/memory_snapshots.h"
#include "colonnade/train/run_end.h"
#include "colonnade/train/start_point.h"
#include "colonnade/train/step_checks.h"
#include "colonnade/train/step_exchange.h"
#include "colonnade/train/step_profiler.h"
#include "colonnade/train/step_record.h"
#include "colonnade/train/validation.h"

namespace colonnade::train {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Reason to end the run before its last iteration.
enum class Stop { kNo, kInterval, kRequested, kFailedSaves };

class Loop {
 public:
  Loop(job::StartedRun started, StopSignals& stop, Clock::time_point begin);
  int train();
  void print_summary();

 private:
  void resume(const StartPoint& start);
  void open_data();
  void require_enough_data() const;
  job::StepReport next_report(const optim::StepOptions& options);
  void one_step();
  [[nodiscard]] std::vector<data::Range> validation_sets() const;
  std::map<std::string, double> validate();
  double evaluate(const data::Batches& batches, const EvalRange& range);
  void record_time(record::Phase phase, double seconds);
  void save();
  [[nodiscard]] std::string resume_hint() const;
  [[nodiscard]] int exit_code_if_saved(int code) const;
  [[nodiscard]] bool is_stop_requested() const;
  [[nodiscard]] bool too_many_failed_saves() const;
  void gather_memory();
  void log_memory();
  [[nodiscard]] at::Device device() const { return job_.options().device(); }
  Stop stop_reason(bool requested) const;
  /// Values by rank of the step that was just done.
  [[nodiscard]] record::RankReport rank_report() const {
    return record::rank_report(job_.run.logging, iteration(),
                               recorder_->logs_step(iteration(), last_iteration()));
  }
  void emit(const job::StepReport& report, const StepExchange& all, double rate, const job::DataWait& data);
  void write_report();

  [[nodiscard]] std::int64_t iteration() const { return job_.counters.iteration; }
  [[nodiscard]] data::RunProgress so_far() const { return {iteration(), job_.counters.consumed_samples}; }
  [[nodiscard]] std::int64_t last_iteration() const {
    return data::last_iteration(job_.run.training, so_far());
  }
  [[nodiscard]] bool validation_is_due() const {
    return data_[1] && validation_due(job_.run.training, iteration());
  }
  int end_early(Stop stop);
  int end();

  Clock::time_point begin_;
  StopSignals& stop_;
  SharedRunFolder agreed_;  ///< destroyed last: everything else writes there
  record::RunFolder folder_;
  MemorySnapshots snapshots_;
  std::optional<StartPoint> start_;  ///< until it is restored
  job::Job job_;
  LrPlan lr_;
  std::int64_t lr_samples_ = 0;
  std::int64_t saved_iteration_ = -1;
  std::int64_t attempted_iteration_ = -1;  ///< iteration of the last save, successful or not
  int failed_saves_ = 0;                   ///< consecutive failures up to now
  checkpoint::SaveResult failure_;         ///< the last failure
  nlohmann::json tokenizer_;               ///< job::tokenizer_state, for checkpoints
  job::StepFiles step_files_;              ///< on rank 0
  data::Splits data_;
  std::vector<job::ChangedTokens> changed_tokens_;  ///< changes since the checkpoint, on rank 0
  std::unique_ptr<job::TokenStream> stream_;
  std::unique_ptr<record::Recorder> recorder_;
  std::unique_ptr<StepProfiler> profiler_;
  std::unique_ptr<EnergyMeter> energy_;
  record::RunSummary summary_;
  RunEnd end_;
  record::PhaseTimes total_;
  record::MemoryPeaks memory_;         ///< peaks of this rank
  std::optional<double> peak_tflops_;  ///< peak of this rank's device, where known
  bool stop_requested_ = false;
  StepChecks checks_;
  bool trained_ = false;  ///< this process has trained a step
};

Loop::Loop(job::StartedRun started, StopSignals& stop, Clock::time_point begin)
    : begin_(begin),
      stop_(stop),
      agreed_(agree_on_folder(started.run.checkpoint.save, started.steps_seen, started.ranks.world())),
      folder_(agreed_.folder),
      snapshots_(started.run, folder_.root, started.ranks.rank()),
      start_(find_start_point(started.run, started.ranks.world())),
      job_(std::move(started.run), std::move(started.ranks), job::build_model,
           start_ && !start_->upcycles ? job::InitialValues::kRestored : job::InitialValues::kRandom),
      lr_(job_.run.training.skip_train
              ? LrPlan{}
              : make_lr_plan(job_.run.schedule, job_.run.training, job_.run.optimizer)) {
  if (device().is_cuda())
    peak_tflops_ =
        record::peak_tflops(kernels::cuda::device_name(device().index()), job_.dtypes().activation);
  fault::point("model-built");
  if (job_.ranks.rank() == 0) launch::announce_run({folder_.root, ""});
  if (start_) job_.counters = start_->counters;
  open_data();
  fault::point("data-opened");
  const std::string from = start_ ? start_->source.folder().string() : "";
  const std::optional<record::ResumePoint> saved = start_ ? start_->saved : std::nullopt;
  if (start_) resume(*start_);
  start_.reset();
  fault::point("restored");
  require_enough_data();
  // Reading a sample detects data of another tokenizer before anything is written.
  if (!job_.run.training.skip_train && iteration() < last_iteration())
    std::ignore = data_[0]->get(std::array{job_.counters.consumed_samples});
  memory_.raise(record::MemoryPhase::kStartUp, tensor::take_peak(device()));
  summary_ = record::summarize(job_);
  const record::ResumePoint loaded{iteration(), job_.counters.consumed_samples};
  if (job_.ranks.rank() == 0 && !job_.run.training.skip_train)
    audit::write_session(folder_, job_.run, data_,
                         {.loaded = loaded, .saved = saved, .from = from, .tokenizer = tokenizer_},
                         changed_tokens_);
  recorder_ = std::make_unique<record::Recorder>(folder_, job::with_absolute_paths(job_.run), loaded,
                                                 job_.ranks.rank() == 0, saved);
  profiler_ = std::make_unique<StepProfiler>(job_.run.profiling, folder_.root, job_.ranks.world(), device(),
                                             record::process_names(summary_.ranks));
  energy_ = std::make_unique<EnergyMeter>(job_.run.logging.log_energy, device());
  if (job_.ranks.rank() == 0) {
    record::log_summary(summary_, folder_);
    log_checkpoint_policy(job_.run);
    end_.folder = folder_.root;
    end_.validates = data_[1] != nullptr;
    launch::announce_run({folder_.root, command_rows(end_, job_.run, launch::command_line_of_process())});
    if (!job_.run.training.skip_train) record::warn_about_slow_attention(job_.run.model, device().is_cuda());
  }
}

void Loop::open_data() {
  progress().set_phase("data");
  const auto tokenizer = job::tokenizer_of(job_.run);
  tokenizer_ = job::tokenizer_state(job_.run, tokenizer.get());
  if (job_.ranks.rank() == 0)
    step_files_ = job::step_files(job_.run, tokenizer.get(), start_ ? &start_->source : nullptr);
  data_ = job::open_batches(job_.run, tokenizer.get(), {.done = so_far()});
  if (!data_[0] && !job_.run.training.skip_train)
    throw ConfigError("data: the training split must hold samples; got none; correct --split or --data-path");
  require_ids_in_vocabulary(data_, job_.ranks.world());
  if (job_.ranks.rank() != 0) return;
  for (const std::string& sentence : data_notes(job_.run, data_)) log::info("{}", sentence);
}

/// Sample ranges of the validation sets; empty without validation data.
std::vector<data::Range> Loop::validation_sets() const {
  return data_[1] ? data_[1]->samples().validation_sets() : std::vector<data::Range>();
}

void Loop::require_enough_data() const {
  SplitSizes sizes;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    if (data_[i] && !data_[i]->is_cyclic()) sizes[i] = data_[i]->size();
  std::vector<std::string> found = shortages(sizes, job_.run.training, so_far());
  std::ranges::move(validation_faults(job_.run, validation_sets()), std::back_inserter(found));
  config::require_none(found);
  if (job_.ranks.rank() != 0) return;
  for (const std::string& sentence : validation_notes(job_.run, validation_sets())) log::info("{}", sentence);
}

void Loop::resume(const StartPoint& start) {
  const config::Checkpoint& c = job_.run.checkpoint;
  const checkpoint::CheckpointReader& source = start.source;
  if (!start.is_run) {
    if (start.upcycles)
      job::upcycle(job_, source);
    else
      job::restore(job_, source, job::Restore::kWeights);
    if (job_.ranks.rank() == 0)
      log::info("initial weights from {}{}", source.folder().string(), start.upcycles ? ", upcycled" : "");
    return;
  }
  job::restore(job_, source, c.finetune ? job::Restore::kWeights : job::Restore::kResume);
  // Without its optimizer state the schedule restarts too, as in Megatron.
  const bool schedule = !c.finetune && !c.no_load_optim && !job_.run.training.skip_train;
  if (schedule && source.state().contains("lr_schedule")) {
    const LrResume resumed = resume_lr(lr_, source.state().at("lr_schedule"), job_.run.schedule);
    lr_ = resumed.plan;
    lr_samples_ = resumed.samples;
    // The schedule continues where it was, unless its settings are overridden, as in Megatron.
    if (c.override_ckpt_iteration && job_.run.schedule.override_opt_param_scheduler)
      lr_samples_ = job_.counters.consumed_samples;
  }
  if (!c.finetune && is_own_checkpoint(source, folder_, iteration(), job_.ranks.world()))
    saved_iteration_ = attempted_iteration_ = iteration();
  if (job_.ranks.rank() == 0) changed_tokens_ = log_loaded(job_, source, data_);
}

/// Whether a signal or --exit-duration-in-mins requests a stop on this rank.
bool Loop::is_stop_requested() const {
  const auto& minutes = job_.run.training.exit_duration_in_mins;
  const bool late = minutes && seconds_since(begin_) > static_cast<double>(*minutes) * 60;
  return late || stop_.requested() != 0;
}

/// Trains the next step, or skips it (--iterations-to-skip).
job::StepReport Loop::next_report(const optim::StepOptions& options) {
  if (std::ranges::count(job_.run.training.iterations_to_skip, iteration() + 1) == 0)
    return job_.train_step(stream_->next(), options);
  stream_->skip();
  return job_.skip_step();
}

void Loop::one_step() {
  const comm::TraceRange range([&] { return fmt::format("ProfilerStep#{}", iteration() + 1); });
  const auto begin = Clock::now();
  progress().set_step(iteration() + 1);
  fault::point("step-begin");
  optim::StepOptions options = step_options(lr_, lr_samples_);
  options.count_zeros = job_.run.logging.log_num_zeros_in_grad;
  job::StepReport report = next_report(options);
  if (!report.optimizer.skipped) lr_samples_ += report.samples;
  const job::DataWait data = stream_->take_wait();
  const job::Peaks& peaks = report.peaks;
  memory_.raise(record::MemoryPhase::kForwardBackward, peaks.forward_backward);
  memory_.raise(record::MemoryPhase::kOptimizer, peaks.optimizer);
  const std::int64_t before_ns = progress().communication_ns();
  const double peak = static_cast<double>(std::max(peaks.forward_backward, peaks.optimizer));
  const StepExchange all =
      exchange_step({.stop = is_stop_requested(),
                     .step_ms = seconds_since(begin) * 1e3,
                     .peak_memory = peak,
                     .values = own_values(report, data, device(), energy_->lap()).of(rank_report())},
                    job_.ranks.world(), job_.options());
  report.seconds.communication += static_cast<double>(progress().communication_ns() - before_ns) * 1e-9;
  fault::point("exchanged");
  stop_requested_ = stop_requested_ || all.stop;
  emit(report, all, options.learning_rate, data);
  for (const std::string& warning : checks_.outliers(report, iteration(), job_.ranks.rank()))
    log::warning("{}", warning);
  if (weight_hash_due(job_.run.training, iteration())) require_equal_replicas(job_);
  if (report.ran && !std::exchange(trained_, true)) log_memory();
}

void Loop::emit(const job::StepReport& report, const StepExchange& all, double rate,
                const job::DataWait& data) {
  const record::PhaseTimes times = phase_times(report, data);
  total_ += times;

  record::StepRecord record = step_record(job_, report, all, rate, peak_tflops_);
  record.rank_values = record::rank_values(rank_report(), all.values, job_.run.logging.timing_log_option);
  if (const auto ratio = stream_->longest_over_mean())
    record.extra_losses.emplace_back("attention_longest_over_mean", *ratio);
  if (recorder_->logs_step(record.iteration, last_iteration())) {
    record.layer_counts = record::layer_counts(report.counts);
    snapshots_.write();
  }
  recorder_->step(record, times, last_iteration());
  if (report.ran) end_.loss = record.lm_loss;
}

/// Evaluates and returns the loss of each validation set.
std::map<std::string, double> Loop::validate() {
  std::map<std::string, double> losses;
  for (const EvalRange& range : validation_ranges(iteration(), job_.run, validation_sets()))
    losses[range.set] = evaluate(*data_[1], range);
  return losses;
}

/// Evaluates, records and returns the loss of a range.
double Loop::evaluate(const data::Batches& batches, const EvalRange& range) {
  const auto begin = Clock::now();
  progress().set_phase("evaluate");
  fault::point("evaluate-begin");
  const std::int64_t size = config::eval_batch_size(job_.run.training);
  tensor::reset_peak(device());
  const std::int64_t steps = (range.samples + size - 1) / size;
  const auto losses = job_.evaluate(static_cast<int>(steps), [&](int i) {
    return job::evaluation_steps(batches, job_, range.first_sample + i * size,
                                 std::min(size, range.samples - i * size));
  });
  memory_.raise(record::MemoryPhase::kEvaluate, tensor::take_peak(device()));
  fault::point("evaluate-end");
  record::EvalRecord record{
      .iteration = iteration(), .consumed_samples = job_.counters.consumed_samples, .set = range.set};
  record.loss = losses.at("lm_loss");
  if (const auto order = losses.find("sop_loss"); order != losses.end()) record.sop_loss = order->second;
  record.seconds = seconds_since(begin);
  record_time(record::Phase::kEvaluate, record.seconds);
  recorder_->evaluation(record);
  end_.evaluations[record.set] = record.loss;
  return record.loss;
}

/// Records time spent outside of steps.
void Loop::record_time(record::Phase phase, double seconds) {
  total_[phase] += seconds;
  recorder_->phase_time(phase, seconds, iteration());
}

void Loop::save() {
  if (attempted_iteration_ == iteration()) return;  // a save that just failed would fail again
  attempted_iteration_ = iteration();
  if (agreed_.owned) agreed_.owned->confirm();
  const auto begin = Clock::now();
  tensor::reset_peak(device());
  const auto result = job::save(job_, folder_.root,
                                {{"lr_schedule", lr_state(lr_, lr_samples_)},
                                 {"tokenizer", tokenizer_},
                                 {"data", job::data_state(data_)}},
                                {}, step_files_);
  record_time(record::Phase::kCheckpoint, seconds_since(begin));
  memory_.raise(record::MemoryPhase::kCheckpoint, tensor::take_peak(device()));
  const bool leader = job_.ranks.rank() == 0;
  if (!result.ok) {
    ++failed_saves_;
    failure_ = result;
    const bool continues = iteration() < last_iteration() && !too_many_failed_saves();
    if (leader)
      log::warning("saving the checkpoint of iteration {} failed: {}{}", iteration(), result.problem,
                   continues ? "; training continues, the last good checkpoint stays" : "");
    return;
  }
  failed_saves_ = 0;
  fault::point("saved");
  saved_iteration_ = iteration();
  recorder_->checkpoint_saved();
  if (leader)
    log::info("saved {} ({:.1f} MB in {:.2f} s)", result.folder.string(),
              static_cast<double>(result.bytes) / 1e6, result.seconds);
  write_report();
}

/// How to resume: config.yaml names the loaded checkpoint and the save folder.
std::string Loop::resume_hint() const {
  return "resume with " + launch::resume_command(launch::command_line_of_process(), folder_.root);
}

/// `code` when the last iteration is saved, else the exit code of the failed save, equal on all ranks.
int Loop::exit_code_if_saved(int code) const {
  if (saved_iteration_ == iteration()) return code;
  if (job_.ranks.rank() == 0)
    log::error("the weights after iteration {} are not saved: {}; free space in {} and {}", iteration(),
               failure_.problem, folder_.checkpoints().string(), resume_hint());
  progress().set_agreed_exit_code(failure_.code);
  return failure_.code;
}

bool Loop::too_many_failed_saves() const {
  return failed_saves_ >= job_.run.checkpoint.exit_after_failed_saves.value_or(failed_saves_ + 1);
}

/// Gathers every rank's memory peaks into the summary. Collective.
void Loop::gather_memory() {
  const auto measured = record::gather_peaks(memory_, job_.ranks.world(), job_.options());
  for (std::size_t i = 0; i < measured.size(); ++i) summary_.ranks[i].measured = measured[i];
}

void Loop::write_report() {
  gather_memory();
  recorder_->report(summary_, total_, seconds_since(begin_));
}

/// Logs memory peaks after the first step of this process, when those of all phases are known.
void Loop::log_memory() {
  gather_memory();
  if (job_.ranks.rank() == 0) log::info("{}", record::memory_line(summary_.ranks));
}

Stop Loop::stop_reason(bool requested) const {
  const config::Training& t = job_.run.training;
  if (requested) return Stop::kRequested;
  if (too_many_failed_saves()) return Stop::kFailedSaves;
  if (t.exit_interval && iteration() % *t.exit_interval == 0) return Stop::kInterval;
  return Stop::kNo;
}

/// Ends the run before its last iteration: saves, writes the report and logs the reason.
int Loop::end_early(Stop stop) {
  save();
  write_report();
  if (stop == Stop::kFailedSaves && job_.ranks.rank() == 0)
    log::error("--exit-after-failed-saves: {} consecutive saves have failed", failed_saves_);
  if (stop != Stop::kRequested) return exit_code_if_saved(kExitDone);
  if (saved_iteration_ == iteration() && job_.ranks.rank() == 0)
    log::info("stopped after iteration {} as requested", iteration());
  return exit_code_if_saved(kExitStopped);
}

/// After the last iteration: a save, the last validation unless it was just run, and the test split.
int Loop::end() {
  const config::Training& t = job_.run.training;
  const auto& c = job_.run.checkpoint;
  const bool saves = !t.skip_train && (!c.save.empty() || c.save_interval);
  std::map<std::string, double> losses;
  if (saves) save();
  if (t.eval_interval || t.skip_train) {
    if (data_[1] && t.reads_validation() && (t.skip_train || !validation_is_due())) losses = validate();
    if (data_[2] && t.eval_iters > 0)
      losses["test"] = evaluate(*data_[2], {"test", 0, t.eval_iters * config::eval_batch_size(t)});
  }
  write_report();
  if (t.skip_train && t.check_for_nan_in_loss_and_grad) {
    job_.ranks.world().barrier("evaluation written");
    require_finite(losses);
  }
  return saves ? exit_code_if_saved(kExitDone) : kExitDone;
}

/// Prints the summary of the run, on rank 0.
void Loop::print_summary() {
  if (job_.ranks.rank() != 0 || job_.run.training.skip_train) return;
  end_.iteration = iteration();
  end_.last_iteration = last_iteration();
  end_.saved = saved_iteration_;
  record::print_flushed(end_summary(end_, job_.run, launch::command_line_of_process()));
}

int Loop::train() {
  if (job_.run.training.skip_train) return end();
  const auto& save_interval = job_.run.checkpoint.save_interval;
  if (iteration() >= last_iteration() && job_.ranks.rank() == 0)
    log::info("the run is complete: iteration {} of {}; raise {} to continue", iteration(), last_iteration(),
              job_.run.training.train_iters ? "--train-iters" : "--train-samples");
  stream_ = std::make_unique<job::TokenStream>(*data_[0], job_, job_.counters.consumed_samples);
  if (job_.run.training.check_weight_hash_across_dp_replicas_interval) require_equal_replicas(job_);
  // Without it, a rank could start a step and lose a peer that still ends at once on a signal.
  job_.ranks.world().barrier("before the first step");
  stop_.defer();
  Stop stop = Stop::kNo;
  while (stop == Stop::kNo && iteration() < last_iteration()) {
    profiler_->before_step(iteration() + 1);
    one_step();
    profiler_->after_step(iteration());
    if (validation_is_due()) validate();
    if (save_interval && iteration() % *save_interval == 0) save();
    export_model_if_due(job_, step_files_, last_iteration());
    stop = stop_reason(stop_requested_);
  }
  profiler_->finish();
  return stop == Stop::kNo ? end() : end_early(stop);
}

}  // namespace

int pretrain(job::StartedRun started, StopSignals& stop, Clock::time_point begin) {
  Loop loop(std::move(started), stop, begin);
  const int code = loop.train();
  loop.print_summary();
  return code;
}

}  // namespace colonnade::train
