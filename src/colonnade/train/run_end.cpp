// See run_end.h.
#include "colonnade/train/run_end.h"

#include <fmt/format.h>

#include "colonnade/base/shell.h"
#include "colonnade/checkpoint/folders.h"
#include "colonnade/launch/resume_hint.h"
#include "colonnade/layout/mesh.h"

namespace colonnade::train {
namespace {

using launch::Words;

std::string losses_text(const RunEnd& e) {
  std::string text;
  if (e.loss) text = fmt::format("{:.6g}", *e.loss);
  for (const auto& [set, loss] : e.evaluations)
    text += fmt::format("{}{} {:.6g}", text.empty() ? "" : ", ", set, loss);
  return text;
}

/// Arguments that the command to resume needs besides config.yaml. A complete run resumes with twice the
/// number of steps, and with a longer schedule where that follows the number of steps.
Words resume_arguments(const RunEnd& e, const config::Run& run) {
  if (e.saved < 0) return {};
  Words more;
  if (run.checkpoint.no_save_optim) more = {"--no-load-optim"};
  if (e.saved < e.last_iteration) return more;
  const auto& samples = run.training.train_samples;
  more.insert(more.end(), {samples ? "--train-samples" : "--train-iters",
                           std::to_string(2 * (samples ? *samples : e.last_iteration))});
  const config::Schedule& s = run.schedule;
  const bool follows = (!s.lr_decay_iters && !s.lr_decay_samples) ||
                       s.weight_decay_incr_style != config::WeightDecayIncrStyle::kConstant;
  if (follows && !s.override_opt_param_scheduler && !s.use_checkpoint_opt_param_scheduler)
    more.emplace_back("--override-opt-param-scheduler");
  return more;
}

bool is_sharded(const config::Run& run) {
  using enum layout::Axis;
  return layout::size_of(run.parallel, {kTp, kPp, kEp}) > 1;
}

/// The command for `verb` on the run's model: in one process, or on the run's ranks for a model that was
/// sharded over GPUs.
std::string model_command(const char* verb, const Words& more, const RunEnd& e, const config::Run& run,
                          const launch::CommandLine& line) {
  Words words;
  if (run.training.device == "cuda" && is_sharded(run)) {
    words = line.start;
    words.insert(words.end(), {verb, "--config", (e.folder / "config.yaml").string()});
  } else {
    words = {line.program, verb, "--load", e.folder.string()};
    if (run.training.device != "cpu") words.insert(words.end(), {"--device", run.training.device});
  }
  words.insert(words.end(), more.begin(), more.end());
  return shell_join(words);
}

bool can_generate_text(const config::Run& run) {
  const std::string& type = run.data.tokenizer_type;
  return run.model_type == "gpt" && !type.empty() && type != "NullTokenizer";
}

/// Folder of the last checkpoint.
std::filesystem::path saved_folder(const RunEnd& e, const config::Run& run) {
  return run.checkpoint.saves_torch_dist() ? e.folder / checkpoint::iteration_folder_name(e.saved)
                                           : e.folder / "checkpoints" / checkpoint::step_folder_name(e.saved);
}

}  // namespace

std::string command_rows(const RunEnd& e, const config::Run& run, const launch::CommandLine& line) {
  if (line.verb != "pretrain") return "";
  const Words train_split = {"--split-name", "train", "--eval-iters", "10"};
  std::string out = launch::summary_row(
      "evaluate", model_command("evaluate", e.validates ? Words{} : train_split, e, run, line));
  if (can_generate_text(run))
    out += launch::summary_row("generate",
                               model_command("generate", {"--prompt", "Once upon a time"}, e, run, line));
  return out;
}

std::string end_summary(const RunEnd& e, const config::Run& run, const launch::CommandLine& line) {
  const bool complete = e.iteration >= e.last_iteration, saved = e.saved >= 0;
  std::string out = fmt::format("{} after iteration {} of {}\n", complete ? "complete" : "stopped",
                                e.iteration, e.last_iteration);
  if (const std::string losses = losses_text(e); !losses.empty()) out += launch::summary_row("loss", losses);
  out += launch::summary_row("checkpoint", saved ? saved_folder(e, run).string()
                                                 : "none: --save-interval N or --save DIR keeps one");
  out += launch::summary_row("report", (e.folder / "report.html").string());
  if (line.verb != "pretrain") return out;
  const bool unknown_launcher = run.parallel.world_size > 1 && !line.launched;
  if (unknown_launcher)
    out += launch::summary_row("", "start each rank of the resumed run as those of this run were started");
  out += launch::summary_row(saved ? "resume" : "run again",
                             launch::resume_command(line, e.folder, resume_arguments(e, run)));
  return saved ? out + command_rows(e, run, line) : out;
}

}  // namespace colonnade::train
