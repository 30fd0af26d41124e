// The plan of a BERT against dry runs of every rank: parameters and bytes between steps exactly, peaks within
// 3 %, and matching collectives.
#include <gmock/gmock.h>

#include "job/planned_layouts.h"

namespace colonnade::job {
namespace {

using test::Planned;

/// Eight layers of BERT-large.
std::string bert(const std::string& more) {
  return "bert --num-layers 8 --hidden-size 1024 --num-attention-heads 16 --vocab-size 30522 --seq-length 512 "
         "--max-position-embeddings 512 --hidden-dropout 0.1 --attention-dropout 0 " +
         more;
}

constexpr Planned kPlannedBertLayouts[] = {
    {"OneRank", 1, "--micro-batch-size 1"},
    {"FourSequences", 1, "--micro-batch-size 4"},
    {"Tp2", 2, "--tensor-model-parallel-size 2 --micro-batch-size 2"},
    {"Tp2Sp", 2, "--tensor-model-parallel-size 2 --sequence-parallel --micro-batch-size 2"},
    {"Pp2", 2, "--pipeline-model-parallel-size 2 --micro-batch-size 2 --global-batch-size 8"},
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
     "--tensor-model-parallel-size 2 --recompute-granularity selective --recompute-modules core_attn mlp "
     "--micro-batch-size 2"},
};

TEST(PlannedBert, DryRunsMatchThePlan) {
  for (const char* more : {"", "--bf16 ", "--bf16 --fp32-residual-connection ",
                           "--bf16 --fp32-residual-connection --apply-residual-connection-post-layernorm ",
                           "--bert-no-binary-head --untie-embeddings-and-output-weights --hidden-dropout 0 ",
                           "--attention-dropout 0.1 --apply-residual-connection-post-layernorm "})
    for (const Planned& layout : kPlannedBertLayouts) {
      SCOPED_TRACE(fmt::format("{}: {}", layout.name, more));
      const config::Run run = test::planned_run(layout, bert(more), "cpu");
      std::vector<DryRun> seen;
      for (int rank = 0; rank < run.parallel.world_size; ++rank) seen.push_back(dry_run(run, rank));
      EXPECT_THAT(plan_mismatches(run, seen), testing::IsEmpty());
      EXPECT_THAT(collective_mismatches(seen), testing::IsEmpty());
    }
}

}  // namespace
}  // namespace colonnade::job
