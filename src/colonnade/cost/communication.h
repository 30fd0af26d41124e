// Bytes that one rank sends in one training step, by what for. Ring algorithms are assumed: of B bytes
// over k ranks an all-gather or reduce-scatter sends B (k-1)/k per rank, an all-reduce twice that.
#pragma once

#include <cstdint>
#include <vector>

#include "colonnade/config/run.h"

namespace colonnade::cost {

/// With M micro-batches, n = s*b tokens, element size e, d data ranks, P local parameters.
struct StageTraffic {
  /// Each layer and micro-batch moves n h e bytes in 4 all-reduces; with sequence parallelism in 4
  /// all-gathers, 4 reduce-scatters and 2 gathers for weight gradients; half of it where experts without
  /// shared ones are in place of the MLP. Embedding and head add theirs, and layers that are made again their
  /// 2 forward ones once more.
  double tensor = 0;
  /// n h e (divided by tp with sequence parallelism) per border, micro-batch and direction.
  double pipeline = 0;
  /// Each layer and micro-batch exchanges heads for positions and back, or hands keys and values on (k - 1
  /// times, again backward, their gradients in fp32 k times), or gathers them (twice) and scatters gradients.
  double context = 0;
  /// Each layer with experts and micro-batch: rows to their experts and back, forward and backward, or tokens
  /// gathered and sums scattered, with the choices that go before them (work_experts.cpp); rows spread
  /// evenly.
  double experts = 0;
  /// Gradients in fp32, or as --grad-reduce-in-bf16 says, all-reduced over the ranks that hold the same; with
  /// the distributed optimizer reduce-scattered, and parameters gathered. Where gradients are sharded they
  /// are scattered once a micro-batch, and sharded parameters gathered twice.
  double data = 0;
  /// With --num-distributed-optimizer-instances `data` are bytes within an instance; these are those between
  /// them: the rank's part of the gradients all-reduced once a step, or with --outer-dp-sharding-strategy
  /// optim reduce-scattered, and its part of the parameters gathered.
  double outer_data = 0;
  /// Gradients in fp32 of what several stages hold, of which this rank updates a part: that of the embedding
  /// that both ends read, and of tables of relative positions, all-reduced once a step.
  double stages = 0;
};

/// By pipeline coordinate; with --hybrid-context-parallel of with_equal_groups. Throws as plan_memory.
std::vector<StageTraffic> plan_traffic(const config::Run& given);

}  // namespace colonnade::cost
