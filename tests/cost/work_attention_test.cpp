// The time of narrow vectors, sinks and context ranks by hand, and against the bytes that plan_traffic
// counts, which tests/job/planned_traffic_test.cpp holds against runs.
#include <gtest/gtest.h>

#include <array>

#include "colonnade/cost/communication.h"
#include "colonnade/cost/flops.h"
#include "colonnade/cost/step_time.h"
#include "colonnade/cost/work.h"
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

/// Gigabytes a second between any two ranks are all that takes time.
Hardware slow_links() {
  Hardware h = instant();
  h.intra_node.bandwidth = 1e9;
  return h;
}

/// What the stages of a layout compute and move, together.
std::array<double, 3> work_of_all(const config::Run& run) {
  std::array<double, 3> sum{};
  for (const layout::StageBlocks& stage : layout::split_stages(run.model, run.parallel))
    for (const RepeatedWork& part : stage_work(run, stage)) {
      for (const Product& p : part.work.products) sum[0] += part.times * p.times * p.m * p.k * p.n;
      sum[1] += part.times * part.work.forward_bytes;
      sum[2] += part.times * part.work.backward_bytes;
    }
  return sum;
}

TEST(FurtherTokensWork, InAStageBeforeTheHeadIsTheSameAndAJoin) {
  config::Run run = test::run_of(test::llama3_8b(), test::layout(4, 1, 4), 4096, 1, 8);
  run.model.mtp_num_layers = 2;
  run.parallel.pipeline_model_parallel_layout = "Et*16|t*16||mmL";
  const auto together = work_of_all(run);
  run.parallel.pipeline_model_parallel_layout = "Et*16|t*16|mm|L";
  const auto apart = work_of_all(run);
  const double states = 3 * 4096.0 * 4096 * 2;  // of three tokens, in bf16, read and written
  EXPECT_DOUBLE_EQ(apart[0], together[0]);
  EXPECT_NEAR(apart[1] - together[1], 2 * states, 1e-6 * states);
  EXPECT_NEAR(apart[2] - together[2], 2 * states, 1e-6 * states);
}

