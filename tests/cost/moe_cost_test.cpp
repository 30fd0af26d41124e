// Time of MoE models by hand, on ideal hardware except for the part under test.
#include <gtest/gtest.h>

#include "colonnade/cost/flops.h"
#include "colonnade/cost/model_cost.h"
#include "colonnade/cost/recomputed_flops.h"
#include "colonnade/cost/stage_time.h"
#include "colonnade/cost/step_time.h"
#include "cost/ideal.h"

namespace colonnade::cost {
namespace {

using test::ideal;
using test::instant;

/// Mixtral 8x7B, two micro-batches of 2,048 tokens on each data rank.
config::Run mixtral(int world, int tp, int ep, int etp = 1) {
  config::Run run = test::run_of(test::llama3_8b(), test::layout(world, tp, 1), 2048, 1, 2 * world / tp);
  run.model.moe.num_experts = 8;
  run.model.moe.ffn_hidden_size = 14336;
  run.model.moe.token_dispatcher_type = config::TokenDispatcher::kAllToAll;
  run.parallel.sequence_parallel = tp > 1;
  run.parallel.expert_model_parallel_size = ep;
  run.parallel.expert_tensor_parallel_size = etp;
  return run;
}

constexpr double kLayers = 32, kPasses = 2, kTokens = 2048, kHidden = 4096, kTopk = 2, kBf16 = 2;
constexpr double kRowBytes = kTokens * kTopk * kHidden * kBf16;  ///< bytes of a micro-batch's rows

TEST(MoeCost, EqualsTheFlopsOnOneIdealDevice) {
  config::Run deepseek = test::run_of(test::deepseek_v3(), test::layout(1, 1, 1), 4096, 1, 4);
  deepseek.model.mtp_num_layers = 1;
  for (const config::Run& run : {mixtral(1, 1, 1), deepseek}) {
    const TrainingFlops flops =
        training_flops_by_part(run.model, run.training.seq_length, run.training.global_batch_size, 1);
    const StepTime t = estimate_step(run, ideal());
    EXPECT_NEAR(t.step, (flops.linears + flops.attention * 3.5 / 3) / 1e12, 1e-9 * t.step);
  }
}

/// Per token 4 h l for the projections, and routed experts of width l.
TEST(MoeCost, LatentExpertsComputeNarrowRows) {
  config::Run run = mixtral(1, 1, 1);
  const auto linears = [&] {
    return training_flops_by_part(run.model, run.training.seq_length, run.training.global_batch_size, 1)
        .linears;
  };
  const double wide = linears();
  run.model.moe.routed_size = 1024;
  const double tokens = kTokens * static_cast<double>(run.training.global_batch_size);
  const double experts = 2 * 3 * kTopk * 14336, projections = 4 * kHidden * 1024;
  EXPECT_NEAR(linears() - wide, 3 * kLayers * tokens * (projections - experts * (kHidden - 1024)),
              1e-9 * wide);
  const StepTime t = estimate_step(run, ideal());
  const TrainingFlops flops =
      training_flops_by_part(run.model, run.training.seq_length, run.training.global_batch_size, 1);
  EXPECT_NEAR(t.step, (flops.linears + flops.attention * 3.5 / 3) / 1e12, 1e-9 * t.step);
  run = mixtral(2, 1, 2);
  run.model.moe.routed_size = 1024;
  Hardware h = instant();
  h.intra_node.bandwidth = 1e9;
  const double counts = kPasses * kLayers * 8 * 8;
  EXPECT_NEAR(estimate_step(run, h).dispatch, (kPasses * kLayers * 4 * kRowBytes / 4 + counts) / 2 / 1e9,
              1e-9);
}

TEST(MoeCost, RanksShareTheComputeEvenly) {
  const double alone = estimate_step(mixtral(1, 1, 1), ideal()).compute;  // two sequences
  EXPECT_NEAR(estimate_step(mixtral(8, 1, 8), ideal()).compute, alone, 1e-9 * alone) << "16 on 8 ranks";
  EXPECT_NEAR(estimate_step(mixtral(8, 2, 4, 2), ideal()).compute, alone / 2, 1e-9 * alone) << "8 on 8";
}

TEST(MoeCost, AllWeightGradientsCanBeDelayed) {
  const config::Run run = mixtral(1, 1, 1);
  const CommGroups groups(ideal(), layout::Mesh(run.parallel));
  const StageTime t = stage_time(ModelCost(run), layout::stage_of_layers({0, 1}), ideal(), {}, groups);
  constexpr double kKeys = 1024, kExpert = 3 * kHidden * 14336;
  EXPECT_NEAR(t.weight * 1e12, 2 * kTokens * (kHidden * (2 * kHidden + 2 * kKeys) + kTopk * kExpert), 1e3);
}

TEST(MoeCost, RouterRunsInFp32) {
  Hardware h = instant();
  h.fp32_flops = 1e12;
  EXPECT_NEAR(estimate_step(mixtral(1, 1, 1), h).compute,
              kPasses * kLayers * 6 * kTokens * kHidden * 8 / 1e12, 1e-9);
}

TEST(MoeCost, AllToAllDispatchByHand) {
  Hardware h = instant();
  h.intra_node.bandwidth = 1e9;
  // Two all-to-alls forward, two backward; half of the rows stay local. Row counts are 8 int64.
  const double calls = kPasses * kLayers * 4, counts = kPasses * kLayers * 8 * 8;
  EXPECT_NEAR(estimate_step(mixtral(2, 1, 2), h).dispatch, (calls * kRowBytes + counts) / 2 / 1e9, 1e-9);
  EXPECT_EQ(estimate_step(mixtral(2, 1, 1), h).dispatch, 0) << "every rank has all experts";
  // Two expert tensor ranks: each row is sent to both, among four ranks.
  EXPECT_NEAR(estimate_step(mixtral(4, 2, 2, 2), h).dispatch, (calls * kRowBytes + 2 * counts) * 3 / 4 / 1e9,
              1e-9);
}

TEST(MoeCost, AllGatherDispatchByHand) {
  Hardware h = instant();
  h.intra_node.bandwidth = 1e9;
  config::Run run = mixtral(4, 1, 4);
  run.model.moe.token_dispatcher_type = config::TokenDispatcher::kAllGather;
  // All tokens of four ranks, three quarters from other ranks; top-k indices in int64, weights and their
  // gradients in fp32.
  const double tokens = 4 * 4 * kTokens * kHidden * kBf16, choices = 4 * kTokens * kTopk * (8 + 4 + 4);
  EXPECT_NEAR(estimate_step(run, h).dispatch, kPasses * kLayers * (tokens + choices) * 3 / 4 / 1e9, 1e-9);
}

TEST(MoeCost, AllToAllAcrossNodesUsesThePorts) {
  Hardware h = instant();
  h.intra_node.bandwidth = 450e9;
  h.inter_node.bandwidth = 50e9;
  config::Run near = mixtral(64, 1, 8), far = near;
  far.model.moe.num_experts = near.model.moe.num_experts = 64;
  far.parallel.expert_model_parallel_size = 64;
  const double bytes = kPasses * kLayers * 4 * kRowBytes;
  EXPECT_NEAR(estimate_step(near, h).dispatch, bytes * 7 / 8 / 450e9, 1e-4);
  EXPECT_NEAR(estimate_step(far, h).dispatch, bytes * 56 / 64 / 50e9, 1e-4);
}

BlockCompute moe_compute(const config::Run& run) { return test::sublayer_compute(run, 0, 1); }

TEST(MoeCost, PermutationBytesByHand) {
  config::Run run = mixtral(1, 1, 1);
  run.training.seq_length = 10;
  run.model.hidden_size = 6;
  run.model.moe.ffn_hidden_size = 5;
  run.model.moe.num_experts = 4;
  // In elements: norm 4 * 60. Router 60 in bf16 and fp32, 4 passes over 40 scores in fp32. Rows 20: read,
  // written; read, summed into 10. Activation: reads 20 * 10, writes 20 * 5.
  const double norm = 2 * 4 * 60, router = 60 * 6 + 4 * 40 * 4, rows = 2 * 120, sums = 2 * 60;
  EXPECT_DOUBLE_EQ(moe_compute(run).forward_bytes, norm + router + 3 * rows + sums + 2 * 20 * 15);
  EXPECT_DOUBLE_EQ(moe_compute(run).backward_bytes, norm + router + 60 * 6 + 4 * rows + sums + 2 * 20 * 25);
  // With several ranks rows are sorted by expert and unsorted.
  run.parallel = mixtral(2, 1, 2).parallel;
  EXPECT_DOUBLE_EQ(moe_compute(run).forward_bytes, norm + router + 7 * rows + sums + 2 * 20 * 15);
}

// All ranks wait for the most loaded one: its matmuls, activation bytes, and rows received and returned.
TEST(MoeCost, MostLoadedRankDeterminesTheTime) {
  config::Run even = mixtral(8, 1, 8), uneven = even;
  uneven.model.moe.assumed_imbalance = 1.5;
  const double more = kPasses * kLayers * 6 * kTokens * kTopk * 3 * kHidden * 14336 / 1e12 / 2;
  EXPECT_NEAR(estimate_step(uneven, ideal()).compute - estimate_step(even, ideal()).compute, more,
              1e-6 * more);
  Hardware h = instant();
  h.intra_node.bandwidth = 1e9;
  const double seconds = kPasses * kLayers * 4 * kRowBytes * 7 / 8 / 1e9;
  EXPECT_NEAR(estimate_step(uneven, h).dispatch - estimate_step(even, h).dispatch, seconds / 2,
              1e-9 * seconds);
  const BlockCompute one = moe_compute(even), other = moe_compute(uneven);
  // Half more rows: sorted and unsorted, and in the activation with 2 + 1 columns per ffn column.
  const double row = kTokens * kTopk * kBf16 / 2;
  EXPECT_DOUBLE_EQ(other.forward_bytes - one.forward_bytes, row * (4 * kHidden + 3 * 14336));
}

TEST(MoeCost, FewRowsPerExpertAreSlow) {
  const Hardware h100 = read_hardware("h100");
  double last = 0;
  for (const std::int64_t experts : {8, 32, 128}) {
    config::Run run = mixtral(1, 1, 1);
    run.model.moe.num_experts = experts;
    const double now = estimate_step(run, h100).compute;
    EXPECT_GT(now, 1.02 * last) << experts << ": equal FLOPs in smaller matmuls";
    last = now;
  }
}

TEST(MoeCost, ExpertGradientsAreReducedOverFewerRanks) {
  Hardware h = instant();
  h.intra_node.bandwidth = 1e9;
  const config::Run run = mixtral(8, 1, 4);
  // Elements: 3 matrices of 4096 x 14336 per expert; the rest of Llama 3 8B without its MLPs.
  const double each = 3 * 4096.0 * 14336, expert = 32 * 8 / 4.0 * each;
  const double dense = 8030261248 - 32 * each + 32 * 8 * 4096;
  EXPECT_NEAR(estimate_step(run, h).data, 2 * 4 * (dense * 7 / 8 + expert / 2) / 1e9, 1e-6);
  h.memory_bandwidth = 1e12;
  config::Run sharded = run;
  sharded.parallel.use_distributed_optimizer = true;
  EXPECT_NEAR(estimate_step(sharded, h).optimizer,
              ((dense / 8 + expert / 2) * (8 + 8 + 16 + 2) + (dense + expert) * 4) / 1e12, 1e-6);
}

TEST(MoeCost, RecomputationEqualsItsFlops) {
  config::Run run = test::run_of(test::deepseek_v3(), test::layout(1, 1, 1), 4096, 1, 4);
  run.model.mtp_num_layers = 1;
  const double saved = estimate_step(run, ideal()).step;
  const auto extra = [&](const config::Recompute& recompute) {
    config::Run recomputing = run;
    recomputing.recompute = recompute;
    const TrainingFlops flops = recomputed_flops(ModelCost(recomputing), 4);
    EXPECT_GT(flops.linears + flops.attention, 0);
    EXPECT_NEAR(estimate_step(recomputing, ideal()).step - saved, (flops.linears + flops.attention) / 1e12,
                1e-9 * saved);
  };
  for (const char* module : {"core_attn", "mlp", "moe", "shared_experts", "mla_up_proj"})
    extra({.granularity = "selective", .modules = {module}});
  extra({.granularity = "full", .method = "uniform", .num_layers = 1});
  extra({.granularity = "full", .method = "block", .num_layers = 7});
}

TEST(MoeCost, SharedExpertsAreAnMlp) {
  config::Run run = mixtral(1, 1, 1);
  const double without = estimate_step(run, ideal()).compute;
  run.model.moe.shared_expert_intermediate_size = 1024;
  EXPECT_NEAR(estimate_step(run, ideal()).compute - without,
              kPasses * kLayers * 6 * kTokens * kHidden * 3 * 1024 / 1e12, 1e-6);
}

}  // namespace
}  // namespace colonnade::cost
