// Checkpoints and their run settings for `evaluate` and `generate`.
#pragma once

#include "colonnade/checkpoint/load.h"
#include "colonnade/comm/group.h"
#include "colonnade/config/run.h"
#include "colonnade/config/use.h"

namespace colonnade::inference {

/// Adopts settings that were not given from the run that wrote the checkpoint, as far as `use` reads them:
/// tokenizer, sample construction (--seq-length, --mask-prob, ...; the seed only for kEvaluateData),
/// validation size, and the data with its split unless data was given. Settings that a given one overrides
/// are skipped, e.g.
/// --chat-template with --no-sft. A Hugging Face folder provides its tokenizer if none is given
/// (job::adopt_tokenizer), except for kEvaluateTokens; if named by --load, it becomes
/// --pretrained-checkpoint. Call before job::start, which fills the model settings. Throws ConfigError
/// without --load and
/// --pretrained-checkpoint, DataError if the folder holds no complete checkpoint.
void adopt_settings(config::Run& run, config::Use use);

/// Opens the checkpoint of --load (with --ckpt-step), else of --pretrained-checkpoint. All ranks together
/// verify every byte of a native one; a damaged one is skipped for the newest intact one, with a warning.
/// Collective. Throws as adopt_settings.
checkpoint::CheckpointReader open_weights(const config::Run& run, const comm::Group& world = {},
                                          checkpoint::Check check = checkpoint::Check::kChecksums);

}  // namespace colonnade::inference
