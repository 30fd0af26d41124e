// See recorder.h.
#include "colonnade/record/recorder.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <limits>
#include <utility>

#include "colonnade/base/files.h"
#include "colonnade/base/log.h"
#include "colonnade/config/batch_schedule.h"
#include "colonnade/config/dump.h"
#include "colonnade/job/resume_policy.h"
#include "colonnade/record/sessions.h"
#include "colonnade/record/step_line.h"

namespace colonnade::record {

namespace {

/// Earlier sessions of the resumed run. A damaged file only removes them from the report.
std::vector<RunSummary> earlier_sessions(const RunFolder& folder, std::int64_t loaded_step) {
  try {
    return sessions_until(read_sessions(folder.sessions()), loaded_step);
  } catch (const std::exception& error) {
    log::warning("{}; the report shows no earlier session", error.what());
    return {};
  }
}

/// Settings that resume the run from its newest checkpoint, or start it as now while it has none of its own.
config::Run resumable_settings(config::Run run, const RunFolder& folder, bool has_saved) {
  run.checkpoint.save = folder.root.string();
  run = job::with_absolute_paths(std::move(run));
  config::Checkpoint& c = run.checkpoint;
  const bool starts_elsewhere = !c.load.empty() && (c.load != c.save || c.finetune || c.no_load_optim);
  if (!has_saved && (starts_elsewhere || c.ckpt_step || c.override_ckpt_iteration)) return run;
  if (c.load.empty()) c.exit_on_missing_checkpoint = false;
  c.load = c.save;
  c.ckpt_step.reset();
  c.override_ckpt_iteration.reset();
  c.finetune = c.no_load_optim = false;
  c.use_checkpoint_args = c.use_mp_args_from_checkpoint_args = false;  // the file has the adopted values
  return run;
}

}  // namespace

void Recorder::write_config() const {
  write_file_atomically(
      folder_.config(),
      "# The run of this folder: it resumes from its newest checkpoint, or starts where there is none.\n"
      "# For another run with these settings, set --save and --load to another folder.\n" +
          config::dump(resumable_settings(run_, folder_, has_saved_)));
}

void Recorder::checkpoint_saved() {
  if (!active_ || std::exchange(has_saved_, true)) return;
  try {
    write_config();
  } catch (const std::exception& e) {
    log::warning("config.yaml still starts the run from scratch: {}", e.what());
  }
}

Recorder::Recorder(const RunFolder& folder, const config::Run& run, const ResumePoint& loaded, bool active,
                   const std::optional<ResumePoint>& saved)
    : folder_(folder),
      run_(run),
      active_(active),
      first_step_(loaded.step + 1),
      last_step_(loaded.step),
      began_(local_time("%Y-%m-%d %H:%M")) {
  if (!active_) return;
  make_run_folder(folder_);
  evaluates_only_ = run_.training.skip_train && std::filesystem::exists(folder_.config());
  constexpr ResumePoint kAll{std::numeric_limits<std::int64_t>::max(),
                             std::numeric_limits<std::int64_t>::max()};
  const ResumePoint first =
      saved ? ResumePoint{std::min(saved->step, loaded.step), std::min(saved->samples, loaded.samples)}
            : loaded;
  const ResumePoint kept = evaluates_only_ ? kAll : first;
  earlier_ = earlier_sessions(folder_, kept.step);
  steps_.emplace(folder_.metrics(), kept.step);
  evaluations_.emplace(folder_.validation(), kept.step);
  const std::string& events = run_.logging.tensorboard_dir;
  events_.emplace(events.empty() ? folder_.tensorboard() : std::filesystem::path(events), kept);
  if (evaluates_only_) return;
  write_config();
  events_->text("arguments", "```yaml\n" + config::dump(run_) + "```", loaded.step);
  if (!run_.logging.wandb_project.empty()) open_wandb(kept.step);
}

Recorder::~Recorder() {
  if (wandb_) wandb_->finish(std::uncaught_exceptions() > 0 ? 1 : 0);
}

/// The file of a resumed run begins with the records up to the loaded step, so that it is complete.
void Recorder::open_wandb(std::int64_t loaded_step) {
  const WandbRun wandb = make_wandb_run(run_, folder_, loaded_step > 0);
  wandb_.emplace(wandb, run_);
  log::info("W&B: offline run \"{}\" of project {}; upload it with `wandb sync {}`", wandb.name,
            run_.logging.wandb_project, wandb.folder.string());
  if (loaded_step == 0) return;
  config::Logging logged = run_.logging;
  logged.log_timers_to_tensorboard = false;  // metrics.jsonl has no phase times
  const std::vector<EvalRecord> evaluations = read_evals(folder_.validation());
  auto evaluation = evaluations.begin();
  const auto add_evaluations = [&](std::int64_t until) {
    for (; evaluation != evaluations.end() && evaluation->iteration <= until; ++evaluation)
      wandb_->row(evaluation->iteration, eval_scalars(*evaluation, logged), /*updates_summary=*/false);
  };
  for (const StepRecord& step : read_steps(folder_.metrics())) {
    add_evaluations(step.iteration - 1);
    if (step.iteration % run_.logging.tensorboard_log_interval == 0)
      wandb_->row(step.iteration, step_scalars(step, {}, batch_size_of(step), logged),
                  /*updates_summary=*/false);
  }
  add_evaluations(loaded_step);
}

std::int64_t Recorder::batch_size_of(const StepRecord& record) const {
  return record.global_batch_size.value_or(config::batch_schedule(run_.training).final_size());
}

bool Recorder::logs_step(std::int64_t iteration, std::int64_t last_iteration) const {
  return iteration % run_.logging.log_interval == 0 || iteration == last_iteration;
}

void Recorder::step(const StepRecord& record, const PhaseTimes& phases, std::int64_t last_iteration) {
  if (!active_) return;
  if (!time_left_) time_left_.emplace(last_iteration);
  time_left_->add(record.iteration, record.step_ms);
  last_step_ = record.iteration;
  steps_->append(record);
  if (record.iteration % run_.logging.tensorboard_log_interval == 0) {
    write_step(*events_, record, phases, batch_size_of(record), run_.logging);
    if (wandb_)
      wandb_->row(record.iteration, step_scalars(record, phases, batch_size_of(record), run_.logging));
  }
  const std::string rank_text = rank_lines(record.rank_values, run_.logging.timing_log_option);
  if (!logs_step(record.iteration, last_iteration)) {
    if (!rank_text.empty()) print_flushed(rank_text);
    return;
  }
  StepLineOptions options;
  options.last_iteration = last_iteration;
  options.seconds_left = time_left_->seconds();
  options.show_loss_scale = config::dtypes_of(run_).needs_loss_scale();
  options.color = stdout_has_color();
  print_flushed(step_line(record, options) + "\n" + rank_text);
}

void Recorder::evaluation(const EvalRecord& record) {
  if (!active_) return;
  evaluations_->append(record);
  write_eval(*events_, record, run_.logging);
  if (wandb_) wandb_->row(record.iteration, eval_scalars(record, run_.logging));
  print_flushed(eval_line(record, stdout_has_color()) + "\n");
}

void Recorder::phase_time(Phase phase, double seconds, std::int64_t step) {
  if (!active_) return;
  write_time(*events_, phase, seconds, step, run_.logging);
  if (wandb_ && run_.logging.log_timers_to_tensorboard) wandb_->row(step, {{time_tag(phase), seconds}});
}

void Recorder::report(RunSummary summary, const PhaseTimes& total, double wall_seconds) {
  if (!active_ || evaluates_only_) return;
  summary.times = total;
  summary.wall_seconds = wall_seconds;
  summary.settings = config::dump(run_);
  summary.first_step = first_step_;
  summary.last_step = last_step_;
  summary.began = began_;
  std::vector<RunSummary> sessions = earlier_;
  sessions.push_back(std::move(summary));
  try {
    write_sessions(folder_.sessions(), sessions);
    write_report(folder_, sessions);
  } catch (const std::exception& e) {
    log::warning("report: {}", e.what());
  }
}

}  // namespace colonnade::record
