// Settings derived from others, as in Megatron.
#pragma once

#include "colonnade/config/run.h"

namespace colonnade::config {

/// Fills unset fields; run.parallel.world_size must be set. Invalid sizes are left unchanged: rules::check
/// reports them. Idempotent.
///
///   ffn_hidden_size          4h; with SwiGLU int(4h * 2/3 / 64) * 64
///   kv_channels, num_query_groups, rope_type  see attention.h
///   max_position_embeddings  sequence length, unless positions are learned
///   global_batch_size        last size of --step-batch-size-schedule, else micro-batch * data-parallel size
///   batch_multiple           with --decrease-batch-size-if-needed
///   distributed_backend      nccl on cuda, gloo on cpu
///   num_virtual_stages_per_pipeline_rank  from num_layers_per_virtual_pipeline_stage, which becomes 0
///   sequence_parallel        off if the tensor-parallel size is 1; notes report this and other flags without
///   effect
void derive(Run& run);

}  // namespace colonnade::config