TEST(AttentionWork, NarrowVectorsTravelInPlaceOfTheHiddenState) {
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

TEST(AttentionWork, ContextRanksSendWhatTheTrafficSays) {
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

TEST(AttentionWork, LatentHeadsMadeAgainAreExchangedAgain) {
  config::Run run = llama(4, 4, "a2a");
  run.model = test::deepseek_v3();
  const double kept = estimate_step(run, slow_links()).context;
  const auto again = [&](std::vector<std::string> modules) {
    run.recompute = {.granularity = "selective", .modules = std::move(modules)};
    const double seconds = estimate_step(run, slow_links()).context;
    EXPECT_NEAR(seconds, plan_traffic(run)[0].context / 1e9, 1e-9);
    return seconds - kept;
  };
  // Queries, keys and values there; with attention the result back as well.
  EXPECT_NEAR(again({"mla_up_proj"}), kept * 3 / 8, 1e-9);
  EXPECT_NEAR(again({"core_attn"}), kept * 4 / 8, 1e-9);
  EXPECT_NEAR(again({"core_attn", "mla_up_proj"}), kept * 4 / 8, 1e-9);
}

TEST(AttentionWork, KeysGoRoundBesideAttention) {
  Hardware h = slow_links();
  h.peak_flops = 1e9;  // attention takes far longer than its keys
  const config::Run run = llama(4, 4, "p2p");
  // Keys and values of 2,048 tokens, 1,024 channels each; their last gradients come home alone.
  const double keys = 2 * 2048 * 1024, gradients = keys * 4;
  EXPECT_NEAR(estimate_step(run, h).context, 32 * gradients / 1e9, 1e-9);
  h.overlap_cost = 0.5;
  EXPECT_NEAR(estimate_step(run, h).context, 32 * (gradients + 0.5 * (6 * keys * 2 + 3 * gradients)) / 1e9,
              1e-9);
  const config::Run gathers = llama(4, 4, "all_gather");
  EXPECT_NEAR(estimate_step(gathers, h).context, plan_traffic(gathers)[0].context / 1e9, 1e-9)
      << "nothing is computed beside a gather";
}

TEST(AttentionWork, ContextRanksShareAllOfTheSequence) {
  const double alone = estimate_step(llama(1, 1, "p2p"), ideal()).compute;
  for (const char* kind : {"p2p", "all_gather", "a2a"})
    EXPECT_NEAR(estimate_step(llama(4, 4, kind), ideal()).compute, alone / 4, 1e-9 * alone) << kind;
}

// Exchanged heads see whole sequences, whose mask the kernel takes; blocks of keys make their scores.
TEST(AttentionWork, MasksCostContextRanksToo) {
  for (const char* mask : {"window", "documents"}) {
    const auto masked = [&](int world, const char* kind) {
      config::Run run = llama(world, world, kind);
      run.model.window_size = std::string(mask) == "window" ? 512 : 0;
      run.data.reset_attention_mask = std::string(mask) == "documents";
      return run;
    };
    const double alone = core_attention_work(masked(1, "p2p")).attention.flops;
    EXPECT_DOUBLE_EQ(core_attention_work(masked(4, "a2a")).attention.flops, alone / 4) << mask;
    for (const char* kind : {"p2p", "all_gather"}) {
      EXPECT_DOUBLE_EQ(core_attention_work(masked(4, kind)).attention.flops, alone / 8) << mask;
      EXPECT_GT(core_attention_work(masked(4, kind)).forward_bytes,
                core_attention_work(llama(4, 4, kind)).forward_bytes)
          << mask;
    }
  }
}

TEST(AttentionWork, HopsBetweenNodesAreSlower) {
  Hardware h = instant();
  h.intra_node.bandwidth = 450e9;
  h.inter_node.bandwidth = 50e9;
  config::Run run = llama(16, 2, "p2p");
  const double inside = estimate_step(run, h).context;
  run.parallel.tensor_model_parallel_size = 8;
  run.training.global_batch_size = 1;
  const double outside = estimate_step(run, h).context;  // an eighth of the heads, a ninth of the speed
  EXPECT_NEAR(outside, inside / 8 * 9, 1e-9);
}

TEST(AttentionWork, SinksKeepAllScores) {
  config::Run run = llama(1, 1, "p2p");
  const StepTime fused = estimate_step(run, ideal());
  run.model.softmax_type = config::SoftmaxType::kLearnable;
  const TrainingFlops flops = training_flops_by_part(run.model, 8192, 1, 1);
  EXPECT_NEAR(estimate_step(run, ideal()).compute - fused.compute, flops.attention * 3.5 / 3 / 1e12, 1e-6)
      << "the other half of the square too";
  EXPECT_DOUBLE_EQ(estimate_step(run, ideal(), {.scores_in_kernel = true}).compute, fused.compute);
  Hardware h = instant();
  h.memory_bandwidth = 1e12;
  const double passes = 2 * 11 * 8192.0 * 8192 * 32 * 2;
  EXPECT_NEAR(estimate_step(run, h).compute - estimate_step(llama(1, 1, "p2p"), h).compute,
              32 * passes / 1e12, 1e-9);
}

TEST(AttentionWork, DropoutKeepsAllScoresToo) {
  config::Run run = llama(1, 1, "p2p");
  const StepTime without = estimate_step(run, ideal());
  run.model.attention_dropout = 0.1;
  const TrainingFlops flops = training_flops_by_part(run.model, 8192, 1, 1);
  EXPECT_NEAR(estimate_step(run, ideal()).compute - without.compute, flops.attention * 3.5 / 3 / 1e12, 1e-6);
  EXPECT_DOUBLE_EQ(estimate_step(run, ideal(), {.scores_in_kernel = true}).compute, without.compute);
}

TEST(AttentionWork, AWindowSavesWhereTheKernelKnowsOfIt) {
  const Execution kernel{.scores_in_kernel = true};
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
    run.model.window_size = 8191;  // hides nothing
    EXPECT_DOUBLE_EQ(estimate_step(run, ideal(), kernel).compute, all);
    EXPECT_DOUBLE_EQ(estimate_step(run, ideal()).compute, all);
  }
}

TEST(AttentionWork, AMaskLeavesNothingOfTheSquareOut) {
  config::Run run = llama(1, 1, "p2p");
  const double all = estimate_step(run, ideal()).compute;
  const double half = training_flops_by_part(run.model, 8192, 1, 1).attention * 3.5 / 3 / 1e12;
  run.model.window_size = 511;
  EXPECT_NEAR(estimate_step(run, ideal()).compute - all, half, 1e-6);
  run.model.window_attn_skip_freq = "2";
  EXPECT_NEAR(estimate_step(run, ideal()).compute - all, half / 2, 1e-6);
  run.model.window_size = 0;
  run.model.window_attn_skip_freq = "";
  run.data.reset_attention_mask = true;
  EXPECT_NEAR(estimate_step(run, ideal()).compute - all, half, 1e-6);
}

TEST(AttentionWork, LongerSequencesHideMoreOfTheirKeys) {
  const Hardware h100 = read_hardware("h100");
  config::Run run = llama(8, 8, "p2p");
  double last = 1;
  for (const std::int64_t length : {16384, 65536, 262144}) {
    run.training.seq_length = length;
    const StepTime t = estimate_step(run, h100);
    EXPECT_LT(t.context / t.step, last) << "attention grows faster than its keys";
    last = t.context / t.step;
  }
}

}  // namespace
}  // namespace colonnade::cost
