// Peaks of pairs by hand.
#include "colonnade/cost/pair_memory.h"

#include <gtest/gtest.h>

#include "colonnade/cost/activations.h"
#include "cost/ideal.h"

namespace colonnade::cost {
namespace {

/// Layers that save 10 bytes and need 4 more in backward, with `hand_overs` per layer and pass.
std::vector<PassPart> forward_of(int layers, int hand_overs) {
  std::vector<PassPart> parts;
  for (int i = 1; i <= layers; ++i)
    parts.push_back({.peak = 10 * i, .after = 10 * i, .hand_overs = hand_overs});
  return parts;
}
std::vector<PassPart> backward_of(int layers, int hand_overs) {
  std::vector<PassPart> parts;
  for (int i = 0; i < layers; ++i)
    parts.push_back({.peak = 4 - 10 * i, .after = -10 * (i + 1), .hand_overs = hand_overs});
  return parts;
}

TEST(PairMemory, EqualLayersHoldOneLayerMore) {
  for (const int layers : {1, 2, 5})
    EXPECT_EQ(pair_peak(forward_of(layers, 2), backward_of(layers, 2)), 4 + 10) << layers;
}

// Without hand-overs the backward pass frees everything before the forward pass begins.
TEST(PairMemory, PassesWithoutHandOversRunOneAfterTheOther) {
  EXPECT_EQ(pair_peak(forward_of(3, 0), backward_of(3, 0)), 4);
  EXPECT_EQ(pair_peak(forward_of(5, 0), backward_of(3, 0)), 20);
  EXPECT_EQ(pair_peak({}, backward_of(3, 2)), 4);
  EXPECT_EQ(pair_peak(forward_of(3, 2), {}), 30);
  EXPECT_EQ(pair_peak({}, {}), 0);
}

// A backward pass with recomputed exchanges waits twice as often: the forward pass is ahead of it.
TEST(PairMemory, APassThatWaitsMoreOftenFallsBehind) {
  // Backward is in its first layer while forward runs two: 4 + 20; then 4 - 10 + 40 where forward ends first.
  EXPECT_EQ(pair_peak(forward_of(2, 2), backward_of(2, 4)), 4 + 20);
  EXPECT_EQ(pair_peak(forward_of(4, 2), backward_of(4, 4)), 4 - 10 + 40);
}

TEST(PairMemory, PartsAddUpToThePlanOfAPass) {
  config::Run run = test::run_of(test::llama3_8b(), test::layout(2, 1, 1), 2048, 1, 4);
  run.model.moe.num_experts = 8;
  run.model.moe.token_dispatcher_type = config::TokenDispatcher::kAllToAll;
  run.parallel.expert_model_parallel_size = 2;
  const ModelCost model(run);
  const layout::StageBlocks stage = model.stages()[0];
  const auto forward = forward_parts(model, stage), backward = backward_parts(model, stage, false, {});
  const std::int64_t saved = stage_activations(model, stage);
  EXPECT_EQ(forward.back().after, saved);
  EXPECT_NEAR(static_cast<double>(backward.back().after), -static_cast<double>(saved),
              1e-3 * static_cast<double>(saved))
      << "all but the token ids";
  std::int64_t peak = 0, waits = 0;
  for (const PassPart& part : backward) {
    peak = std::max(peak, part.peak);
    waits += part.hand_overs;
  }
  EXPECT_EQ(peak, stage_workspace(model, stage, false));
  EXPECT_EQ(waits, 2 * run.model.num_layers);
}

}  // namespace
}  // namespace colonnade::cost
