// Peaks of steps where the MLP, or an expert, is narrower than the hidden size: the peak is then in
// attention, at the end of a forward pass or during recomputation.
#include "job/planned_layouts.h"

namespace colonnade::job {
namespace {

using test::Planned;

/// 4 layers dominated by activations; `more` has the width of the MLP.
std::string narrow_mlp(const std::string& more) {
  return "--num-layers 4 --hidden-size 512 --num-attention-heads 8 --vocab-size 512 "
         "--max-position-embeddings 2048 --seq-length 2048 --position-embedding-type rope --normalization RMSNorm "
         "--disable-bias-linear --hidden-dropout 0 --attention-dropout 0 --untie-embeddings-and-output-weights " +
         more;
}

constexpr Planned kNarrowLayouts[] = {
    {"OneRank", 1, "--micro-batch-size 1"},
    {"Tp2", 2, "--tensor-model-parallel-size 2 --micro-batch-size 1"},
    {"Pp2", 2, "--pipeline-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 4"},
    {"Pp2Virtual2", 2,
     "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 --micro-batch-size 1 "
     "--global-batch-size 4"},
    {"Pp2ZbH1", 2,
     "--pipeline-model-parallel-size 2 --pipeline-schedule zb-h1 --micro-batch-size 1 --global-batch-size 6"},
    {"Pp2ZbV", 2,
     "--pipeline-model-parallel-size 2 --pipeline-schedule zb-v --micro-batch-size 1 --global-batch-size 6"},
};

/// The head gathers its sequence in addition, so its rank has its own bound.
constexpr Planned kNarrowSequences[] = {
    {"Tp2Sp", 2, "--tensor-model-parallel-size 2 --sequence-parallel --micro-batch-size 2"},
    {"Tp2SpPp2", 4,
     "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2 --micro-batch-size 1 "
     "--global-batch-size 6"},
    {"Tp2SpPp2ZbH1", 4,
     "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2 "
     "--pipeline-schedule zb-h1 --micro-batch-size 1 --global-batch-size 6"},
};

constexpr const char* kRecompute[] = {
    "",
    "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1 ",
    "--recompute-granularity full --recompute-method uniform --recompute-num-layers 2 ",
    "--recompute-granularity full --recompute-method block --recompute-num-layers 1 ",
    "--recompute-activations ",
    "--recompute-granularity selective --recompute-modules layernorm core_attn mlp ",
};

TEST(PlannedNarrowMlp, PeakOfAStep) {
  for (const char* width :
       {"--ffn-hidden-size 128 --bf16 ", "--ffn-hidden-size 256 ", "--ffn-hidden-size 512 --swiglu --bf16 ",
        "--ffn-hidden-size 128 --bf16 --group-query-attention --num-query-groups 2 "})
    for (const char* again : kRecompute) {
      for (const Planned& layout : kNarrowLayouts) {
        SCOPED_TRACE(fmt::format("{}: {}{}", layout.name, width, again));
        test::expect_peak(test::planned_run(layout, narrow_mlp(std::string(width) + again), "meta"), 0.985,
                          1.01);
      }
      for (const Planned& layout : kNarrowSequences) {
        SCOPED_TRACE(fmt::format("{}: {}{}", layout.name, width, again));
        test::expect_peak(test::planned_run(layout, narrow_mlp(std::string(width) + again), "meta"), 0.97,
                          1.01);
      }
    }
}

TEST(PlannedNarrowMlp, PeakOfAStepWithExperts) {
  const Planned layouts[] = {
      {"OneRank", 1, "--micro-batch-size 1"},
      {"Ep2", 2, "--expert-model-parallel-size 2 --micro-batch-size 1"},
      {"Pp2", 2, "--pipeline-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 4"},
      {"Pp2ZbH1", 2,
       "--pipeline-model-parallel-size 2 --pipeline-schedule zb-h1 --micro-batch-size 1 --global-batch-size 6"},
      {"Pp2Ep2", 4,
       "--pipeline-model-parallel-size 2 --expert-model-parallel-size 2 --micro-batch-size 1 "
       "--global-batch-size 8"},
  };
  const std::string recompute[] = {kRecompute[0], kRecompute[1], kRecompute[2], kRecompute[4],
                                   "--recompute-granularity selective --recompute-modules moe core_attn "};
  for (const char* experts :
       {"--moe-ffn-hidden-size 128 --swiglu --bf16 --moe-token-dispatcher-type alltoall ",
        "--moe-ffn-hidden-size 128 --swiglu --bf16 --moe-token-dispatcher-type allgather ",
        "--moe-ffn-hidden-size 64 ",
        "--moe-ffn-hidden-size 128 --swiglu --bf16 --moe-shared-expert-intermediate-size 128 "
        "--moe-token-dispatcher-type alltoall "})
    for (const Planned& layout : layouts)
      for (const std::string& more : recompute) {
        SCOPED_TRACE(fmt::format("{}: {}{}", layout.name, experts, more));
        test::expect_peak(
            test::planned_run(layout, narrow_mlp("--num-experts 8 " + (experts + more)), "meta"), 0.97, 1.01);
      }
}

}  // namespace
}  // namespace colonnade::job
