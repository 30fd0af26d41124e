// The plan of an encoder-decoder model against dry runs of every rank: parameters and bytes between steps
// exactly, peaks within 3 %, and matching collectives.
#include <gmock/gmock.h>

#include "job/planned_layouts.h"

namespace colonnade::job {
namespace {

using test::Planned;

/// Eight layers of T5 1.1; samples of 512 and 128 tokens.
std::string t5(const std::string& more) {
  return "t5 --encoder-num-layers 4 --num-layers 4 --hidden-size 1024 --ffn-hidden-size 2816 "
         "--num-attention-heads 16 --kv-channels 64 --vocab-size 32128 --seq-length 512 --decoder-seq-length 128 "
         "--position-embedding-type relative --normalization RMSNorm --activation geglu-tanh "
         "--disable-bias-linear --hidden-dropout 0.1 --attention-dropout 0 --vocab-extra-ids 100 " +
         more;
}

constexpr Planned kPlannedT5Layouts[] = {
    {"OneRank", 1, "--micro-batch-size 1"},
    {"FourSequences", 1, "--micro-batch-size 4"},
    {"Tp2", 2, "--tensor-model-parallel-size 2 --micro-batch-size 2"},
    {"Tp2Sp", 2, "--tensor-model-parallel-size 2 --sequence-parallel --micro-batch-size 2"},
    {"Pp2", 2, "--pipeline-model-parallel-size 2 --micro-batch-size 2 --global-batch-size 8"},
    {"Pp3LayersOfBothInOne", 3,
     "--pipeline-model-parallel-size 3 --pipeline-model-parallel-layout Ee*3|ett|ttL --micro-batch-size 2 "
     "--global-batch-size 8"},
    {"Pp2Virtual2", 2,
     "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 --micro-batch-size 2 "
     "--global-batch-size 8"},
    {"Pp2ZbH1", 2,
     "--pipeline-model-parallel-size 2 --pipeline-schedule zb-h1 --micro-batch-size 2 --global-batch-size 12"},
    {"Pp2ZbV", 2,
     "--pipeline-model-parallel-size 2 --pipeline-schedule zb-v --micro-batch-size 2 --global-batch-size 12"},
    {"Dp2Sharded", 2, "--use-megatron-fsdp --micro-batch-size 2"},
    {"Dp2ShardedGradients", 2,
     "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads --overlap-grad-reduce "
     "--micro-batch-size 2"},
    {"All", 8,
     "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2 "
     "--use-distributed-optimizer --micro-batch-size 2 --global-batch-size 16"},
    {"Recomputed", 2,
     "--pipeline-model-parallel-size 2 --recompute-granularity full --recompute-method uniform "
     "--recompute-num-layers 1 --micro-batch-size 2 --global-batch-size 8"},
    {"SelectivelyRecomputed", 2,
     "--tensor-model-parallel-size 2 --recompute-granularity selective --recompute-modules core_attn layernorm "
     "mlp --micro-batch-size 2"},
};

TEST(PlannedEncoder, DryRunsMatchThePlan) {
  for (const char* more : {"", "--bf16 ", "--bf16 --fp32-residual-connection ",
                           "--position-embedding-type rope --untie-embeddings-and-output-weights ",
                           "--attention-dropout 0.1 --output-layer-bias "})
    for (const Planned& layout : kPlannedT5Layouts) {
      SCOPED_TRACE(fmt::format("{}: {}", layout.name, more));
      const config::Run run = test::planned_run(layout, t5(more), "cpu");
      std::vector<DryRun> seen;
      for (int rank = 0; rank < run.parallel.world_size; ++rank) seen.push_back(dry_run(run, rank));
      EXPECT_THAT(plan_mismatches(run, seen), testing::IsEmpty());
      EXPECT_THAT(collective_mismatches(seen), testing::IsEmpty());
    }
}

}  // namespace
}  // namespace colonnade::job
