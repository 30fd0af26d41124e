// See beginning.h.
#include "colonnade/train/beginning.h"

#include "colonnade/base/error.h"
#include "colonnade/base/log.h"
#include "colonnade/convert/hugging_face.h"
#include "colonnade/data/stray_ids.h"
#include "colonnade/job/checkpoint.h"

namespace colonnade::train {

RunFolder agree_on_folder(const std::string& save, const comm::Group& world) {
  const std::string mine = world.rank() == 0 ? choose_run_folder(save).root.string() : "";
  return {world.all_gather_text(mine, "run folder")[0]};
}

std::optional<Beginning> find_beginning(const config::Checkpoint& c, const comm::Group& world) {
  if (!c.load.empty()) {
    if (const auto found = checkpoint::find_checkpoint(c.load, c.ckpt_step, world)) {
      auto source = checkpoint::Source::open_native(found->folder);
      const job::Counters counters = c.finetune ? job::Counters{} : job::counters_of(source.state());
      return Beginning{std::move(source), /*is_run=*/true, counters};
    }
    if (world.rank() == 0) log::info("{}: holds no checkpoint; a new run starts", c.load);
  }
  if (c.pretrained_checkpoint.empty()) return std::nullopt;
  return Beginning{convert::open_weights(c.pretrained_checkpoint, c.ckpt_step, world), /*is_run=*/false, {}};
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
