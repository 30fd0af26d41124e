// Settings that follow from others, as Megatron derives them.
#pragma once

#include "colonnade/config/run.h"

namespace colonnade::config {

/// Fills what was left open; run.parallel.world_size must be set. Impossible sizes are left as they
/// are: rules::check reports them. Doing it twice changes nothing.
///
///   ffn_hidden_size          4h; with SwiGLU int(4h * 2/3 / 64) * 64
///   kv_channels              hidden / heads; with multi-latent attention a head of its queries
///   num_query_groups         heads
///   max_position_embeddings  sequence length, without learned positions
///   global_batch_size        micro-batch * data-parallel size
///   distributed_backend      nccl on cuda, gloo on cpu
///   num_virtual_stages_per_pipeline_rank  from num_layers_per_virtual_pipeline_stage, which becomes 0
///   sequence_parallel        off when the tensor size is 1; notes say so, and which other flags are idle
void derive(Run& run);

}  // namespace colonnade::config
