// Layout of flat buffers: order, alignment, buckets, and shards of the distributed optimizer.
#include "colonnade/layout/buckets.h"

#include <gtest/gtest.h>

#include "colonnade/base/error.h"
#include "colonnade/layout/params/gpt.h"
#include "support/presets.h"

namespace colonnade::layout {
namespace {

using Kind = ExtraReduction;

TEST(Buckets, AreInBackwardOrderWithOneExtraReductionEach) {
  const std::vector<std::vector<FlatParam>> chunks{
      {{100, Kind::kStages}, {10, Kind::kTensor}, {70}, {20, Kind::kSharedRows}, {30}, {40, Kind::kTensor}},
      {{5, Kind::kTensor}}};
  const FlatLayout layout = lay_out(chunks, 1'000'000, {});
  std::vector<std::size_t> order;
  for (const PlacedParam& e : layout.entries) order.push_back(e.index);
  EXPECT_EQ(order, (std::vector<std::size_t>{4, 2, 5, 1, 3, 0, 0}));
  std::vector<std::int64_t> ends;
  std::vector<Kind> kinds;
  for (const FlatBucket& b : layout.buckets) {
    ends.push_back(b.end);
    kinds.push_back(b.reduction);
  }
  // 30 and 70 from 64 on fill 134, up to 256; 40 and 10 from 64 on fill 74, up to 128; and so on.
  EXPECT_EQ(ends, (std::vector<std::int64_t>{256, 384, 512, 640, 768}));
  EXPECT_EQ(kinds,
            (std::vector<Kind>{Kind::kNone, Kind::kTensor, Kind::kSharedRows, Kind::kStages, Kind::kTensor}));
  EXPECT_EQ(layout.buckets[4].chunk, 1);
  EXPECT_EQ(layout.size, 768);
}

TEST(Buckets, CloseWhenFullAndShardEvenly) {
  const std::vector<std::vector<FlatParam>> chunks{{{64}, {64}, {64}, {200}, {1}}};
  const FlatLayout layout = lay_out(chunks, 128, {3, 1});
  ASSERT_EQ(layout.buckets.size(), 3U) << "1 and 200, two of 64, the last of 64";
  EXPECT_EQ(layout.buckets[0].last, 2U);
  for (const FlatBucket& b : layout.buckets) EXPECT_EQ((b.end - b.begin) % (3 * 128), 0);
  std::size_t next = 0;
  for (const FlatBucket& b : layout.buckets) {
    EXPECT_EQ(b.first, next);
    next = b.last;
  }
  EXPECT_EQ(next, layout.entries.size());
}

TEST(Buckets, DeferredGradientsAreSeparate) {
  const std::vector<std::vector<FlatParam>> chunks{{{.numel = 64, .deferred = true},
                                                    {64},
                                                    {.numel = 64, .unit = 1, .deferred = true},
                                                    {.numel = 64, .unit = 1}}};
  const FlatLayout layout = lay_out(chunks, 1'000'000, {});
  std::vector<std::size_t> order;
  for (const PlacedParam& e : layout.entries) order.push_back(e.index);
  EXPECT_EQ(order, (std::vector<std::size_t>{3, 1, 2, 0}));
  ASSERT_EQ(layout.buckets.size(), 4U);
  for (std::size_t b = 0; b < 4; ++b) EXPECT_EQ(layout.buckets[b].deferred, b >= 2);
}

TEST(Buckets, GradientsOfMatricesMayBeDeferred) {
  const LayerParams layer = layer_params(test::llama3_8b(), {}, 0);
  EXPECT_TRUE(can_defer_wgrad(mixer_of<AttentionParams>(layer).qkv.weight));
  EXPECT_TRUE(can_defer_wgrad(mixer_of<MlpParams>(layer).fc2.weight));
  EXPECT_FALSE(can_defer_wgrad(layer.sublayers[0].norm->weight));
  EXPECT_TRUE(can_defer_wgrad({.name = "experts", .shape = {8, 4, 2}, .param_group = ParamGroup::kExpert}));
  EXPECT_FALSE(
      can_defer_wgrad({.name = "biases of experts", .shape = {8, 4}, .param_group = ParamGroup::kExpert}));
}

TEST(Buckets, TheLargestShardExcludesPadding) {
  const FlatLayout layout = lay_out({{{100}}}, 1'000'000, {2, 1});  // 100 of 128: 64 and 36
  EXPECT_EQ(largest_shard(layout, {}), 100);
  EXPECT_EQ(largest_shard(layout, {2, 1}), 64);
}

TEST(Buckets, ExpertsAreSeparateAndShardedOverTheirOwnReplicas) {
  const std::vector<std::vector<FlatParam>> chunks{
      {{100}, {.numel = 300, .param_group = ParamGroup::kExpert}, {10}}};
  const FlatLayout layout = lay_out(chunks, 1'000'000, {3, 2});
  ASSERT_EQ(layout.buckets.size(), 2U);
  EXPECT_EQ(layout.buckets[0].param_group, ParamGroup::kDense);
  EXPECT_EQ(layout.buckets[0].end, 3 * 128) << "10, and 100 from 64 on";
  EXPECT_EQ(layout.buckets[1].param_group, ParamGroup::kExpert);
  EXPECT_EQ(layout.buckets[1].end - layout.buckets[1].begin, 384);
  // Dense: 10 and 64, or 36; experts: 192 of 300.
  EXPECT_EQ(largest_shard(layout, {3, 2}), 10 + 64 + 192);
}

TEST(Buckets, SizesAreFlagsOrMegatronsDefault) {
  config::Parallel p;
  EXPECT_EQ(bucket_elements(p, 1, 100), 40'000'000);
  EXPECT_EQ(bucket_elements(p, 64, 100), 64'000'000);
  p.ddp_bucket_size = 7;
  EXPECT_EQ(bucket_elements(p, 64, 100), 7);
  p.ddp_bucket_size = 0;
  p.ddp_num_buckets = 3;
  EXPECT_EQ(bucket_elements(p, 64, 100), 33);
  EXPECT_EQ(bucket_elements(p, 64, 2), 1);
}

TEST(Buckets, ArePaddedForHighNcclBandwidth) {
  config::Parallel p;
  const auto size = [&p](const ReplicaCounts& parts) {
    return lay_out({{{100}}}, 1'000'000, parts, bucket_alignment(p)).size;
  };
  EXPECT_EQ(size({3, 1}), 384);
  p.ddp_pad_buckets_for_high_nccl_busbw = true;
  EXPECT_EQ(size({3, 1}), 3 * 65'536);
  EXPECT_EQ(size({4, 1}), 65'536);
}

TEST(Buckets, ReplicasHaveTwoLevels) {
  config::Parallel p;
  p.world_size = 32;
  p.tensor_model_parallel_size = 2;
  p.context_parallel_size = 2;
  p.expert_model_parallel_size = 4;
  p.expert_tensor_parallel_size = 1;
  p.num_distributed_optimizer_instances = 4;
  ReplicaLevels levels = replica_levels(p, Mesh(p));
  EXPECT_EQ(levels.inner.of(ParamGroup::kDense), 4) << "dp 8 x cp 2 in 4 instances";
  EXPECT_EQ(levels.inner.of(ParamGroup::kExpert), 2) << "edp 8 in 4 instances";
  EXPECT_EQ(levels.outer.of(ParamGroup::kDense), 4);
  EXPECT_EQ(levels.shard_counts().of(ParamGroup::kDense), 4);
  p.outer_dp_sharding_strategy = "optim";
  levels = replica_levels(p, Mesh(p));
  EXPECT_EQ(levels.shard_counts().of(ParamGroup::kDense), 16);
  EXPECT_EQ(levels.shard_counts().of(ParamGroup::kExpert), 8);
}

TEST(Buckets, ExpertsHaveNoExtraReduction) {
  ParamSpec spec{.name = "experts", .shape = {4, 2}, .param_group = ParamGroup::kExpert};
  EXPECT_EQ(extra_reduction(spec, shard(spec, Position()), 2), Kind::kNone);
  spec.partial = {Axis::kEtp};
  EXPECT_THROW(extra_reduction(spec, shard(spec, Position()), 1), Error);
}

TEST(Buckets, TheSpecDeterminesTheExtraReduction) {
  config::Parallel p = test::layout(16, 16, 1);
  p.sequence_parallel = true;
  const LayerParams layer = layer_params(test::llama3_8b(), p, 0);
  const auto kind = [](const ParamSpec& spec, int tp) {
    return extra_reduction(spec, shard(spec, Position::on(Axis::kTp, 0, tp)), tp);
  };
  EXPECT_EQ(kind(layer.sublayers[0].norm->weight, 16), Kind::kTensor);
  EXPECT_EQ(kind(mixer_of<AttentionParams>(layer).qkv.weight, 16), Kind::kSharedRows)
      << "16 ranks, 8 key/value heads";
  EXPECT_EQ(kind(mixer_of<AttentionParams>(layer).qkv.weight, 8), Kind::kNone);
  EXPECT_EQ(kind(mixer_of<MlpParams>(layer).fc2.weight, 16), Kind::kNone);
  EXPECT_EQ(kind(layer.sublayers[0].norm->weight, 1), Kind::kNone);
  const LayerParams unsharded = layer_params(test::llama3_8b(), test::layout(16, 16, 1), 0);
  EXPECT_EQ(kind(unsharded.sublayers[0].norm->weight, 16), Kind::kNone);
}

}  // namespace
}  // namespace colonnade::layout
