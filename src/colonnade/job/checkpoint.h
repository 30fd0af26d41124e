// A job's state in and out of checkpoints, in any layout.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "colonnade/checkpoint/load.h"
#include "colonnade/checkpoint/save.h"
#include "colonnade/job/job.h"
#include "colonnade/job/step_files.h"

namespace colonnade::job {

/// What this rank gives to a checkpoint of the job now. Views of live memory: save before the next
/// step. Model tensors have Hugging Face names where the family has some; optimizer state is named
/// optimizer.{exp_avg, exp_avg_sq, fp32_param}.<our name>. `more` joins the state under its keys: the
/// training loop keeps its "lr_schedule", "tokenizer" (tokenizer_state) and "data" (data_state) there; the
/// tokenizer's ids of begin and end go into config.json too, unless `files` have others. `files` join the
/// step folder, and what they copy of the tokenizer joins the state as "tokenizer_files".
checkpoint::Snapshot snapshot(Job& job, const nlohmann::json& more = nlohmann::json::object(),
                              const StepFiles& files = {});

/// checkpoint::save of the snapshot, with the retention of the settings. Collective.
checkpoint::SaveResult save(Job& job, const std::filesystem::path& run_folder,
                            const nlohmann::json& more = nlohmann::json::object(),
                            const checkpoint::SaveOptions& options = {}, const StepFiles& files = {});

enum class Restore {
  kContinue,  ///< weights, optimizer state, counters: the run goes on
  kWeights,   ///< weights only; optimizer and counters start anew
};

/// Reads this rank's part from a native checkpoint or a Hugging Face folder, whatever layout wrote
/// it. With --no-load-optim kContinue takes weights and counters only: optimizer states, its step count
/// (Adam's bias correction) and the loss scale start anew, and so does the schedule (train/loop.cpp); this
/// is Megatron's rule. A dynamic loss scale goes on only from a dynamic one. The precision may be another
/// one: with optimizer states the fp32 values go on, the fp32_param of a 16-bit run or the weights of an fp32
/// run; without them, and for kWeights, weights are converted. Throws DataError where a tensor is missing,
/// has another shape or is left over (check_taken), ConfigError where kContinue meets a folder without
/// optimizer state or with that of another optimizer.
void restore(Job& job, const checkpoint::Source& source, Restore what);

/// How far the run of a checkpoint had come: of Source::state().
Counters counters_of(const nlohmann::json& state);

/// Counters that `run` continues after: counters_of, or with --override-ckpt-iteration N the iteration N, N x
/// --global-batch-size samples and no skipped steps. The step count of the optimizer stays that of the state.
/// Source: Megatron's training/checkpointing.py (load_checkpoint).
Counters resumed_counters(const nlohmann::json& state, const config::Run& run);

/// Throws ConfigError where one of the checkpoint's model and of the model that is built is that of a
/// program's own builder (Model::of_settings) and the other is not.
void require_same_builder(const checkpoint::Source& source, bool of_settings);

}  // namespace colonnade::job
