// Reads Megatron's torch_dist checkpoints: DCP folders whose optimizer states have one of the forms
//   fully_reshardable            optimizer.state.<state>.<model key>, of the model's shape
//   fully_sharded_model_space    the same keys, a grid of flattened blocks (megatron-core 0.7 to 0.15, NeMo
//   2) dp_reshardable               flat buffers per model-parallel rank (flat_buffers.h)
// Private to convert/megatron. Sources: megatron/core/optimizer/distrib_optimizer.py, megatron/training/
// checkpointing.py.
#pragma once

#include <filesystem>

#include "colonnade/convert/megatron/source.h"

namespace colonnade::convert::megatron {

/// Opens an iter_* folder, or the weights folder of NeMo 2. Throws DataError.
Source open_torch_dist(const std::filesystem::path& folder);

}  // namespace colonnade::convert::megatron
