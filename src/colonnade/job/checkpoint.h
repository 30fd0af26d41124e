// A job's state in and out of checkpoints, in any layout.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "colonnade/checkpoint/load.h"
#include "colonnade/checkpoint/save.h"
#include "colonnade/job/job.h"

namespace colonnade::job {

/// What this rank gives to a checkpoint of the job now. Views of live memory: save before the next
/// step. Model tensors have Hugging Face names where the family has some; optimizer state is named
/// optimizer.{exp_avg, exp_avg_sq, fp32_param}.<our name>. `more` joins the state under its keys
/// (the training loop keeps its schedule there).
checkpoint::Snapshot snapshot(Job& job, const nlohmann::json& more = nlohmann::json::object());

/// checkpoint::save of the snapshot, with the retention of the settings. Collective.
checkpoint::SaveResult save(Job& job, const std::filesystem::path& run_folder,
                            const nlohmann::json& more = nlohmann::json::object(),
                            const checkpoint::SaveOptions& options = {});

enum class Restore {
  kContinue,  ///< weights, optimizer state, counters: the run goes on
  kWeights,   ///< weights only; optimizer and counters start anew
};

/// Reads this rank's part from a native checkpoint or a Hugging Face folder, whatever layout wrote
/// it. Throws DataError where a tensor is missing or has another shape, ConfigError where kContinue
/// meets a folder without optimizer state.
void restore(Job& job, const checkpoint::Source& source, Restore what);

}  // namespace colonnade::job
