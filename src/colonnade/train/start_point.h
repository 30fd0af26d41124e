// The start point of a run: its run folder, and a checkpoint or initial weights in place of random ones.
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
#include "colonnade/job/resume_policy.h"
#include "colonnade/record/run_folder.h"
#include "colonnade/record/tensorboard.h"

namespace colonnade::train {

/// The run folder, owned by rank 0.
struct SharedRunFolder {
  record::RunFolder folder;
  std::unique_ptr<record::OwnedFolder> owned;  ///< on rank 0
};

/// Rank 0 chooses the run folder and becomes its owner. All ranks receive the folder, or throw the same
/// ConfigError when it cannot be owned (OwnedFolder). Collective over `world`.
SharedRunFolder agree_on_folder(const std::string& save,
                                const std::optional<std::vector<std::int64_t>>& steps_seen,
                                const comm::Group& world);

/// Logs on rank 0 when a run keeps no checkpoint, or only one at its end.
void log_checkpoint_policy(const config::Run& run);

struct StartPoint {
  checkpoint::CheckpointReader source;
  bool is_run = true;      ///< a checkpoint of a run, to resume or finetune; false: initial weights only
  bool upcycles = false;   ///< dense weights of an upcycled model (job::upcycle); is_run is false
  job::Counters counters;  ///< counters to resume from; zeros for a new run
  std::optional<record::ResumePoint>
      saved;  ///< the checkpoint's own counters, where --override-ckpt-iteration differs
};

/// The checkpoint of --load, else that of --pretrained-checkpoint; nothing for a new run. Checksums of a
/// native checkpoint are verified by all ranks together. Collective over `world`. Throws as
/// checkpoint::find_checkpoint.
std::optional<StartPoint> find_start_point(const config::Run& run, const comm::Group& world);

/// Whether `source` is the checkpoint that the run folder has of this iteration. Rank 0 decides for all: a
/// save is collective, and file systems of two machines may differ. Collective over `world`.
bool is_own_checkpoint(const checkpoint::CheckpointReader& source, const record::RunFolder& folder,
                       std::int64_t iteration, const comm::Group& world);

/// Logs the loaded checkpoint and every changed setting, for rank 0. Returns the changed tokens of the data.
std::vector<job::ChangedTokens> log_loaded(const job::Job& job, const checkpoint::CheckpointReader& source,
                                           const data::Splits& splits);

/// Throws DataError on every rank when samples of the data contain out-of-vocabulary ids
/// (data::vocabulary_error), or the data cannot be read. Rank 0 reads. Collective over the world.
void require_ids_in_vocabulary(const data::Splits& splits, const comm::Group& world);

}  // namespace colonnade::train
