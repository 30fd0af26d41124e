// See loop.h.
#include "colonnade/train/loop.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <map>
#include <tuple>

#include "colonnade/audit/changed_data.h"
#include "colonnade/audit/ledger.h"
#include "colonnade/base/error.h"
#include "colonnade/base/log.h"
#include "colonnade/base/progress.h"
#include "colonnade/checkpoint/folders.h"
#include "colonnade/config/parse.h"
#include "colonnade/cost/flops.h"
#include "colonnade/fault/inject.h"
#include "colonnade/job/checkpoint.h"
#include "colonnade/job/continued.h"
#include "colonnade/job/prepare.h"
#include "colonnade/job/token_steps.h"
#include "colonnade/kernels/device.h"
#include "colonnade/launch/way_on.h"
#include "colonnade/record/expert_load.h"
#include "colonnade/record/recorder.h"
#include "colonnade/record/step_line.h"
#include "colonnade/record/summary.h"
#include "colonnade/tensor/counting_allocator.h"
#include "colonnade/train/beginning.h"
#include "colonnade/train/ending.h"
#include "colonnade/train/enough_data.h"
#include "colonnade/train/lr_schedule.h"
#include "colonnade/train/lr_state.h"
#include "colonnade/train/step_exchange.h"
#include "colonnade/train/step_record.h"
#include "colonnade/train/validation.h"

namespace colonnade::train {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Why the run ends before its last iteration.
enum class Stop { kNo, kInterval, kAsked, kUnsaved };

class Loop {
 public:
  Loop(job::Started started, StopSignals& stop, Clock::time_point begin);
  int run();

 private:
  void resume(const Beginning& beginning);
  bool is_own(const checkpoint::Source& source);
  void tell_loaded(const checkpoint::Source& source);
  void open_data();
  void require_enough_data() const;
  void one_step();
  [[nodiscard]] std::vector<data::Range> validation_sets() const;
  std::map<std::string, double> validate();
  double evaluate(const data::Batches& batches, const Reading& reading);
  void spent(record::Phase phase, double seconds);
  void save();
  [[nodiscard]] std::string way_on() const;
  [[nodiscard]] int kept(int code) const;
  [[nodiscard]] bool too_many_failed_saves() const;
  [[nodiscard]] bool asked_to_stop() const;
  void learn_memory();
  void show_memory();
  [[nodiscard]] at::Device device() const { return job_.options().device(); }
  Stop due_to_stop(bool asked) const;
  void show(const job::StepReport& report, const StepExchange& across, double rate, const job::Waited& data);
  void write_report();

  [[nodiscard]] std::int64_t iteration() const { return job_.counters.iteration; }
  [[nodiscard]] data::SoFar so_far() const { return {iteration(), job_.counters.consumed_samples}; }
  [[nodiscard]] std::int64_t last_iteration() const {
    return data::last_iteration(job_.run.training, so_far());
  }
  [[nodiscard]] bool validation_is_due() const {
    return data_[1] && validation_due(job_.run.training, iteration());
  }
  int train();
  int end_early(Stop stop);
  int end();
  void conclude();

