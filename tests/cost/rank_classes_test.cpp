// Rank classes: a rank that differs inside a group has its own class, and equal ranks share one.
#include "colonnade/cost/rank_classes.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "cost/ideal.h"

namespace colonnade::cost {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

/// Llama 3 8B with a vocabulary that needs no padding, with the distributed optimizer.
config::Run llama(int world, int tp, int pp, int cp = 1) {
  config::Run run = test::run_of(test::llama3_8b(), test::layout(world, tp, pp), 8192, 1, 4 * world);
  run.parallel.context_parallel_size = cp;
  run.parallel.use_distributed_optimizer = true;
  run.parallel.sequence_parallel = tp > 1;
  run.model.vocab_size = 131'072;
  return run;
}

std::vector<int> first_ranks(const std::vector<int>& classes, std::size_t count) {
  return {classes.begin(), classes.begin() + static_cast<std::ptrdiff_t>(count)};
}

std::size_t num_classes(const std::vector<int>& classes) {
  return std::set(classes.begin(), classes.end()).size();
}

// The first tensor rank counts replicated parameters.
TEST(RankClasses, OfTensorAndDataRanks) {
  const std::vector<int> classes = rank_classes(llama(64, 4, 2));
  EXPECT_THAT(first_ranks(classes, 8), ElementsAre(0, 1, 1, 1, 0, 1, 1, 1));
  EXPECT_EQ(num_classes(classes), 2 * 2);
  EXPECT_EQ(classes[0], classes[28]);
  EXPECT_NE(classes[0], classes[32]) << "another stage";
}

TEST(RankClasses, FirstTensorRankOfASharedHeadCountsIt) {
  config::Run run = llama(32, 8, 1);
  run.model.num_query_groups = 2;
  EXPECT_THAT(first_ranks(rank_classes(run), 8), ElementsAre(0, 1, 1, 1, 2, 1, 1, 1));
}

TEST(RankClasses, LastTensorRankHasPaddedRows) {
  config::Run run = llama(32, 4, 1);
  run.model.vocab_size -= 100;
  EXPECT_THAT(first_ranks(rank_classes(run), 4), ElementsAre(0, 1, 1, 2));
}

TEST(RankClasses, DependOnOptimizerShards) {
  config::Run run = llama(32, 1, 1);
  run.parallel.use_distributed_optimizer = false;
  std::vector<int> classes = rank_classes(run);
  EXPECT_EQ(classes[0], 0);
  EXPECT_THAT(std::vector(classes.begin() + 1, classes.end()), Each(1)) << "the first replica counts";
  run.parallel.use_distributed_optimizer = true;
  EXPECT_THAT(rank_classes(run), Each(0));
  run.model.hidden_size = 72;  // indivisible sizes: shards end with padding
  run.model.vocab_size = 517;
  run.model.make_vocab_size_divisible_by = 1;
  classes = rank_classes(run);
  EXPECT_GT(num_classes(classes), 1U);
  EXPECT_NE(classes.front(), classes.back());
}

// The ranks of the first instance count parameters; with optimizer states sharded across instances all ranks
// do.
TEST(RankClasses, OfInstances) {
  config::Run run = llama(32, 1, 1);
  run.parallel.num_distributed_optimizer_instances = 4;
  const std::vector<int> classes = rank_classes(run);
  EXPECT_THAT(std::vector(classes.begin(), classes.begin() + 8), Each(0));
  EXPECT_THAT(std::vector(classes.begin() + 8, classes.end()), Each(1));
  run.parallel.outer_dp_sharding_strategy = "optim";
  run.parallel.use_megatron_fsdp = true;
  EXPECT_THAT(rank_classes(run), Each(0));
}

// In a ring a rank meets keys of higher ranks, of both, or of lower ranks, and neighbours alternate in
// sending first. The last but one rank meets its only higher rank in the last step, which overlaps no hop.
// Gathered keys form two blocks of different sizes.
TEST(RankClasses, OfContextParallelRanks) {
  config::Run run = llama(32, 1, 1, 8);
  EXPECT_THAT(first_ranks(rank_classes(run), 10), ElementsAre(0, 1, 2, 1, 2, 1, 3, 4, 0, 1));
  run.parallel.cp_comm_type = {"all_gather"};
  EXPECT_THAT(first_ranks(rank_classes(run), 10), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 0, 1));
  run.parallel.cp_comm_type = {"a2a"};
  EXPECT_THAT(rank_classes(run), Each(0));
  run.parallel.cp_comm_type = {"a2a+p2p"};
  run.parallel.hierarchical_context_parallel_sizes = {2, 4};
  EXPECT_THAT(first_ranks(rank_classes(run), 9), ElementsAre(0, 0, 1, 1, 2, 2, 3, 3, 0));
  run.parallel.cp_comm_type = {"a2a", "p2p"};
  EXPECT_EQ(num_classes(rank_classes(run)), 5U) << "each layer has its own kind";
}

TEST(RankClasses, OfBalancedExperts) {
  config::Run run = test::run_of(test::deepseek_v3(), test::layout(256, 1, 1), 4096, 1, 512);
  run.parallel.use_distributed_optimizer = true;
  run.parallel.expert_model_parallel_size = 16;
  EXPECT_THAT(rank_classes(run), Each(0));
  run.parallel.expert_tensor_parallel_size = 2;
  EXPECT_EQ(num_classes(rank_classes(run)), 1U)
      << "expert parameters are fully sharded over expert tensor ranks";
}

TEST(RankClasses, MostLoadedExpertRankHasItsOwnClass) {
  config::Run run = test::run_of(test::deepseek_v3(), test::layout(64, 1, 1), 4096, 1, 512);
  run.parallel.use_distributed_optimizer = true;
  run.parallel.expert_model_parallel_size = 16;
  run.model.moe.assumed_imbalance = 2;
  const std::vector<int> classes = rank_classes(run);
  for (std::size_t rank = 0; rank < classes.size(); ++rank) EXPECT_EQ(classes[rank], rank % 16 == 0 ? 0 : 1);
}

TEST(RankClasses, AreFewForALargeWorld) {
  config::Run run = llama(65'536, 8, 4, 4);
  EXPECT_LE(num_classes(rank_classes(run)), 4U * 2 * 4);
}

}  // namespace
}  // namespace colonnade::cost
