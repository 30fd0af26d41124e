// QK-clip in complete steps: the next scores of clipped heads are the threshold, in every layout.
#include <gmock/gmock.h>

#include "job/runs.h"

namespace colonnade::job {
namespace {

constexpr const char* kClipped =
    "--num-layers 4 --hidden-size 32 --ffn-hidden-size 48 --num-attention-heads 8 --vocab-size 61 --seq-length 16 "
    "--max-position-embeddings 16 --micro-batch-size 1 --global-batch-size 4 --hidden-dropout 0 "
    "--attention-dropout 0 --init-method-std 0.3 --disable-bias-linear --position-embedding-type rope "
    "--normalization RMSNorm --swiglu --untie-embeddings-and-output-weights ";
constexpr const char* kGrouped = "--group-query-attention --num-query-groups 2 ";
constexpr const char* kClippedLatent =
    "--multi-latent-attention --q-lora-rank 16 --kv-lora-rank 12 --qk-head-dim 6 --qk-pos-emb-head-dim 4 "
    "--kv-channels 10 --v-head-dim 5 ";

struct ClippedSteps {
  std::vector<double> max_logit, loss;
};

/// Steps in float64 with the same `rate`; `repeats`: all on the first global batch.
ClippedSteps clipped_steps(const std::string& flags, int count, double rate, bool repeats, int world = 1) {
  ClippedSteps all;
  const auto body = [&](Job& job) {
    for (int i = 0; i < count; ++i) {
      const auto report = job.train_step(test::steps_after(job, repeats ? 0 : job.counters.consumed_samples),
                                         {.learning_rate = rate, .weight_decay = 0});
      if (job.ranks.rank() != 0) continue;
      all.max_logit.push_back(report.max_attention_logit.value());
      all.loss.push_back(report.losses.at("lm_loss"));
    }
  };
  test::on_jobs(test::settings(world, test::words(kClipped + flags)), body, test::dtypes(at::kDouble));
  return all;
}

// Without an update of the weights, scores are proportional to the scale: those of the clipped head become
// the threshold, in a model of one layer, whose input stays.
TEST(QkClip, ScoresOfClippedHeadsBecomeTheThreshold) {
  for (const std::string& model :
       std::vector<std::string>{"", kGrouped, kClippedLatent, "--attention-output-gate --window-size 5,0 "}) {
    SCOPED_TRACE(model);
    const std::string flags = model + "--num-layers 1 ";
    const double first = clipped_steps(flags + "--log-max-attention-logit ", 1, 0, true).max_logit[0];
    ASSERT_GT(first, 0);
    for (const char* alpha : {"0.5", "0.2"}) {
      const ClippedSteps clipped = clipped_steps(
          fmt::format("{}--qk-clip --qk-clip-alpha {} --qk-clip-threshold {}", flags, alpha, first / 3), 2, 0,
          true);
      EXPECT_NEAR(clipped.max_logit[0], first, 1e-12 * first);
      EXPECT_NEAR(clipped.max_logit[1], first / 3, 1e-9 * first);
    }
    const ClippedSteps kept =
        clipped_steps(fmt::format("{}--qk-clip --qk-clip-threshold {}", flags, first * 1.01), 2, 0, true);
    EXPECT_EQ(kept.max_logit[1], kept.max_logit[0]);
  }
}

TEST(QkClip, IsEqualInEveryLayout) {
  constexpr test::Layout kLayouts[] = {
      {"Dp2", 2, "--use-distributed-optimizer"},
      {"Dp2Sharded", 2, "--use-megatron-fsdp"},
      {"Tp2Sp", 2, "--tensor-model-parallel-size 2 --sequence-parallel"},
      {"Tp4MoreRanksThanGroups", 4, "--tensor-model-parallel-size 4"},
      {"Pp2Virtual2", 2, "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 1"},
      {"Cp2", 2, "--context-parallel-size 2"},
      {"Cp2Gather", 2, "--context-parallel-size 2 --cp-comm-type all_gather"},
      {"Cp2Tp2A2a", 4, "--context-parallel-size 2 --cp-comm-type a2a --tensor-model-parallel-size 2"},
      {"Recomputed", 1, "--recompute-activations"},
      {"RecomputedLayers", 1,
       "--recompute-granularity full --recompute-method uniform --recompute-num-layers 2"}};
  for (const std::string& model :
       {std::string(kGrouped) + "--window-size 5,0 ", std::string(kClippedLatent) + "--mtp-num-layers 1 "}) {
    const std::string flags = model + "--qk-clip --qk-clip-threshold 0.5 ";
    const ClippedSteps one = clipped_steps(flags, 3, 1e-3, false);
    EXPECT_GT(one.max_logit[0], 0.5);
    EXPECT_GT(
        std::abs(one.loss[2] - clipped_steps(model + "--log-max-attention-logit ", 3, 1e-3, false).loss[2]),
        1e-6);
    for (const test::Layout& layout : kLayouts) {
      SCOPED_TRACE(fmt::format("{}{}", model, layout.name));
      const ClippedSteps got = clipped_steps(flags + layout.flags, 3, 1e-3, false, layout.world);
      for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_NEAR(got.max_logit[i], one.max_logit[i], 1e-9) << "step " << i;
        EXPECT_NEAR(got.loss[i], one.loss[i], 1e-9) << "step " << i;
      }
    }
  }
}

}  // namespace
}  // namespace colonnade::job
