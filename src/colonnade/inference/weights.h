// Where a verb that only computes finds its weights, and what their run says besides the model.
#pragma once

#include "colonnade/checkpoint/load.h"
#include "colonnade/comm/group.h"
#include "colonnade/config/run.h"
#include "colonnade/config/use.h"

namespace colonnade::inference {

/// Fills settings that were not given and that `use` reads from the run that wrote the checkpoint: tokenizer,
/// what makes samples (--seq-length, --mask-prob, ...; the seed for kEvaluateData alone), how many a
/// validation reads, and the data with its split unless data was given. What something given makes
/// meaningless is not taken: --chat-template beside --no-sft. A Hugging Face folder gives its tokenizer where
/// none is named (job::adopt_tokenizer); kEvaluateTokens takes none. Such a folder named by --load becomes
/// --pretrained-checkpoint. Call it before job::start, which fills the model's own settings. Throws
/// ConfigError when neither --load nor --pretrained-checkpoint is given, DataError when the named folder
/// holds no whole checkpoint.
void take_settings(config::Run& run, config::Use use);

/// The checkpoint that --load (with --ckpt-step) names, else --pretrained-checkpoint's. Every byte of a
/// native one is checked, by all ranks together; a damaged one is passed over for the newest whole one,
/// with a warning. Collective. Throws as take_settings.
checkpoint::Source open_weights(const config::Run& run, const comm::Group& world = {},
                                checkpoint::Check check = checkpoint::Check::kChecksums);

}  // namespace colonnade::inference
