// Saves the state of a job to checkpoints and restores it, in any layout.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "colonnade/checkpoint/load.h"
#include "colonnade/checkpoint/save.h"
#include "colonnade/checkpoint/save_distributed.h"
#include "colonnade/job/job.h"
#include "colonnade/job/step_files.h"

namespace colonnade::job {

/// This rank's share of a checkpoint of the job. Tensors are views of live memory: save before the next step.
/// Values stored with a scale (optim/scaled.h) are fp32 copies.
/// Model tensors have Hugging Face names where the family has some; optimizer state is named
/// optimizer.{<state of its update rule>, fp32_param}.<our name>. Model tensors are stored in
/// Dtypes::parameter, states in Dtypes::state(), fp32_param in main_parameter, both in fp32 if their dtype
/// has a scale. `more` is merged into the
/// state: the training loop adds "lr_schedule", "tokenizer" (tokenizer_state) and "data" (data_state). The
/// tokenizer's bos and eos ids also go into config.json, unless `files` has others. `files` are written to
/// the step folder; the map of copied tokenizer files is stored in the state as "tokenizer_files".
checkpoint::Snapshot snapshot(Job& job, const nlohmann::json& more = nlohmann::json::object(),
                              const StepFiles& files = {});

/// This rank's share of a checkpoint in Megatron's torch_dist, with `more` as in snapshot(). Throws
/// ConfigError for a model of a program's own builder.
checkpoint::DistributedSnapshot distributed_snapshot(Job& job,
                                                     const nlohmann::json& more = nlohmann::json::object());

/// Writes the model as the Hugging Face folder `folder`. Collective.
checkpoint::SaveResult export_hugging_face(Job& job, const std::filesystem::path& folder,
                                           const StepFiles& files = {});

/// Saves the snapshot in the format of --ckpt-format, with --save-retain-interval. Collective.
checkpoint::SaveResult save(Job& job, const std::filesystem::path& run_folder,
                            const nlohmann::json& more = nlohmann::json::object(),
                            const checkpoint::SaveOptions& options = {}, const StepFiles& files = {});

enum class Restore {
  kResume,   ///< weights, optimizer state and counters
  kWeights,  ///< weights only; optimizer state and counters start from scratch
};

/// Reads this rank's shards from a native checkpoint or a Hugging Face folder, whatever layout wrote it. With
/// --no-load-optim, kResume reads weights and counters only: optimizer states, their step count (bias
/// correction), the loss scale and the schedule (train/loop.cpp) start from scratch, as in Megatron. A
/// dynamic loss scale resumes only from a dynamic one. The precision, also of states, may differ: with
/// optimizer states the fp32 values are loaded, the fp32_param of a 16-bit run or the weights of an fp32 run;
/// without them, and for kWeights, weights are converted. Throws DataError for a tensor that is missing, has
/// another shape or is unknown to the model (require_model_tensors), ConfigError where kResume meets a folder
/// without optimizer state or with that of another optimizer.
void restore(Job& job, const checkpoint::CheckpointReader& source, Restore what);

/// Progress of the run that saved a checkpoint, from CheckpointReader::state().
Counters counters_of(const nlohmann::json& state);

/// Counters that `run` resumes from: counters_of, or with --override-ckpt-iteration N the iteration N, N x
/// --global-batch-size samples and no skipped steps. The optimizer keeps the step count of the state.
/// Source: Megatron's training/checkpointing.py (load_checkpoint).
Counters resumed_counters(const nlohmann::json& state, const config::Run& run);

/// Throws ConfigError when either the checkpoint's model or the model being built comes from a program's own
/// builder (Model::from_settings is false) and the other does not.
void require_same_builder(const checkpoint::CheckpointReader& source, bool from_settings);

}  // namespace colonnade::job
