// What a run begins with instead of drawn weights.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "colonnade/checkpoint/load.h"
#include "colonnade/comm/group.h"
#include "colonnade/config/run.h"
#include "colonnade/data/batches.h"
#include "colonnade/job/job.h"
#include "colonnade/record/run_folder.h"
#include "colonnade/record/tensorboard.h"

namespace colonnade::train {

/// The run folder, which rank 0 owns from now on.
struct AgreedFolder {
  record::RunFolder folder;
  std::unique_ptr<record::OwnedFolder> owned;  ///< on rank 0
};

/// Rank 0 chooses the run folder and becomes its owner; all ranks learn the folder, or throw ConfigError
/// alike when it cannot be owned (OwnedFolder). Collective over `world`.
AgreedFolder agree_on_folder(const std::string& save,
                             const std::optional<std::vector<std::int64_t>>& steps_seen,
                             const comm::Group& world);

/// Prints on rank 0 when a run keeps no checkpoint, or one only at its end.
void report_kept_checkpoints(const config::Run& run);

struct Beginning {
  checkpoint::Source source;
  bool is_run = true;      ///< a checkpoint of a run that goes on or is finetuned; else initial weights alone
  job::Counters counters;  ///< what the run continues after; zeros unless it does
  std::optional<record::Loaded>
      saved;  ///< what the checkpoint had come to, where --override-ckpt-iteration differs
};

/// The checkpoint that --load names, else --pretrained-checkpoint's; nothing for a new run. Every byte of a
/// native one is checked, by all ranks together. Collective over `world`. Throws as
/// checkpoint::find_checkpoint.
std::optional<Beginning> find_beginning(const config::Run& run, const comm::Group& world);

/// Throws DataError on every rank where a look at some places of the data finds ids outside of the vocabulary
/// (data::vocabulary_fault), or data that cannot be read. Rank 0 looks. Collective over the world.
void require_known_ids(const data::Splits& splits, const comm::Group& world);

}  // namespace colonnade::train