  Clock::time_point begin_;
  StopSignals& stop_;
  AgreedFolder agreed_;  ///< outlives everything that writes there
  record::RunFolder folder_;
  std::optional<Beginning> beginning_;  ///< until it is restored
  job::Job job_;
  LrPlan lr_;
  std::int64_t lr_samples_ = 0;
  std::int64_t saved_iteration_ = -1;
  std::int64_t tried_iteration_ = -1;  ///< of the last save, whether it was written or not
  int failed_saves_ = 0;               ///< in a row, up to now
  checkpoint::SaveResult failure_;     ///< of the last one that failed
  nlohmann::json tokenizer_;           ///< what checkpoints keep of it
  job::StepFiles step_files_;          ///< rank 0's
  data::Splits data_;
  std::vector<job::ChangedTokens> changed_tokens_;  ///< since the checkpoint, on rank 0
  std::unique_ptr<job::TokenStream> stream_;
  std::unique_ptr<record::Recorder> recorder_;
  record::RunSummary summary_;
  Ending ending_;
  record::PhaseTimes total_;
  record::MemoryPeaks memory_;         ///< of this rank
  std::optional<double> peak_tflops_;  ///< of this rank's device, where it is known
  bool stop_asked_ = false;
};

Loop::Loop(job::Started started, StopSignals& stop, Clock::time_point begin)
    : begin_(begin),
      stop_(stop),
      agreed_(agree_on_folder(started.run.checkpoint.save, started.steps_seen, started.ranks.world())),
      folder_(agreed_.folder),
      beginning_(find_beginning(started.run, started.ranks.world())),
      job_(std::move(started.run), std::move(started.ranks), job::build_model,
           beginning_ ? job::InitialValues::kRestored : job::InitialValues::kDrawn),
      lr_(job_.run.training.skip_train
              ? LrPlan{}
              : make_lr_plan(job_.run.schedule, job_.run.training, job_.run.optimizer)) {
  if (device().is_cuda())
    peak_tflops_ =
        record::peak_tflops(kernels::cuda::device_name(device().index()), job_.run.model.params_dtype);
  fault::point("model-built");
  if (job_.ranks.rank() == 0) launch::announce_run({folder_.root, ""});
  if (beginning_) job_.counters = beginning_->counters;
  open_data();
  fault::point("data-opened");
  const std::string from = beginning_ ? beginning_->source.folder().string() : "";
  const std::optional<record::Loaded> saved = beginning_ ? beginning_->saved : std::nullopt;
  if (beginning_) resume(*beginning_);
  beginning_.reset();
  fault::point("restored");
  require_enough_data();
  // Data of another tokenizer is told before anything is written.
  if (!job_.run.training.skip_train && iteration() < last_iteration())
    std::ignore = data_[0]->get(std::array{job_.counters.consumed_samples}, data::Masks::kLeftOut);
  memory_.raise(record::MemoryPhase::kStartUp, tensor::take_peak(device()));
  summary_ = record::summarize(job_);
  const record::Loaded loaded{iteration(), job_.counters.consumed_samples};
  if (job_.ranks.rank() == 0 && !job_.run.training.skip_train)
    audit::write_session(folder_, job_.run, data_,
                         {.loaded = loaded, .saved = saved, .from = from, .tokenizer = tokenizer_},
                         changed_tokens_);
  recorder_ = std::make_unique<record::Recorder>(folder_, job::with_absolute_paths(job_.run), loaded,
                                                 job_.ranks.rank() == 0, saved);
  if (job_.ranks.rank() == 0) {
    log::info("{}; run folder {}", summary_.title, folder_.root.string());
    for (const auto& [name, text] : summary_.facts) log::info("  {}: {}", name, text);
    for (const record::RankSummary& r : summary_.ranks)
      if (r.rank < 16) log::info("  rank {} ({}): {} parameters, {}", r.rank, r.place, r.parameters, r.owns);
    report_kept_checkpoints(job_.run);
    ending_.folder = folder_.root;
    ending_.validates = data_[1] != nullptr;
    launch::announce_run(
        {folder_.root, computing_rows(ending_, job_.run, launch::command_line_of_process())});
    if (!job_.run.training.skip_train) record::warn_of_slow_attention(job_.run.model, device().is_cuda());
  }
}

void Loop::open_data() {
  progress().set_phase("data");
  const auto tokenizer = job::tokenizer_of(job_.run);
  tokenizer_ = job::tokenizer_state(job_.run, tokenizer.get());
  if (job_.ranks.rank() == 0)
    step_files_ = job::step_files(job_.run, tokenizer.get(), beginning_ ? &beginning_->source : nullptr);
  data_ = job::open_batches(job_.run, tokenizer.get(), {.done = so_far()});
  if (!data_[0] && !job_.run.training.skip_train)
    throw ConfigError("data: the training split must hold samples; got none; correct --split or --data-path");
  require_known_ids(data_, job_.ranks.world());
  if (job_.ranks.rank() != 0) return;
  for (const std::string& sentence : told_of_data(job_.run, data_)) log::info("{}", sentence);
}

/// Of the validation data; none where there is none.
std::vector<data::Range> Loop::validation_sets() const {
  return data_[1] ? data_[1]->samples().sets() : std::vector<data::Range>();
}

void Loop::require_enough_data() const {
  SplitSizes sizes;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    if (data_[i] && !data_[i]->endless()) sizes[i] = data_[i]->size();
  std::vector<std::string> found = shortages(sizes, job_.run.training, so_far());
  std::ranges::move(faults_of_sets(job_.run, validation_sets()), std::back_inserter(found));
  config::require_none(found);
  if (job_.ranks.rank() != 0) return;
  for (const std::string& sentence : told_of_sets(job_.run, validation_sets())) log::info("{}", sentence);
}

/// Says what goes on, and every setting that is another one than before.
void Loop::tell_loaded(const checkpoint::Source& source) {
  const config::Checkpoint& c = job_.run.checkpoint;
  if (job_.ranks.rank() != 0) return;
  log::info("loaded {}: the run goes on after iteration {}", source.folder().string(), iteration());
  if (c.finetune) return;
  if (c.override_ckpt_iteration)
    log::warning(
        "--override-ckpt-iteration: the checkpoint of iteration {} counts as iteration {}; data continue after "
        "{} samples",
        source.state().at("iteration").get<std::int64_t>(), iteration(), job_.counters.consumed_samples);
  for (const std::string& change : job::changed_settings(job_.run, source.state()))
    log::warning("{}", change);
  const auto data = job::data_state(data_);
  for (const std::string& change : job::changed_orders(job_.run, data, source.state()))
    log::warning("{}", change);
  changed_tokens_ = job::changed_tokens(job_.run, data, source.state());
  if (job_.run.training.skip_train)  // no session says it
    for (const std::string& change : audit::changed_data({.data = data}, {}, changed_tokens_))
      log::warning("{}", change);
  if (c.no_load_optim)
    log::warning("--no-load-optim: optimizer states, loss scale and learning-rate schedule start anew");
}

void Loop::resume(const Beginning& beginning) {
  const config::Checkpoint& c = job_.run.checkpoint;
  const checkpoint::Source& source = beginning.source;
  if (!beginning.is_run) {
    job::restore(job_, source, job::Restore::kWeights);
    if (job_.ranks.rank() == 0) log::info("initial weights from {}", c.pretrained_checkpoint);
    return;
  }
  job::restore(job_, source, c.finetune ? job::Restore::kWeights : job::Restore::kContinue);
  // Without its optimizer the schedule starts anew too, as Megatron's.
  const bool schedule = !c.finetune && !c.no_load_optim && !job_.run.training.skip_train;
  if (schedule && source.state().contains("lr_schedule")) {
    const LrResume resumed = resume_lr(lr_, source.state().at("lr_schedule"), job_.run.schedule);
    lr_ = resumed.plan;
    lr_samples_ = resumed.samples;
    // Megatron's schedule continues where it was, unless its settings are new.
    if (c.override_ckpt_iteration && job_.run.schedule.override_opt_param_scheduler)
      lr_samples_ = job_.counters.consumed_samples;
  }
  if (!c.finetune && is_own(source)) saved_iteration_ = tried_iteration_ = iteration();
  tell_loaded(source);
}

/// Rank 0 looks, the others are told: a save is collective, and file systems of two machines may differ.
bool Loop::is_own(const checkpoint::Source& source) {
  const auto own = folder_.checkpoints() / checkpoint::step_folder_name(iteration());
  std::error_code absent;
  const bool mine = std::filesystem::equivalent(source.folder(), own, absent);
  return job_.ranks.world().all_gather_text(mine ? "own" : "", "whose checkpoint it is")[0] == "own";
}

/// By a signal or --exit-duration-in-mins, on this rank.
bool Loop::asked_to_stop() const {
  const auto& minutes = job_.run.training.exit_duration_in_mins;
  const bool late = minutes && seconds_since(begin_) > static_cast<double>(*minutes) * 60;
  return late || stop_.requested() != 0;
}

void Loop::one_step() {
  const auto begin = Clock::now();
  progress().set_step(iteration() + 1);
  fault::point("step-begin");
  const double rate = learning_rate(lr_, lr_samples_);
  job::StepReport report =
      job_.train_step(stream_->next(), {.learning_rate = rate,
                                        .weight_decay = weight_decay(lr_, lr_samples_),
                                        .count_zeros = job_.run.logging.log_num_zeros_in_grad});
  if (!report.optimizer.skipped) lr_samples_ += job_.run.training.global_batch_size;
  const job::Waited data = stream_->waited();
  const job::Peaks& peaks = report.peaks;
  memory_.raise(record::MemoryPhase::kForwardBackward, peaks.forward_backward);
  memory_.raise(record::MemoryPhase::kOptimizer, peaks.optimizer);
  const std::int64_t talked_ns = progress().communication_ns();
  const StepExchange across =
      exchange_step({.stop = asked_to_stop(),
                     .step_ms = seconds_since(begin) * 1e3,
                     .peak_memory = static_cast<double>(std::max(peaks.forward_backward, peaks.optimizer))},
                    job_.ranks.world(), job_.options());
  report.seconds.communication += static_cast<double>(progress().communication_ns() - talked_ns) * 1e-9;
  fault::point("exchanged");
  stop_asked_ = stop_asked_ || across.stop;
  show(report, across, rate, data);
}

void Loop::show(const job::StepReport& report, const StepExchange& across, double rate,
                const job::Waited& data) {
  record::PhaseTimes times;
  times[record::Phase::kData] = data.before + data.within;
  times[record::Phase::kForwardBackward] = std::max(0.0, report.seconds.forward_backward - data.within);
  times[record::Phase::kCommunication] = report.seconds.communication;
  times[record::Phase::kOptimizer] = report.seconds.optimizer;
  total_ += times;

  record::StepRecord record = step_record(job_, report, across, rate, peak_tflops_);
  if (const auto ratio = stream_->longest_over_mean())
    record.extra_losses.emplace_back("attention_longest_over_mean", *ratio);
  if (recorder_->shows(record.iteration, last_iteration()))
    record.tokens_per_expert = record::tokens_per_expert(report.counts);
  recorder_->step(record, times, last_iteration());
  ending_.loss = record.lm_loss;
}

/// The loss of each set.
std::map<std::string, double> Loop::validate() {
  std::map<std::string, double> losses;
  for (const Reading& reading : validation_after(iteration(), job_.run, validation_sets()))
    losses[reading.set] = evaluate(*data_[1], reading);
  return losses;
}

/// The loss, written down.
double Loop::evaluate(const data::Batches& batches, const Reading& reading) {
  const auto begin = Clock::now();
  progress().set_phase("evaluate");
  fault::point("evaluate-begin");
  const std::int64_t size = job_.run.training.global_batch_size;
  tensor::reset_peak(device());
  const auto losses = job_.evaluate(static_cast<int>(reading.batches), [&](int i) {
    return job::evaluation_steps(batches, job_, reading.first_sample + i * size);
  });
  memory_.raise(record::MemoryPhase::kEvaluate, tensor::take_peak(device()));
  fault::point("evaluate-end");
  record::EvalRecord record{
      .iteration = iteration(), .consumed_samples = job_.counters.consumed_samples, .set = reading.set};
  record.loss = losses.at("lm_loss");
  if (const auto order = losses.find("sop_loss"); order != losses.end()) record.sop_loss = order->second;
  record.seconds = seconds_since(begin);
  spent(record::Phase::kEvaluate, record.seconds);
  recorder_->evaluation(record);
  ending_.evaluations[record.set] = record.loss;
  return record.loss;
}

/// Time of what is no part of a step.
void Loop::spent(record::Phase phase, double seconds) {
  total_[phase] += seconds;
  recorder_->time(phase, seconds, iteration());
}

void Loop::save() {
  if (tried_iteration_ == iteration()) return;  // what failed a moment ago fails again
  tried_iteration_ = iteration();
  if (agreed_.owned) agreed_.owned->confirm();
  const auto begin = Clock::now();
  tensor::reset_peak(device());
  const auto result = job::save(job_, folder_.root,
                                {{"lr_schedule", lr_state(lr_, lr_samples_)},
                                 {"tokenizer", tokenizer_},
                                 {"data", job::data_state(data_)}},
                                {}, step_files_);
  spent(record::Phase::kCheckpoint, seconds_since(begin));
  memory_.raise(record::MemoryPhase::kCheckpoint, tensor::take_peak(device()));
  const bool speaks = job_.ranks.rank() == 0;
  if (!result.ok) {
    ++failed_saves_;
    failure_ = result;
    const bool goes_on = iteration() < last_iteration() && !too_many_failed_saves();
    if (speaks)
      log::warning("saving the checkpoint of iteration {} failed: {}{}", iteration(), result.problem,
                   goes_on ? "; training goes on with the last good one" : "");
    return;
  }
  failed_saves_ = 0;
  fault::point("saved");
  saved_iteration_ = iteration();
  recorder_->saved();
  if (speaks)
    log::info("saved {} ({:.1f} MB in {:.2f} s)", result.folder.string(),
              static_cast<double>(result.bytes) / 1e6, result.seconds);
  write_report();
}

/// How the user makes the run go on: the file knows what was loaded and where it saves.
std::string Loop::way_on() const {
  return "resume with " + launch::resume_command(launch::command_line_of_process(), folder_.root);
}

/// `code` when the state of the last iteration is saved, else that of the failed save, on which all ranks
/// agree.
int Loop::kept(int code) const {
  if (saved_iteration_ == iteration()) return code;
  if (job_.ranks.rank() == 0)
    log::error("the weights after iteration {} are not saved: {}; make room in {} and {}", iteration(),
               failure_.problem, folder_.checkpoints().string(), way_on());
  progress().set_agreed_end(failure_.code);
  return failure_.code;
}

bool Loop::too_many_failed_saves() const {
  const auto& limit = job_.run.checkpoint.exit_after_failed_saves;
  return limit && failed_saves_ >= *limit;
}

/// Every rank's memory into the summary. Collective.
void Loop::learn_memory() {
  const auto measured = record::gather_peaks(memory_, job_.ranks.world(), job_.options());
  for (std::size_t i = 0; i < measured.size(); ++i) summary_.ranks[i].measured = measured[i];
}

void Loop::write_report() {
  learn_memory();
  recorder_->report(summary_, total_, seconds_since(begin_));
}

/// After the first step of this process, when the phases of a step are known.
void Loop::show_memory() {
  learn_memory();
  if (job_.ranks.rank() != 0) return;
  std::vector<record::MemoryPeaks> measured, planned;
  for (const record::RankSummary& r : summary_.ranks) {
    measured.push_back(r.measured);
    planned.push_back(r.planned);
  }
  log::info("{}", record::memory_line(measured, planned));
}

Stop Loop::due_to_stop(bool asked) const {
  const config::Training& t = job_.run.training;
  if (asked) return Stop::kAsked;
  if (too_many_failed_saves()) return Stop::kUnsaved;
  if (t.exit_interval && iteration() % *t.exit_interval == 0) return Stop::kInterval;
  return Stop::kNo;
}

/// The run ends before its last iteration: saved, reported, and said.
int Loop::end_early(Stop stop) {
  save();
  write_report();
  if (stop == Stop::kUnsaved && job_.ranks.rank() == 0)
    log::error("--exit-after-failed-saves: {} saves in a row have failed", failed_saves_);
  if (stop != Stop::kAsked) return kept(kExitDone);
  if (saved_iteration_ == iteration() && job_.ranks.rank() == 0)
    log::info("stopped after iteration {} as asked", iteration());
  return kept(kExitStopped);
}

/// After the last iteration: a save, the last validation unless it was just done, and the test split.
int Loop::end() {
  const config::Training& t = job_.run.training;
  const auto& c = job_.run.checkpoint;
  const bool keeps = !t.skip_train && (!c.save.empty() || c.save_interval);
  std::map<std::string, double> losses;
  if (keeps) save();
  if (t.eval_interval || t.skip_train) {
    if (data_[1] && t.reads_validation() && (t.skip_train || !validation_is_due())) losses = validate();
    if (data_[2] && t.eval_iters > 0) losses["test"] = evaluate(*data_[2], {"test", 0, t.eval_iters});
  }
  write_report();
  if (t.skip_train && t.check_for_nan_in_loss_and_grad) {
    job_.ranks.world().barrier("evaluation written");
    require_finite(losses);
  }
  return keeps ? kept(kExitDone) : kExitDone;
}

/// The summary of the run, by rank 0.
void Loop::conclude() {
  if (job_.ranks.rank() != 0 || job_.run.training.skip_train) return;
  ending_.iteration = iteration();
  ending_.last_iteration = last_iteration();
  ending_.saved = saved_iteration_;
  record::print_at_once(ending_text(ending_, job_.run, launch::command_line_of_process()));
}

int Loop::run() {
  const int code = train();
  conclude();
  return code;
}

int Loop::train() {
  if (job_.run.training.skip_train) return end();
  const auto& save_interval = job_.run.checkpoint.save_interval;
  if (iteration() >= last_iteration() && job_.ranks.rank() == 0)
    log::info("the run is complete: iteration {} of {}; raise {} to go on", iteration(), last_iteration(),
              job_.run.training.train_iters ? "--train-iters" : "--train-samples");
  stream_ = std::make_unique<job::TokenStream>(*data_[0], job_, job_.counters.consumed_samples);
  // A rank that goes on while another may still end at once would lose it.
  job_.ranks.world().barrier("before the first step");
  stop_.remember();
  for (bool first = true; iteration() < last_iteration(); first = false) {
    one_step();
    if (first) show_memory();
    if (validation_is_due()) validate();
    if (save_interval && iteration() % *save_interval == 0) save();
    const Stop stop = due_to_stop(stop_asked_);
    if (stop != Stop::kNo) return end_early(stop);
  }
  return end();
}

}  // namespace

int pretrain(job::Started started, StopSignals& stop, Clock::time_point begin) {
  Loop loop(std::move(started), stop, begin);
  return loop.run();
}

}  // namespace colonnade::train
