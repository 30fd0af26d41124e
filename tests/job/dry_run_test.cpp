// Full steps of the real code on meta tensors: memory matches the plan, and the ranks' collectives match each
// other under every kind of parallelism.
#include "colonnade/job/dry_run.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "colonnade/cost/memory.h"
#include "colonnade/cost/rank_classes.h"
#include "job/planned.h"

namespace colonnade::job {
namespace {

using test::Planned;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr Planned kDryLayouts[] = {
    {"One", 1, "--micro-batch-size 1"},
    {"Tp2SpPp2", 8,
     "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2 --micro-batch-size 1 "
     "--global-batch-size 8 --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather"},
    {"Pp4Virtual2", 4,
     "--num-layers 8 --pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2 "
     "--micro-batch-size 1 --global-batch-size 8"},
    {"Pp2ZbV", 4,
     "--pipeline-model-parallel-size 2 --pipeline-schedule zb-v --micro-batch-size 1 --global-batch-size 16"},
    {"Pp2DualPipeV", 2,
     "--pipeline-model-parallel-size 2 --pipeline-schedule dualpipe-v --micro-batch-size 1 "
     "--global-batch-size 8"},
};

void expect_as_planned(const config::Run& run) {
  const auto seen = dry_run_all(run);
  EXPECT_THAT(plan_mismatches(run, seen), IsEmpty());
  EXPECT_THAT(collective_mismatches(seen), IsEmpty());
}

TEST(DryRun, MemoryMatchesThePlanAndCollectivesMatch) {
  for (const Planned& layout : kDryLayouts) {
    SCOPED_TRACE(layout.name);
    expect_as_planned(test::planned_run(layout, test::llama(""), "cpu"));
    expect_as_planned(test::planned_run(layout, test::gpt2(""), "cpu"));
  }
}

/// Context-parallel groups of two, combined with data and pipeline parallelism.
TEST(DryRun, EveryContextParallelKind) {
  for (
      const char* kind :
      {"--cp-comm-type p2p", "--cp-comm-type all_gather", "--cp-comm-type a2a",
       "--cp-comm-type a2a+p2p --context-parallel-size 4 --hierarchical-context-parallel-sizes 2 2",
       ("--cp-comm-type p2p --hybrid-context-parallel --max-seqlen-per-dp-cp-rank 1024 --reset-attention-mask "
        "--reset-position-ids --calculate-per-token-loss"),
       ("--cp-comm-type p2p --hybrid-context-parallel --max-seqlen-per-dp-cp-rank 1024 --reset-attention-mask "
        "--reset-position-ids --calculate-per-token-loss --mtp-num-layers 1 --attention-dropout 0.1 "
        "--hidden-dropout 0.1 --num-virtual-stages-per-pipeline-rank 2 --overlap-grad-reduce")}) {
    SCOPED_TRACE(kind);
    const std::string flags = fmt::format(
        "--context-parallel-size 2 --pipeline-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 8 "
        "--use-distributed-optimizer {}",
        kind);
    expect_as_planned(test::planned_run({"", 8, flags.c_str()}, test::llama(""), "cpu"));
  }
}

TEST(DryRun, Muon) {
  for (const Planned& layout : {kDryLayouts[0], kDryLayouts[1]}) {
    SCOPED_TRACE(layout.name);
    expect_as_planned(test::planned_run(layout, test::llama("--optimizer muon "), "cpu"));
  }
}

TEST(DryRun, DeterministicMode) {
  for (const Planned& layout : {kDryLayouts[0], kDryLayouts[1]}) {
    SCOPED_TRACE(layout.name);
    expect_as_planned(test::planned_run(layout, test::llama("--deterministic-mode "), "cpu"));
  }
}

TEST(DryRun, ExpertsWithBalancedRouting) {
  const std::string experts =
      "--num-experts 8 --moe-layer-freq 2 --moe-ffn-hidden-size 1024 --moe-aux-loss-coeff 0.01 --moe-z-loss-coeff "
      "0.001 --moe-router-load-balancing-type aux_loss --moe-router-topk 2 ";
  for (const char* more : {"", "--moe-token-dispatcher-type alltoall",
                           "--moe-expert-capacity-factor 0.75 --moe-input-jitter-eps 0.1",
                           "--moe-router-load-balancing-type sinkhorn --moe-aux-loss-coeff 0 "
                           "--moe-router-force-load-balancing",
                           "--moe-expert-capacity-factor 1.25 --moe-pad-expert-input-to-capacity "
                           "--moe-token-dispatcher-type alltoall"}) {
    SCOPED_TRACE(more);
    const std::string model = test::llama(fmt::format("{}{} ", experts, more));
    expect_as_planned(test::planned_run(
        {"", 8,
         "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2 "
         "--expert-model-parallel-size 2 --expert-tensor-parallel-size 1 --micro-batch-size 1 "
         "--global-batch-size 8 --use-distributed-optimizer"},
        model, "cpu"));
    expect_as_planned(test::planned_run(
        {"", 4, "--expert-model-parallel-size 4 --micro-batch-size 1 --global-batch-size 8"}, model, "cpu"));
  }
}

/// Memory that a step adds to the resident memory equals the plan within 3 %.
void expect_planned_activations(const std::vector<cost::StageMemory>& plans,
                                const std::vector<DryRun>& seen) {
  for (std::size_t i = 0; i < seen.size(); ++i) {
    const auto planned = static_cast<double>(plans[i].activations + plans[i].workspace);
    const auto added =
        static_cast<double>(seen[i].peak - seen[i].optimizer - plans[i].resident() + plans[i].optimizer);
    EXPECT_NEAR(added, planned, 0.03 * planned) << "rank " << seen[i].rank;
  }
}

// The plan is that of the first expert rank; the other expert ranks receive and hold less.
TEST(DryRun, ImbalancedExpertsMatchThePlanOfTheFullestRank) {
  const Planned layouts[] = {
      {"Ep4", 4, "--expert-model-parallel-size 4 --micro-batch-size 1 --global-batch-size 8"},
      {"Ep2Etp2", 4,
       "--tensor-model-parallel-size 2 --sequence-parallel --expert-model-parallel-size 2 --micro-batch-size 2"},
      {"Pp2Ep4", 8,
       "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2 "
       "--expert-model-parallel-size 4 --expert-tensor-parallel-size 1 --micro-batch-size 1 "
       "--global-batch-size 8 --use-distributed-optimizer"},
  };
  const std::string experts =
      "--num-experts 8 --moe-layer-freq 2 --moe-ffn-hidden-size 3072 --moe-router-topk 4 --vocab-size 2048 ";
  for (const char* more :
       {"", "--moe-token-dispatcher-type alltoall ",
        ("--moe-token-dispatcher-type alltoall --moe-shared-expert-intermediate-size 2048 "
         "--moe-shared-expert-overlap --recompute-granularity selective --recompute-modules moe_act "),
        "--moe-token-dispatcher-type alltoall --recompute-granularity selective --recompute-modules moe ",
        "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1 ",
        "--moe-token-dispatcher-type alltoall --moe-expert-capacity-factor 1.6 "})
    for (const Planned& layout : layouts)
      for (const double imbalance : {1.3, 2.0}) {
        SCOPED_TRACE(fmt::format("{}: {}{}", layout.name, more, imbalance));
        config::Run run = test::planned_run(layout, test::llama(experts + more), "cpu");
        const std::int64_t even = dry_run(run, 0).peak;
        run.model.moe.assumed_imbalance = imbalance;
        const auto seen = dry_run_all(run);
        EXPECT_THAT(plan_mismatches(run, seen), IsEmpty());
        EXPECT_THAT(collective_mismatches(seen), IsEmpty());
        EXPECT_GE(seen[0].peak, even);
        EXPECT_TRUE(imbalance < 2 || seen[0].peak > even);
        expect_planned_activations(planned_memory_of(run, seen), seen);
        for (const DryRun& one : seen) {
          if (one.expert_rank == 0 || one.pipeline_rank > 0) continue;
          EXPECT_LE(one.peak - one.optimizer, seen[0].peak - seen[0].optimizer) << one.rank;
        }
      }
}

// Ranks without the output head have no loss and so no token count to divide by.
TEST(DryRun, PerTokenLossWorksWithoutTheHead) {
  for (const char* more :
       {"", "--context-parallel-size 2 --cp-comm-type all_gather ",
        ("--hybrid-context-parallel --max-seqlen-per-dp-cp-rank 1024 --cp-comm-type "
         "all_gather --reset-position-ids --reset-attention-mask "),
        "--mtp-num-layers 2 ",
        ("--hybrid-context-parallel --max-seqlen-per-dp-cp-rank 1024 --cp-comm-type "
         "all_gather --reset-position-ids --reset-attention-mask --use-megatron-fsdp "
         "--num-experts 4 --expert-model-parallel-size 2 --moe-token-dispatcher-type alltoall "
         "--moe-aux-loss-coeff 0.01 --moe-z-loss-coeff 0.01 ")}) {
    SCOPED_TRACE(more);
    expect_as_planned(test::planned_run(
        {"", 4,
         "--pipeline-model-parallel-size 2 --calculate-per-token-loss --micro-batch-size 1 --global-batch-size 8 "},
        test::llama(more), "cpu"));
  }
}

TEST(DryRun, DetectsAWrongPlan) {
  const config::Run run = test::planned_run(kDryLayouts[0], test::gpt2(""), "cpu");
  std::vector<DryRun> seen = dry_run_all(run);
  seen[0].num_parameters += 1;
  seen[0].peak = seen[0].peak * 104 / 100;
  EXPECT_THAT(plan_mismatches(run, seen), ElementsAre(HasSubstr("parameters"), HasSubstr("peak")));
}

TEST(DryRun, DetectsAMissingCollective) {
  const config::Run run = test::planned_run(kDryLayouts[1], test::gpt2(""), "cpu");
  std::vector<DryRun> seen = dry_run_all(run);
  seen[3].calls.erase(seen[3].calls.begin() + 7);
  EXPECT_FALSE(collective_mismatches(seen).empty());
}

/// Worlds above 16 ranks, with every layout in which ranks may differ.
constexpr Planned kBigWorlds[] = {
    {"Tp4Pp2", 24,
     "--tensor-model-parallel-size 4 --sequence-parallel --pipeline-model-parallel-size 2 --global-batch-size 12"},
    {"Tp4Pp2Distributed", 24,
     "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 --use-distributed-optimizer "
     "--global-batch-size 12"},
    {"DataBeforeStages", 20,
     "--pipeline-model-parallel-size 2 --use-tp-pp-dp-mapping --use-distributed-optimizer --global-batch-size 40"},
    {"Cp5Ring", 20, "--context-parallel-size 5 --cp-comm-type p2p"},
    {"Cp5Gather", 20, "--context-parallel-size 5 --cp-comm-type all_gather --use-distributed-optimizer"},
    {"Cp8TwoLevels", 24,
     "--context-parallel-size 4 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 2 "
     "--tensor-model-parallel-size 2"},
    {"Cp10", 20,
     "--context-parallel-size 10 --cp-comm-type p2p all_gather p2p all_gather --use-distributed-optimizer"},
    {"Instances", 24, "--use-distributed-optimizer --num-distributed-optimizer-instances 3"},
    {"ShardedInstances", 24,
     "--use-megatron-fsdp --num-distributed-optimizer-instances 3 --outer-dp-sharding-strategy optim"},
    {"Sharded", 18, "--use-megatron-fsdp --pipeline-model-parallel-size 2"},
};

constexpr const char* kBigModels[] = {
    "--num-query-groups 2 --group-query-attention ",
    "--num-experts 12 --moe-layer-freq 2 --moe-ffn-hidden-size 40 --sequence-parallel ",
};

/// A model whose sequences and layers divide evenly in every world.
config::Run big_run(const Planned& world, const std::string& more) {
  return test::planned_run(
      world, test::odd("--seq-length 80 --max-position-embeddings 80 --micro-batch-size 1 ") + more, "cpu");
}

std::map<int, std::vector<DryRun>> by_class(const config::Run& run) {
  const std::vector<int> classes = cost::rank_classes(run);
  std::map<int, std::vector<DryRun>> seen;
  for (std::size_t rank = 0; rank < classes.size(); ++rank)
    seen[classes[rank]].push_back(dry_run(run, static_cast<int>(rank)));
  return seen;
}

/// Ranks of one class have equal memory at all times and equal collectives.
void expect_equal_within_classes(const config::Run& run) {
  for (const auto& [number, ranks] : by_class(run))
    for (const DryRun& one : ranks) {
      const DryRun& first = ranks.front();
      SCOPED_TRACE(fmt::format("ranks {} and {}", first.rank, one.rank));
      EXPECT_EQ(one.num_parameters, first.num_parameters);
      EXPECT_EQ(one.parameters, first.parameters);
      EXPECT_EQ(one.gradients, first.gradients);
      EXPECT_EQ(one.optimizer, first.optimizer);
      EXPECT_EQ(one.peak, first.peak);
      EXPECT_EQ(one.optimizer_peak, first.optimizer_peak);
      EXPECT_THAT(comm::differences(first.rank, first.calls, one.rank, one.calls), IsEmpty());
    }
}

TEST(DryRun, RanksOfAClassAreEqual) {
  for (const Planned& world : kBigWorlds)
    for (const char* model : kBigModels) {
      SCOPED_TRACE(fmt::format("{}: {}", world.name, model));
      expect_equal_within_classes(big_run(world, model));
    }
  for (const char* more : {"", "--expert-tensor-parallel-size 1 --expert-model-parallel-size 12",
                           "--moe-token-dispatcher-type alltoall --add-bias-linear"}) {
    SCOPED_TRACE(more);
    const std::string flags = fmt::format(
        "--tensor-model-parallel-size 2 --expert-model-parallel-size 3 --pipeline-model-parallel-size 2 "
        "--global-batch-size 24 --use-distributed-optimizer {}",
        more);
    config::Run run = big_run({"Experts", 24, flags.c_str()}, kBigModels[1]);
    expect_equal_within_classes(run);
    run.model.moe.assumed_imbalance = 1.7;
    expect_equal_within_classes(run);
  }
}

/// For each kind of group (by axes), the largest number of members among the ranks in `seen`.
std::map<std::string, std::size_t> members_seen(const std::vector<DryRun>& seen) {
  std::map<std::string, std::size_t> most;
  for (const DryRun& one : seen)
    for (const comm::LoggedCall& call : one.calls) {
      const auto members = std::ranges::count_if(
          seen, [&](const DryRun& other) { return std::ranges::count(*call.ranks, other.rank) > 0; });
      most[call.axes] = std::max(most[call.axes], static_cast<std::size_t>(members));
    }
  return most;
}

TEST(DryRun, LargeWorldRunsEachClassAndTwoMembersOfEachKindOfGroup) {
  for (const Planned& world : kBigWorlds) {
    SCOPED_TRACE(world.name);
    const config::Run run = big_run(world, kBigModels[0]);
    const auto seen = dry_run_all(run);
    const std::vector<int> classes = cost::rank_classes(run);
    std::size_t representatives = 0;
    int all = 0;
    for (const DryRun& one : seen) {
      all += one.represented_ranks;
      representatives += one.represented_ranks > 0 ? 1 : 0;
    }
    EXPECT_EQ(representatives, std::set(classes.begin(), classes.end()).size());
    EXPECT_EQ(all, run.parallel.world_size);
    for (const auto& [axes, members] : members_seen(seen)) EXPECT_GE(members, 2U) << axes;
    EXPECT_THAT(plan_mismatches(run, seen), IsEmpty());
    EXPECT_THAT(collective_mismatches(seen), IsEmpty());
  }
}

// Of 1,024 ranks: two classes of tensor ranks in each of four stages, and the end ranks of groups.
TEST(DryRun, LargeWorldRunsFewRanks) {
  const config::Run run = test::planned_run(
      {"", 1024,
       "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 4 --use-distributed-optimizer "
       "--micro-batch-size 1 --global-batch-size 128"},
      test::llama(""), "cpu");
  const auto seen = dry_run_all(run);
  EXPECT_LE(seen.size(), 4U * 5);
  EXPECT_THAT(plan_mismatches(run, seen), IsEmpty());
  EXPECT_THAT(collective_mismatches(seen), IsEmpty());
}

// Among eight tensor ranks with two key-value heads, only the fifth counts the second head; among five
// context ranks that gather keys, those in the middle have chunks of two others.
TEST(DryRun, LargeWorldDetectsAFaultInTheMiddleOfAGroup) {
  const Planned middle[] = {
      {"Tensor", 32, "--tensor-model-parallel-size 8 --num-attention-heads 8 --ffn-hidden-size 104"},
      {"Context", 20, "--context-parallel-size 5 --cp-comm-type all_gather"},
  };
  for (const auto& [world, rank] : {std::pair(middle[0], 4), std::pair(middle[1], 2)}) {
    SCOPED_TRACE(world.name);
    const config::Run run = big_run(world, kBigModels[0]);
    std::vector<DryRun> seen = dry_run_all(run);
    const auto found = std::ranges::find(seen, rank, &DryRun::rank);
    ASSERT_NE(found, seen.end());
    found->calls.erase(found->calls.begin() + 7);
    EXPECT_FALSE(collective_mismatches(seen).empty());
  }
}

}  // namespace
}  // namespace colonnade::job
