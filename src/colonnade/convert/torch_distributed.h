// Opens folders of torch.distributed.checkpoint that are not Megatron's: torchtitan's, and those of programs
// that save models of Transformers.
#pragma once

#include <filesystem>
#include <optional>

#include "colonnade/checkpoint/load.h"
#include "colonnade/config/model.h"

namespace colonnade::convert {

/// Weights in a folder with .metadata, or in the last step-N of a folder of them, under Hugging Face names:
///   [model.|module.]model.layers.0.self_attn.q_proj.weight   names of Transformers after a prefix
///   layers.0.attention[.qkv_linear].wq.weight                torchtitan's Llama, whose rotary pairs are
///   adjacent rows
/// A config.json in the folder describes the model; without it `model` does, and without that no tensors are
/// presented. Optimizer states are not read. Nothing where `path` holds no such folder. Throws DataError.
std::optional<checkpoint::CheckpointReader> open_torch_distributed(const std::filesystem::path& path,
                                                                   const config::Model* model = nullptr);

}  // namespace colonnade::convert
