// See start_point.h.
#include "colonnade/train/start_point.h"

#include "colonnade/audit/changed_data.h"
#include "colonnade/base/error.h"
#include "colonnade/base/log.h"
#include "colonnade/checkpoint/folders.h"
#include "colonnade/convert/open.h"
#include "colonnade/data/out_of_vocabulary.h"
#include "colonnade/job/checkpoint.h"
#include "colonnade/job/upcycling.h"

namespace colonnade::train {

SharedRunFolder agree_on_folder(const std::string& save,
                                const std::optional<std::vector<std::int64_t>>& steps_seen,
                                const comm::Group& world) {
  SharedRunFolder agreed;
  std::string fault;
  if (world.rank() == 0) {
    try {
      agreed.owned = std::make_unique<record::OwnedFolder>(save, steps_seen);
      agreed.folder = agreed.owned->folder();
    } catch (const ConfigError& error) {  // sent to the other ranks below
      fault = error.what();
    }
  }
  constexpr char kFault = '!', kFolder = '/';
  const std::string mine = fault.empty() ? kFolder + agreed.folder.root.string() : kFault + fault;
  const std::string first = world.all_gather_text(mine, "run folder")[0];
  if (first.front() == kFault) throw ConfigError(first.substr(1));
  agreed.folder = {first.substr(1)};
  return agreed;
}

void log_checkpoint_policy(const config::Run& run) {
  const config::Checkpoint& c = run.checkpoint;
  if (run.training.skip_train || c.save_interval) return;
  if (c.save.empty())
    log::warning(
        "this run keeps no checkpoint: without --save and --save-interval, only a stop (signal, --exit-interval, "
        "--exit-duration-in-mins) saves; add --save DIR to keep the weights");
  else
    log::info("without --save-interval the run saves once, at its end or when it is stopped");
}

std::optional<StartPoint> find_start_point(const config::Run& run, const comm::Group& world) {
  const config::Checkpoint& c = run.checkpoint;
  const auto weights_of = [&run](checkpoint::CheckpointReader source) {
    const bool upcycles = job::upcycles(run, source);
    return StartPoint{
        .source = std::move(source), .is_run = false, .upcycles = upcycles, .counters = {}, .saved = {}};
  };
  if (!c.load.empty()) {
    if (auto found =
            convert::find_run(c.load, c.ckpt_step, world, checkpoint::Check::kChecksums, &run.model)) {
      if (job::upcycles(run, *found)) return weights_of(std::move(*found));
      StartPoint start{.source = std::move(*found), .counters = {}, .saved = {}};
      if (c.finetune) return start;
      start.counters = job::resumed_counters(start.source.state(), run);
      const job::Counters was = job::counters_of(start.source.state());
      if (c.override_ckpt_iteration) start.saved = record::ResumePoint{was.iteration, was.consumed_samples};
      return start;
    }
    if (world.rank() == 0) log::info("{} holds no checkpoint; a new run starts", c.load);
  }
  if (c.pretrained_checkpoint.empty()) return std::nullopt;
  const auto step = c.load.empty() ? c.ckpt_step : std::nullopt;
  return weights_of(
      convert::open_weights(c.pretrained_checkpoint, step, world, checkpoint::Check::kChecksums, &run.model));
}

bool is_own_checkpoint(const checkpoint::CheckpointReader& source, const record::RunFolder& folder,
                       std::int64_t iteration, const comm::Group& world) {
  std::error_code absent;
  const bool same =
      std::filesystem::equivalent(source.folder(),
                                  folder.checkpoints() / checkpoint::step_folder_name(iteration), absent) ||
      std::filesystem::equivalent(source.folder(), folder.root / checkpoint::iteration_folder_name(iteration),
                                  absent);
  return world.all_gather_text(same ? "own" : "", "whose checkpoint it is")[0] == "own";
}

std::vector<job::ChangedTokens> log_loaded(const job::Job& job, const checkpoint::CheckpointReader& source,
                                           const data::Splits& splits) {
  const config::Checkpoint& c = job.run.checkpoint;
  log::info("loaded {}: the run resumes after iteration {}", source.folder().string(),
            job.counters.iteration);
  if (c.finetune) return {};
  if (c.override_ckpt_iteration)
    log::warning(
        "--override-ckpt-iteration: the checkpoint of iteration {} counts as iteration {}; data continues after {} "
        "samples",
        source.state().at("iteration").get<std::int64_t>(), job.counters.iteration,
        job.counters.consumed_samples);
  for (const std::string& change : job::changed_settings(job.run, source.state())) log::warning("{}", change);
  const auto data = job::data_state(splits);
  for (const std::string& change : job::changed_orders(job.run, data, source.state()))
    log::warning("{}", change);
  std::vector<job::ChangedTokens> changed = job::changed_tokens(job.run, data, source.state());
  if (job.run.training.skip_train)  // otherwise the session file reports it
    for (const std::string& change : audit::changed_data({.data = data}, {}, changed))
      log::warning("{}", change);
  if (c.no_load_optim)
    log::warning("--no-load-optim: optimizer states, loss scale and learning-rate schedule restart");
  return changed;
}

void require_ids_in_vocabulary(const data::Splits& splits, const comm::Group& world) {
  std::string mine;
  try {
    if (world.rank() == 0) mine = data::vocabulary_error(splits);
  } catch (const DataError& error) {  // sent to the other ranks below
    mine = error.what();
  }
  const std::string fault = world.all_gather_text(mine, "ids of the data")[0];
  if (!fault.empty()) throw DataError(fault);
}

}  // namespace colonnade::train
