// Bytes that one rank sends in one training step, by communication group. Ring algorithms are assumed: an
// all-gather or reduce-scatter of B bytes over k ranks sends B (k-1)/k per rank, an all-reduce twice that.
#pragma once

#include <cstdint>
#include <vector>

#include "colonnade/config/run.h"

namespace colonnade::cost {

class ModelCost;

/// With M micro-batches, n = s*b tokens, element size e, d data-parallel ranks, P local parameters.
struct StageTraffic {
  /// Matmuls and collectives of the blocks (blocks/compute.h) over tensor ranks, with those that
  /// recomputation repeats.
  double tensor = 0;
  /// n h e (divided by tp with sequence parallelism) per stage boundary, micro-batch and direction.
  double pipeline = 0;
  /// The same over context ranks, and over those among which tokens are dispatched.
  double context = 0, dispatch = 0;
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
std::vector<StageTraffic> plan_traffic(const ModelCost& model);

}  // namespace colonnade::cost
