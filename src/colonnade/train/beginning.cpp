// See beginning.h.
#include "colonnade/train/beginning.h"

#include "colonnade/base/error.h"
#include "colonnade/base/log.h"
#include "colonnade/convert/hugging_face.h"
#include "colonnade/data/stray_ids.h"
#include "colonnade/job/checkpoint.h"

namespace colonnade::train {

AgreedFolder agree_on_folder(const std::string& save,
                             const std::optional<std::vector<std::int64_t>>& steps_seen,
                             const comm::Group& world) {
  AgreedFolder agreed;
  std::string fault;
  if (world.rank() == 0) {
    try {
      agreed.owned = std::make_unique<record::OwnedFolder>(save, steps_seen);
      agreed.folder = agreed.owned->folder();
    } catch (const ConfigError& error) {  // the others must hear of it
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

void report_kept_checkpoints(const config::Run& run) {
  const config::Checkpoint& c = run.checkpoint;
  if (run.training.skip_train || c.save_interval) return;
  if (c.save.empty())
    log::warning(
        "this run keeps no checkpoint: neither --save nor --save-interval is given, and only a stop (signal, "
        "--exit-interval, --exit-duration-in-mins) saves; add --save DIR to keep the weights");
  else
    log::info("without --save-interval the run saves once: at its end, or when it is stopped");
}

std::optional<Beginning> find_beginning(const config::Run& run, const comm::Group& world) {
  const config::Checkpoint& c = run.checkpoint;
  if (!c.load.empty()) {
    if (const auto found = checkpoint::find_checkpoint(c.load, c.ckpt_step, world)) {
      auto source = checkpoint::Source::open_native(found->folder);
      if (c.finetune) return Beginning{std::move(source), /*is_run=*/true, {}, {}};
      const job::Counters counters = job::resumed_counters(source.state(), run);
      const job::Counters was = job::counters_of(source.state());
      std::optional<record::Loaded> saved;
      if (c.override_ckpt_iteration) saved = record::Loaded{was.iteration, was.consumed_samples};
      return Beginning{std::move(source), /*is_run=*/true, counters, saved};
    }
    if (world.rank() == 0) log::info("{}: holds no checkpoint; a new run starts", c.load);
  }
  if (c.pretrained_checkpoint.empty()) return std::nullopt;
  const auto step = c.load.empty() ? c.ckpt_step : std::nullopt;
  return Beginning{convert::open_weights(c.pretrained_checkpoint, step, world), /*is_run=*/false, {}, {}};
}

void require_known_ids(const data::Splits& splits, const comm::Group& world) {
  std::string mine;
  try {
    if (world.rank() == 0) mine = data::vocabulary_fault(splits);
  } catch (const DataError& error) {  // a file that cannot be read: the others must hear of it
    mine = error.what();
  }
  const std::string fault = world.all_gather_text(mine, "ids of the data")[0];
  if (!fault.empty()) throw DataError(fault);
}

}  // namespace colonnade::train
