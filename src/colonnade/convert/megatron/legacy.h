// Reads Megatron's legacy `torch` checkpoints: mp_rank_TT[_PPP][_EEE]/model_optim_rng.pt with a rank's own
// tensors, and distrib_optim.pt with its flat buffers. Private to convert/megatron. Source:
// megatron/training/checkpointing.py (get_checkpoint_name), megatron/core/optimizer/distrib_optimizer.py.
#pragma once

#include <filesystem>

#include "colonnade/convert/megatron/source.h"

namespace colonnade::convert::megatron {

/// Opens an iter_* or release folder. Throws DataError for missing ranks and unknown formats.
Source open_legacy(const std::filesystem::path& folder);

}  // namespace colonnade::convert::megatron
