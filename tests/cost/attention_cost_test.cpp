// Time of MLA, sinks and context parallelism by hand, and against the bytes of plan_traffic, which
// tests/job/planned_traffic_test.cpp compares with runs.
#include <gtest/gtest.h>

#include <array>

#include "colonnade/cost/blocks/attention.h"
#include "colonnade/cost/communication.h"
#include "colonnade/cost/flops.h"
#include "colonnade/cost/stage_compute.h"
#include "colonnade/cost/step_time.h"
#include "cost/ideal.h"

namespace colonnade::cost {
namespace {

using test::ideal;
using test::instant;

config::Run llama(int world, int cp, const char* kind) {
  config::Run run = test::run_of(test::llama3_8b(), test::layout(world, 1, 1), 8192, 1, world / cp);
  run.parallel.context_parallel_size = cp;
  run.parallel.cp_comm_type = {kind};
  return run;
}

/// Only communication takes time: 1 GB/s between any two ranks.
Hardware slow_links() {
  Hardware h = instant();
  h.intra_node.bandwidth = 1e9;
  return h;
}

/// Matmul size, forward bytes and backward bytes, summed over the stages of a layout.
std::array<double, 3> total_cost(const config::Run& run) {
  std::array<double, 3> sum{};
  const ModelCost model(run);
  for (const layout::StageBlocks& stage : layout::split_stages(run.model, run.parallel))
    for (const RepeatedCompute& block : stage_compute(model, stage)) {
      for (const Matmul& p : block.compute.matmuls) sum[0] += block.times * p.count * p.m * p.k * p.n;
      sum[1] += block.times * block.compute.forward_bytes;
      sum[2] += block.times * block.compute.backward_bytes;
    }
  return sum;
}

BlockCompute core_attention(const config::Run& run) {
  const Sequences sequences(run);
  return AttentionCost(sequences.tokens(), layer_traits(run).front()).core(AttentionKernel::kUnfused);
}

TEST(MtpCost, OnAStageBeforeTheHeadAddsAConcatenation) {
  config::Run run = test::run_of(test::llama3_8b(), test::layout(4, 1, 4), 4096, 1, 8);
  run.model.mtp_num_layers = 2;
  run.parallel.pipeline_model_parallel_layout = "Et*16|t*16||mmL";
  const auto together = total_cost(run);
  run.parallel.pipeline_model_parallel_layout = "Et*16|t*16|mm|L";
  const auto apart = total_cost(run);
  const double states = 3 * 4096.0 * 4096 * 2;  // of three predicted tokens in bf16; read and written
  EXPECT_DOUBLE_EQ(apart[0], together[0]);
  EXPECT_NEAR(apart[1] - together[1], 2 * states, 1e-6 * states);
  EXPECT_NEAR(apart[2] - together[2], 2 * states, 1e-6 * states);
}

TEST(AttentionCost, MlaCommunicatesLatentsInsteadOfHiddenStates) {
  config::Run run = test::run_of(test::deepseek_v3(), test::layout(2, 2, 1), 4096, 1, 1);
  run.model.moe = {};
  run.model.num_layers = 2;
  for (const bool by_sequence : {true, false}) {
    for (const std::int64_t queries : {1536, 0}) {
      run.parallel.sequence_parallel = by_sequence;
      run.model.latent.q_lora_rank = queries;
      const double seconds = estimate_step(run, slow_links()).tensor;
      EXPECT_NEAR(seconds, plan_traffic(run)[0].tensor / 1e9, 1e-9) << by_sequence << ' ' << queries;
    }
  }
}

TEST(AttentionCost, ContextParallelTimeMatchesTheTraffic) {
  for (const char* kind : {"p2p", "all_gather", "a2a"}) {
    for (const int cp : {2, 4, 8}) {
      const config::Run run = llama(cp, cp, kind);
      EXPECT_NEAR(estimate_step(run, slow_links()).context, plan_traffic(run)[0].context / 1e9, 1e-9)
          << kind << ' ' << cp;
    }
  }
  config::Run run = llama(8, 8, "a2a+p2p");
  run.parallel.hierarchical_context_parallel_sizes = {2, 4};
  EXPECT_NEAR(estimate_step(run, slow_links()).context, plan_traffic(run)[0].context / 1e9, 1e-9);
}

TEST(AttentionCost, RecomputedMlaRepeatsItsAllToAll) {
  config::Run run = llama(4, 4, "a2a");
  run.model = test::deepseek_v3();
  const double saved = estimate_step(run, slow_links()).context;
  const auto added = [&](std::vector<std::string> modules) {
    run.recompute = {.granularity = "selective", .modules = std::move(modules)};
    const double seconds = estimate_step(run, slow_links()).context;
    EXPECT_NEAR(seconds, plan_traffic(run)[0].context / 1e9, 1e-9);
    return seconds - saved;
  };
  // All-to-all of queries, keys and values; with attention that of the output too.
  EXPECT_NEAR(added({"mla_up_proj"}), saved * 3 / 8, 1e-9);
  EXPECT_NEAR(added({"core_attn"}), saved * 4 / 8, 1e-9);
  EXPECT_NEAR(added({"core_attn", "mla_up_proj"}), saved * 4 / 8, 1e-9);
}

TEST(AttentionCost, RingHopsOverlapAttention) {
  Hardware h = slow_links();
  h.peak_flops = 1e9;  // attention takes far longer than a hop
  const config::Run run = llama(4, 4, "p2p");
  // Keys and values of 2,048 tokens, 1,024 channels each; the last hop of their gradients is exposed.
  const double keys = 2 * 2048 * 1024, gradients = keys * 4;
  EXPECT_NEAR(estimate_step(run, h).context, 32 * gradients / 1e9, 1e-9);
  h.overlap_cost = 0.5;
  EXPECT_NEAR(estimate_step(run, h).context, 32 * (gradients + 0.5 * (6 * keys * 2 + 3 * gradients)) / 1e9,
              1e-9);
  const config::Run gathers = llama(4, 4, "all_gather");
  EXPECT_NEAR(estimate_step(gathers, h).context, plan_traffic(gathers)[0].context / 1e9, 1e-9)
      << "no compute overlaps a gather";
}

TEST(AttentionCost, ContextRanksShareTheComputeEvenly) {
  const double alone = estimate_step(llama(1, 1, "p2p"), ideal()).compute;
  for (const char* kind : {"p2p", "all_gather", "a2a"})
    EXPECT_NEAR(estimate_step(llama(4, 4, kind), ideal()).compute, alone / 4, 1e-9 * alone) << kind;
}

// With a2a the kernel applies the mask to full sequences; ring attention with a mask materializes its scores.
TEST(AttentionCost, WindowMasksCostContextRanksToo) {
  const auto masked = [&](int world, const char* kind) {
    config::Run run = llama(world, world, kind);
    run.model.window_size = 512;
    return run;
  };
  const double alone = core_attention(masked(1, "p2p")).attention.flops;
  EXPECT_DOUBLE_EQ(core_attention(masked(4, "a2a")).attention.flops, alone / 4);
  for (const char* kind : {"p2p", "all_gather"}) {
    EXPECT_DOUBLE_EQ(core_attention(masked(4, kind)).attention.flops, alone / 8);
    EXPECT_GT(core_attention(masked(4, kind)).forward_bytes, core_attention(llama(4, 4, kind)).forward_bytes);
  }
}

TEST(AttentionCost, DocumentsNeedNoMask) {
  for (const char* kind : {"p2p", "all_gather", "a2a"})
    for (const int world : {1, 4}) {
      config::Run run = llama(world, world, kind);
      const BlockCompute causal = core_attention(run);
      run.data.reset_attention_mask = true;
      EXPECT_DOUBLE_EQ(core_attention(run).attention.flops, causal.attention.flops) << kind;
      EXPECT_DOUBLE_EQ(core_attention(run).forward_bytes, causal.forward_bytes) << kind;
    }
}

TEST(AttentionCost, HopsBetweenNodesAreSlower) {
  Hardware h = instant();
  h.intra_node.bandwidth = 450e9;
  h.inter_node.bandwidth = 50e9;
  config::Run run = llama(16, 2, "p2p");
  const double inside = estimate_step(run, h).context;
  run.parallel.tensor_model_parallel_size = 8;
  run.training.global_batch_size = 1;
  const double outside = estimate_step(run, h).context;  // an eighth of the heads at a ninth of the bandwidth
  EXPECT_NEAR(outside, inside / 8 * 9, 1e-9);
}

TEST(AttentionCost, SinksMaterializeAllScores) {
  config::Run run = llama(1, 1, "p2p");
  const StepTime fused = estimate_step(run, ideal());
  run.model.softmax_type = config::SoftmaxType::kLearnable;
  const TrainingFlops flops = training_flops_by_part(run.model, 8192, 1, 1);
  EXPECT_NEAR(estimate_step(run, ideal()).compute - fused.compute, flops.attention * 3.5 / 3 / 1e12, 1e-6)
      << "the masked half of the square too";
  EXPECT_DOUBLE_EQ(estimate_step(run, ideal(), {.fused_scores = true}).compute, fused.compute);
  Hardware h = instant();
  h.memory_bandwidth = 1e12;
  const double passes = 2 * 11 * 8192.0 * 8192 * 32 * 2;
  EXPECT_NEAR(estimate_step(run, h).compute - estimate_step(llama(1, 1, "p2p"), h).compute,
              32 * passes / 1e12, 1e-9);
}

TEST(AttentionCost, DropoutMaterializesAllScores) {
  config::Run run = llama(1, 1, "p2p");
  const StepTime without = estimate_step(run, ideal());
  run.model.attention_dropout = 0.1;
  const TrainingFlops flops = training_flops_by_part(run.model, 8192, 1, 1);
  EXPECT_NEAR(estimate_step(run, ideal()).compute - without.compute, flops.attention * 3.5 / 3 / 1e12, 1e-6);
  EXPECT_DOUBLE_EQ(estimate_step(run, ideal(), {.fused_scores = true}).compute, without.compute);
}

TEST(AttentionCost, WindowSavesFlopsOnlyInAFusedKernel) {
  const Execution kernel{.fused_scores = true};
  config::Run run = llama(1, 1, "p2p");
  const double all = estimate_step(run, ideal()).compute;
  const double attention = training_flops_by_part(run.model, 8192, 1, 1).attention;
  for (const char* layers : {"", "2", "[1]*3+[0]*29"}) {
    run.model.window_size = 511;
    run.model.window_attn_skip_freq = layers;
    const double seen = training_flops_by_part(run.model, 8192, 1, 1).attention;
    EXPECT_LT(seen, attention) << layers;
    EXPECT_NEAR(all - estimate_step(run, ideal(), kernel).compute, (attention - seen) * 3.5 / 3 / 1e12, 1e-6)
        << layers;
    run.model.window_size = 8191;  // masks nothing
    EXPECT_DOUBLE_EQ(estimate_step(run, ideal(), kernel).compute, all);
    EXPECT_DOUBLE_EQ(estimate_step(run, ideal()).compute, all);
  }
}

TEST(AttentionCost, ExplicitMaskCostsTheFullSquare) {
  config::Run run = llama(1, 1, "p2p");
  const double all = estimate_step(run, ideal()).compute;
  const double half = training_flops_by_part(run.model, 8192, 1, 1).attention * 3.5 / 3 / 1e12;
  run.model.window_size = 511;
  EXPECT_NEAR(estimate_step(run, ideal()).compute - all, half, 1e-6);
  run.model.window_attn_skip_freq = "2";
  EXPECT_NEAR(estimate_step(run, ideal()).compute - all, half / 2, 1e-6);
}

TEST(AttentionCost, LongerSequencesHideMoreOfTheRing) {
  const Hardware h100 = read_hardware("h100");
  config::Run run = llama(8, 8, "p2p");
  double last = 1;
  for (const std::int64_t length : {16384, 65536, 262144}) {
    run.training.seq_length = length;
    const StepTime t = estimate_step(run, h100);
    EXPECT_LT(t.context / t.step, last) << "attention grows faster than its hops";
    last = t.context / t.step;
  }
}

}  // namespace
}  // namespace colonnade::cost
