// Bytes that one rank sends in one training step, by communication group. Ring algorithms are assumed: an
// all-gather or reduce-scatter of B bytes over k ranks sends B (k-1)/k per rank, an all-reduce twice that.
#pragma once

#include <cstdint>
#include <vector>

#include "colonnade/config/run.h"

namespace colonnade::cost {

/// With M micro-batches, n = s*b tokens, element size e, d data-parallel ranks, P local parameters.
struct StageTraffic {
  /// Each layer and micro-batch moves n h e bytes in 4 all-reduces; with sequence parallelism in 4
  /// all-gathers, 4 reduce-scatters and 2 all-gathers for weight gradients; half of it if experts without
  /// shared experts replace the MLP. Embedding and head add theirs; recomputed layers repeat their 2 forward
  /// collectives.
  double tensor = 0;
  /// n h e (divided by tp with sequence parallelism) per stage boundary, micro-batch and direction.
  double pipeline = 0;
  /// Each layer and micro-batch exchanges heads and sequence shards by all-to-all and back, or passes keys
  /// and values around a ring (k - 1 hops, again in backward, with k hops of their fp32 gradients), or
  /// all-gathers them (twice) and reduce-scatters their gradients.
  double context = 0;
  /// Each MoE layer and micro-batch dispatches rows to experts and combines them, forward and backward, or
  /// all-gathers tokens and reduce-scatters outputs, after the exchange of routing counts or indices
  /// (see moe_cost()). Rows are spread evenly.
  double experts = 0;
  /// Gradients, in the dtype of their wire, all-reduced over data-parallel replicas; with the
  /// distributed optimizer reduce-scattered, and parameters all-gathered. Sharded gradients are
  /// reduce-scattered once per micro-batch, and sharded parameters all-gathered twice.
  double data = 0;
  /// Traffic between distributed-optimizer instances (--num-distributed-optimizer-instances); `data` is then
  /// the traffic within one. The rank's gradient shard is all-reduced once per step, or with
  /// --outer-dp-sharding-strategy optim reduce-scattered, and its parameter shard all-gathered.
  double outer_data = 0;
  /// Main gradients of parameters shared by several stages, for the shard that this rank updates: tied
  /// embeddings of both ends and relative-position tables, all-reduced once per step.
  double shared_embeddings = 0;
};

/// By pipeline rank; with --hybrid-context-parallel for with_fixed_context_size. Throws as plan_memory does.
std::vector<StageTraffic> plan_traffic(const config::Run& given);

}  // namespace colonnade::cost
