// Opens Megatron's checkpoints as checkpoints of Colonnade.
#pragma once

#include "colonnade/checkpoint/load.h"
#include "colonnade/convert/megatron/folder.h"

namespace colonnade::convert::megatron {

/// A reader with the tensors of a native checkpoint: the model's under Hugging Face names where its family has them,
/// the optimizer's under optimizer.{exp_avg, exp_avg_sq, fp32_param}.<our name>, all of them views of the mapped files.
/// Its state has the settings in the checkpoint's args, the counters and the schedule. Every stored tensor is used
/// once and every tensor of the model is filled once. Throws DataError for missing, unknown or damaged tensors,
/// ConfigError for args of a model that Colonnade lacks.
checkpoint::CheckpointReader open(const FoundFolder& found);

}  // namespace colonnade::convert::megatron
