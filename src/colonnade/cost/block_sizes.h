// Sizes of one micro-batch on one rank, and costs shared by several kinds of block. Private to the block
// costs.
#pragma once

#include <algorithm>

#include "colonnade/cost/activations.h"
#include "colonnade/cost/activations/sizes.h"
#include "colonnade/cost/block_cost.h"

namespace colonnade::cost {

struct BlockSizes {
  explicit BlockSizes(const config::Run& run)
      : m(run.model),
        dtypes(config::dtypes_of(run)),
        t(run.parallel.tensor_model_parallel_size),
        seq_length(static_cast<double>(run.training.seq_length)),
        n(static_cast<double>(run.training.micro_batch_size) * seq_length /
          run.parallel.context_parallel_size),
        sequence_parallel(run.parallel.sequence_parallel && t > 1),
        r(sequence_parallel ? n / t : n),
        e(static_cast<double>(config::bytes(dtypes.activation))),
        h(static_cast<double>(m.hidden_size)),
        heads(static_cast<double>(m.num_attention_heads) / t),
        q(heads * static_cast<double>(m.kv_channels)),
        kv(static_cast<double>(m.kv_channels) * std::max(1.0, static_cast<double>(m.num_query_groups) / t)),
        out(heads * static_cast<double>(m.value_head_dim())),
        fc1_per_ffn(m.is_gated() ? 2 : 1),
        ffn(static_cast<double>(m.ffn_hidden_size) / t),
        full_hidden(n * h * e),
        hidden(r * h * e) {}

  const config::Model& m;
  config::Dtypes dtypes;
  double t, seq_length;  ///< tensor ranks; tokens of a full sequence
  double n;              ///< tokens of a context rank
  bool sequence_parallel;
  double r;  ///< tokens between tensor-parallel regions
  double e, h, heads, q, kv, out;
  double fc1_per_ffn, ffn;  ///< fc1 columns per activation column; local columns
  double full_hidden;       ///< bytes of [n, h]
  double hidden;            ///< bytes of [r, h]
};

/// Norm fused with the residual sum. Forward reads the residual stream and the addend and writes both
/// results; backward reads two gradients and the input and writes one gradient.
inline void add_norm(BlockCost& cost, const BlockSizes& z) {
  cost.add_elementwise(4 * z.hidden, 4 * z.hidden, 1, 2);
}

/// Norm of `bytes` alone: reads and writes them; backward reads a gradient and the input and writes one.
inline void add_plain_norm(BlockCost& cost, double bytes) {
  cost.add_elementwise(2 * bytes, 3 * bytes, 1, 2);
}
inline void add_sandwich_norm(BlockCost& cost, const BlockSizes& z) {
  if (z.m.sandwich_norm) add_plain_norm(cost, z.hidden);
}

/// Entry of a tensor-parallel region: all-gather forward and reduce-scatter of the gradient. Without sequence
/// parallelism only the gradient is all-reduced, which costs as much as both.
inline void add_gather(BlockCost& cost, const BlockSizes& z, double bytes) {
  cost.collectives.push_back(
      {GroupKind::kTensor, false, bytes, z.sequence_parallel ? 1 : 0, z.sequence_parallel ? 1 : 2});
}
/// Exit of a tensor-parallel region: reduce-scatter forward and all-gather of the gradient; or one all-reduce
/// forward.
inline void add_reduce(BlockCost& cost, const BlockSizes& z, double bytes) {
  cost.collectives.push_back(
      {GroupKind::kTensor, false, bytes, z.sequence_parallel ? 1 : 2, z.sequence_parallel ? 1 : 0});
}

/// fc1, activation and fc2 over `ffn` local columns.
inline void add_mlp(BlockCost& cost, const BlockSizes& z, const char* fc1, const char* fc2, double ffn) {
  const double fc1_columns = z.fc1_per_ffn * ffn;
  cost.add_elementwise(z.n * z.e * (fc1_columns + ffn), z.n * z.e * (2 * fc1_columns + ffn), 1, 1);
  cost.matmuls.push_back({fc1, z.n, fc1_columns, z.h, LinearSharding::kColumns, z.full_hidden});
  cost.matmuls.push_back({fc2, z.n, z.h, ffn, LinearSharding::kRows, z.full_hidden});
}

/// `cost` of an MLP or MoE without its norm and sandwich norm.
BlockCost without_norms(const config::Run& run, BlockCost cost);

/// stage_cost of an encoder-decoder model.
std::vector<RepeatedBlock> encoder_stage_cost(const config::Run& run, const layout::StageBlocks& stage,
                                              AttentionKernel kernel);

}  // namespace colonnade::cost
