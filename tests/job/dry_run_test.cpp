// Whole steps of the real code on meta tensors: what they hold is what was planned, and ranks understand each
// other under every kind of parallelism.
#include "colonnade/job/dry_run.h"

#include <gmock/gmock.h>

#include "colonnade/plan/memory.h"
#include "job/planned.h"

namespace colonnade::job {
namespace {

using test::Planned;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr Planned kLayouts[] = {
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

std::vector<DryRun> all_of(const config::Run& run) {
  std::vector<DryRun> seen;
  for (const int rank : ranks_of_all_classes(run)) seen.push_back(dry_run(run, rank));
  return seen;
}

void expect_as_planned(const config::Run& run) {
  const auto seen = all_of(run);
  EXPECT_THAT(broken_promises(run, seen), IsEmpty());
  EXPECT_THAT(broken_talk(seen), IsEmpty());
}

TEST(DryRun, HoldsWhatWasPlannedAndRanksUnderstandEachOther) {
  for (const Planned& layout : kLayouts) {
    SCOPED_TRACE(layout.name);
    expect_as_planned(test::planned_run(layout, test::llama(""), "cpu"));
    expect_as_planned(test::planned_run(layout, test::gpt2(""), "cpu"));
  }
}

/// Two ranks for each sequence, and sums over data ranks and stages beside them.
TEST(DryRun, OfContextRanksOfEveryKind) {
  for (
      const char* kind :
      {"--cp-comm-type p2p", "--cp-comm-type all_gather", "--cp-comm-type a2a",
       "--cp-comm-type a2a+p2p --context-parallel-size 4 --hierarchical-context-parallel-sizes 2 2",
       ("--cp-comm-type p2p --hybrid-context-parallel --max-seqlen-per-dp-cp-rank 1024 --reset-attention-mask "
        "--reset-position-ids --calculate-per-token-loss")}) {
    SCOPED_TRACE(kind);
    const std::string flags = fmt::format(
        "--context-parallel-size 2 --pipeline-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 8 "
        "--use-distributed-optimizer {}",
        kind);
    expect_as_planned(test::planned_run({"", 8, flags.c_str()}, test::llama(""), "cpu"));
  }
}

TEST(DryRun, OfSumsThatNoOrderRounds) {
  for (const Planned& layout : {kLayouts[0], kLayouts[1]}) {
    SCOPED_TRACE(layout.name);
    expect_as_planned(test::planned_run(layout, test::llama("--deterministic-mode "), "cpu"));
  }
}

TEST(DryRun, OfExpertsExchangesEqualShares) {
  const std::string experts =
      "--num-experts 8 --moe-layer-freq 2 --moe-ffn-hidden-size 1024 --moe-aux-loss-coeff 0.01 --moe-z-loss-coeff "
      "0.001 --moe-router-load-balancing-type aux_loss --moe-router-topk 2 ";
  for (const char* more : {"", "--moe-token-dispatcher-type alltoall",
                           "--moe-expert-capacity-factor 0.75 --moe-input-jitter-eps 0.1",
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

// Ranks without a head know no loss whose tokens they could divide by.
TEST(DryRun, OfALossPerTokenNeedsNoHead) {
  for (const char* more : {"", "--context-parallel-size 2 --cp-comm-type all_gather ",
                           ("--hybrid-context-parallel --max-seqlen-per-dp-cp-rank 1024 --cp-comm-type "
                            "all_gather --reset-position-ids --reset-attention-mask ")}) {
    SCOPED_TRACE(more);
    expect_as_planned(test::planned_run(
        {"", 4,
         "--pipeline-model-parallel-size 2 --calculate-per-token-loss --micro-batch-size 1 --global-batch-size 8 "},
        test::llama(more), "cpu"));
  }
}

TEST(DryRun, SeesAPlanThatIsWrong) {
  const config::Run run = test::planned_run(kLayouts[0], test::gpt2(""), "cpu");
  std::vector<DryRun> seen = all_of(run);
  seen[0].num_parameters += 1;
  seen[0].peak = seen[0].peak * 104 / 100;
  EXPECT_THAT(broken_promises(run, seen), ElementsAre(HasSubstr("parameters"), HasSubstr("peak")));
}

TEST(DryRun, SeesARankThatLeavesACallOut) {
  const config::Run run = test::planned_run(kLayouts[1], test::gpt2(""), "cpu");
  std::vector<DryRun> seen = all_of(run);
  seen[3].calls.erase(seen[3].calls.begin() + 7);
  EXPECT_FALSE(broken_talk(seen).empty());
}

TEST(DryRun, OfABigWorldLooksAtTwoRanksOfEachStage) {
  const config::Run run = test::planned_run(
      {"", 64, "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 4 --micro-batch-size 1 "},
      test::llama(""), "cpu");
  EXPECT_THAT(ranks_of_all_classes(run), ElementsAre(0, 15, 16, 31, 32, 47, 48, 63));
}

}  // namespace
}  // namespace colonnade::job
