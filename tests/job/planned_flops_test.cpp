// The FLOP model against the matmuls and attention calls that really run, counted by shape.
#include <sstream>

#include "colonnade/cost/model_cost.h"
#include "colonnade/cost/recomputed_flops.h"
#include "colonnade/job/op_counter.h"
#include "job/planned.h"

namespace colonnade::job {
namespace {

using test::Planned;

/// FLOPs of one step on the ranks [first, end) of the run, one after the other.
OpCounts counted(const config::Run& run, int first, int end) {
  OpCounter counter;
  for (int rank = first; rank < end; ++rank) {
    test::SingleRank single(run, rank);
    test::forward_backward(single.job);
  }
  return counter.take();
}
OpCounts counted(const config::Run& run) { return counted(run, 0, run.parallel.world_size); }

cost::TrainingFlops planned(const config::Run& run) {
  return cost::training_flops_by_part(run.model, cost::sample_length(run), run.training.global_batch_size,
                                      run.parallel.tensor_model_parallel_size);
}

constexpr Planned kFlopLayouts[] = {
    {"OneRank", 1, "--micro-batch-size 2 --global-batch-size 4"},
    {"Tp2Sp", 2,
     "--tensor-model-parallel-size 2 --sequence-parallel --micro-batch-size 1 --global-batch-size 2"},
    {"Pp2Dp2", 4, "--pipeline-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 8"},
    {"Tp2Pp2Virtual2", 4,
     "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank "
     "2 "
     "--micro-batch-size 1 --global-batch-size 4"},
};

TEST(PlannedFlops, LinearsAreExactOnMeta) {
  for (const Planned& layout : kFlopLayouts)
    for (const std::string& model :
         {test::llama(""), test::gpt2(""), test::odd("--swiglu "), test::llama("--attention-output-gate ")}) {
      SCOPED_TRACE(fmt::format("{}: {}", layout.name, model));
      const config::Run run = test::planned_run(layout, model, "meta");
      EXPECT_EQ(counted(run).linears(), planned(run).linears);
    }
}

/// MLA latents and MTP projections are computed once under sequence parallelism.
TEST(PlannedFlops, LatentAttentionAndMtpAreExactOnMeta) {
  const Planned& pipeline = kFlopLayouts[2];
  for (const Planned& layout : {kFlopLayouts[0], kFlopLayouts[1], pipeline})
    for (const char* more : {"--q-lora-rank 24 --qk-layernorm ", "--mtp-num-layers 2 "}) {
      SCOPED_TRACE(fmt::format("{}: {}", layout.name, more));
      const config::Run run = test::planned_run(layout, test::latent(more), "meta");
      EXPECT_EQ(counted(run).linears(), planned(run).linears);
    }
}

TEST(PlannedFlops, LinearsAndAttentionAreExactOnTheCpu) {
  for (const Planned& layout : kFlopLayouts)
    for (const char* more : {"", "--group-query-attention --num-query-groups 2 --swiglu "}) {
      SCOPED_TRACE(fmt::format("{}: {}", layout.name, more));
      const config::Run run = test::planned_run(layout, test::odd(more), "cpu");
      const OpCounts real = counted(run);
      EXPECT_EQ(real.linears(), planned(run).linears);
      // The plan counts the causal half of the forward pass, and twice that for the backward pass.
      EXPECT_EQ(real.attention_backward, real.attention_forward);
      EXPECT_EQ(real.attention_forward / 2 * 3, planned(run).attention);
    }
}

TEST(PlannedFlops, EncoderAndDecoderAreExactOnTheCpu) {
  for (const Planned& layout : kFlopLayouts)
    for (const char* more : {"", "--activation geglu-tanh --kv-channels 20 "}) {
      SCOPED_TRACE(fmt::format("{}: {}", layout.name, more));
      const config::Run run =
          test::planned_run(layout,
                            "t5 --encoder-num-layers 4 --decoder-seq-length 24 --vocab-extra-ids 20 " +
                                test::odd("--position-embedding-type rope ") + more,
                            "cpu");
      const OpCounts real = counted(run);
      EXPECT_EQ(real.linears(), planned(run).linears);
      EXPECT_EQ(real.attention_backward, real.attention_forward);
      // For the decoder's self-attention, two matmuls, the plan counts the causal half.
      const std::int64_t rest = 4 * run.training.global_batch_size * 24 * 24 * 2 * 4 * run.model.kv_channels;
      EXPECT_EQ(real.attention_forward, planned(run).attention / 3 + static_cast<double>(rest));
    }
}

TEST(PlannedFlops, ContextRanksHaveEqualWork) {
  for (const char* kind : {"p2p", "all_gather", "a2a"})
    for (const int cp : {2, 4}) {
      SCOPED_TRACE(fmt::format("{} {}", kind, cp));
      const auto flags =
          fmt::format("--context-parallel-size {} --cp-comm-type {} --micro-batch-size 1", cp, kind);
      const config::Run run = test::planned_run({"", cp, flags.c_str()}, test::odd(""), "cpu");
      // With blocks, half of the rank's own square is causal and the others count in full: k + 1 halves of 2k
      // squares of a chunk. With all-to-all, half of the full square is causal.
      const double squares = std::string(kind) == "a2a" ? 1 : (cp + 1.0) / (2 * cp);
      const cost::TrainingFlops all = planned(run);
      for (int rank = 0; rank < cp; ++rank) {
        const OpCounts real = counted(run, rank, rank + 1);
        EXPECT_EQ(real.linears(), all.linears / cp) << rank;
        EXPECT_EQ(real.attention_forward, all.attention / 3 * 2 / cp * squares) << rank;
        EXPECT_EQ(real.attention_backward, real.attention_forward) << rank;
      }
    }
}

void expect_exact_recomputed(const config::Run& run) {
  const OpCounts real = counted(run);
  const cost::TrainingFlops more =
      cost::recomputed_flops(cost::ModelCost(run), run.training.global_batch_size);
  EXPECT_GT(more.total(), 0);
  EXPECT_EQ(real.linears(), planned(run).linears + more.linears);
  if (run.model.latent.enabled) return;  // the kernel pads its heads
  // Attention counts its causal half; only forward calls are recomputed.
  EXPECT_EQ(real.attention_forward / 2 - planned(run).attention / 3, more.attention);
}

constexpr const char* kRecomputeAll =
    "--recompute-granularity full --recompute-method uniform --recompute-num-layers 2 ";

TEST(PlannedFlops, RecomputationIsExact) {
  for (const Planned& layout : kFlopLayouts)
    for (const char* again :
         {"--recompute-activations ", "--recompute-granularity selective --recompute-modules mlp layernorm ",
          kRecomputeAll, "--recompute-granularity full --recompute-method block --recompute-num-layers 1 "}) {
      SCOPED_TRACE(fmt::format("{}: {}", layout.name, again));
      expect_exact_recomputed(test::planned_run(layout, test::odd(std::string("--swiglu ") + again), "cpu"));
    }
}

TEST(PlannedFlops, RecomputedLatentAttentionAndMtpAreExact) {
  const char* heads = "--recompute-granularity selective --recompute-modules mla_up_proj ";
  for (const Planned& layout : {kFlopLayouts[0], kFlopLayouts[1]}) {
    SCOPED_TRACE(layout.name);
    for (const char* again : {heads, kRecomputeAll})
      expect_exact_recomputed(
          test::planned_run(layout, test::latent(std::string("--q-lora-rank 24 ") + again), "cpu"));
    expect_exact_recomputed(test::planned_run(
        layout, test::odd(std::string("--mtp-num-layers 1 --position-embedding-type rope ") + kRecomputeAll),
        "cpu"));
  }
}

}  // namespace
}  // namespace colonnade::job
