// Opens Megatron's checkpoints as checkpoints of Colonnade.
#pragma once

#include "colonnade/checkpoint/load.h"
#include "colonnade/config/model.h"
#include "colonnade/convert/megatron/folder.h"

namespace colonnade::convert::megatron {

/// What a reader of a Megatron checkpoint needs besides the folder.
struct OpenOptions {
  const config::Model* model = nullptr;  ///< describes the tensors of a checkpoint whose args do not
  /// Leaves out the rows of the vocabulary that Megatron pads it with. A run that continues needs them:
  /// Megatron's loss includes their logits.
  bool cuts_vocabulary = false;
};

/// A reader with the tensors of a native checkpoint: the model's under Hugging Face names where its family
/// has them, the optimizer's under optimizer.{exp_avg, exp_avg_sq, fp32_param}.<our name>, all of them views
/// of the mapped files. Its state has the settings in the checkpoint's args, the counters and the schedule.
/// Every stored tensor is used once and every tensor of the model is filled once. Without a model a
/// checkpoint whose args describe none is opened without tensors, for its settings. The vocabulary without
/// padding, if known, is /model/unpadded_vocab_size in the state. Throws DataError for missing, unknown or
/// damaged tensors, ConfigError for args of a model that Colonnade lacks.
checkpoint::CheckpointReader open(const FoundFolder& found, const OpenOptions& options = {});

}  // namespace colonnade::convert::megatron
