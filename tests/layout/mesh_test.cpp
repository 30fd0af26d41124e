// Rank groups against Megatron's RankGenerator, and general properties of meshes.
#include "colonnade/layout/mesh.h"

#include <gtest/gtest.h>

#include <chrono>
#include <set>

#include "colonnade/base/error.h"

namespace colonnade::layout {
namespace {

using Groups = std::vector<std::vector<int>>;

config::Parallel sizes(int world, int tp, int cp, int pp) {
  config::Parallel p;
  p.world_size = world;
  p.tensor_model_parallel_size = tp;
  p.context_parallel_size = cp;
  p.pipeline_model_parallel_size = pp;
  return p;
}

Groups first(Groups groups, std::size_t count) {
  groups.resize(count);
  return groups;
}

// Values recorded from Megatron's RankGenerator.
TEST(Mesh, DenseGroupsAreMegatrons) {
  const Mesh mesh(sizes(16, 2, 2, 2));
  EXPECT_EQ(first(mesh.groups({Axis::kCp}), 5), (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}}));
  EXPECT_EQ(first(mesh.groups({Axis::kDp}), 5), (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}, {8, 12}}));
  EXPECT_EQ(mesh.groups({Axis::kPp}),
            (Groups{{0, 8}, {1, 9}, {2, 10}, {3, 11}, {4, 12}, {5, 13}, {6, 14}, {7, 15}}));
  EXPECT_EQ(mesh.groups({Axis::kDp, Axis::kCp}),
            (Groups{{0, 2, 4, 6}, {1, 3, 5, 7}, {8, 10, 12, 14}, {9, 11, 13, 15}}));
  EXPECT_EQ(first(mesh.groups({Axis::kTp, Axis::kPp}), 2), (Groups{{0, 1, 8, 9}, {2, 3, 10, 11}}));
  EXPECT_EQ(mesh.groups({Axis::kTp, Axis::kDp, Axis::kCp}),
            (Groups{{0, 1, 2, 3, 4, 5, 6, 7}, {8, 9, 10, 11, 12, 13, 14, 15}}));
}

TEST(Mesh, ExpertGroupsAreMegatrons) {
  config::Parallel p = sizes(16, 2, 2, 2);
  p.expert_tensor_parallel_size = 1;
  p.expert_model_parallel_size = 4;
  const Mesh mesh(p);
  EXPECT_EQ(mesh.size(Axis::kEdp), 2);
  EXPECT_EQ(first(mesh.groups({Axis::kEp}), 2), (Groups{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(first(mesh.groups({Axis::kEdp}), 2), (Groups{{0, 4}, {1, 5}}));
  EXPECT_EQ(mesh.groups({Axis::kEtp, Axis::kEp, Axis::kPp}),
            (Groups{{0, 1, 2, 3, 8, 9, 10, 11}, {4, 5, 6, 7, 12, 13, 14, 15}}));
}

TEST(Mesh, TpPpDpOrderHasDataOutermost) {
  config::Parallel p = sizes(16, 2, 1, 4);
  p.use_tp_pp_dp_mapping = true;
  const Mesh mesh(p);
  EXPECT_EQ(mesh.groups({Axis::kDp}),
            (Groups{{0, 8}, {1, 9}, {2, 10}, {3, 11}, {4, 12}, {5, 13}, {6, 14}, {7, 15}}));
  EXPECT_EQ(mesh.groups({Axis::kPp}), (Groups{{0, 2, 4, 6}, {1, 3, 5, 7}, {8, 10, 12, 14}, {9, 11, 13, 15}}));
}

TEST(Mesh, GroupsPartitionTheWorldAndIndexFindsTheRank) {
  for (const bool data_last : {false, true}) {
    config::Parallel p = sizes(48, 2, 3, 2);
    p.expert_tensor_parallel_size = 1;
    p.expert_model_parallel_size = 6;
    p.use_tp_pp_dp_mapping = data_last;
    const Mesh mesh(p);
    for (const AxisSet axes :
         {AxisSet{Axis::kTp}, AxisSet{Axis::kTp, Axis::kPp}, AxisSet{Axis::kDp, Axis::kPp},
          AxisSet{Axis::kEp, Axis::kEdp}, AxisSet{Axis::kCp, Axis::kTp, Axis::kDp}, AxisSet{}}) {
      std::set<int> seen;
      for (const auto& group : mesh.groups(axes)) {
        EXPECT_TRUE(std::is_sorted(group.begin(), group.end()));
        ASSERT_EQ(static_cast<int>(group.size()), mesh.size(axes)) << name(axes);
        for (std::size_t i = 0; i < group.size(); ++i) {
          EXPECT_TRUE(seen.insert(group[i]).second) << "rank " << group[i] << " twice in " << name(axes);
          EXPECT_EQ(mesh.peers(group[i], axes), group);
          EXPECT_EQ(mesh.index(group[i], axes), static_cast<int>(i));
        }
      }
      EXPECT_EQ(seen.size(), 48U);
    }
  }
}

TEST(Mesh, HundredThousandRanksAreFast) {
  const auto begin = std::chrono::steady_clock::now();
  const Mesh mesh(sizes(102400, 8, 2, 16));
  EXPECT_EQ(mesh.groups({Axis::kDp, Axis::kCp}).size(), 128U);
  EXPECT_EQ(mesh.peers(102399, {Axis::kPp}).front(), 6399);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
}

TEST(Mesh, RejectsInvalidSizes) {
  EXPECT_THROW(Mesh(sizes(12, 8, 1, 1)), ConfigError);
  EXPECT_THROW(Mesh(sizes(8, 0, 1, 1)), ConfigError);
  EXPECT_THROW(Mesh(sizes(0, 1, 1, 1)), ConfigError);
  EXPECT_THROW(Mesh(sizes(8, 65536, 65536, 1)), ConfigError);
  config::Parallel p = sizes(8, 2, 1, 2);
  p.expert_model_parallel_size = 3;
  EXPECT_THROW(Mesh{p}, ConfigError);
  p.expert_model_parallel_size = 2;
  EXPECT_EQ(Mesh(p).size(Axis::kEdp), 1);
  p.use_tp_pp_dp_mapping = true;  // the two factorings would have different pipeline groups
  EXPECT_THROW(Mesh{p}, ConfigError);
  p.pipeline_model_parallel_size = 1;
  EXPECT_EQ(Mesh(p).size(Axis::kEdp), 2);
}

TEST(Mesh, GivenSizesNeedNoWorld) {
  config::Parallel p = sizes(1, 6, 2, 2);
  p.expert_model_parallel_size = 4;
  EXPECT_EQ(size_of(p, {}), 1);
  EXPECT_EQ(size_of(p, {Axis::kTp, Axis::kPp, Axis::kEp}), 48);
  EXPECT_EQ(size_of(p, kDispatchAxes), 24) << "etp is tp by default";
  EXPECT_EQ(smallest_world(p), 48);
  p.expert_tensor_parallel_size = 5;
  EXPECT_EQ(size_of(p, kDispatchAxes), 20);
  EXPECT_EQ(smallest_world(p), 120) << "lcm(6 * 2 * 2, 5 * 4 * 2)";
  EXPECT_THROW((void)size_of(p, {Axis::kDp}), Error);
  EXPECT_THROW((void)size_of(p, {Axis::kEdp}), Error);
}

TEST(Mesh, RejectsAxesOfTwoFactorings) {
  const Mesh mesh(sizes(8, 2, 1, 2));
  EXPECT_THROW((void)mesh.peers(0, {Axis::kTp, Axis::kEp}), Error);
  EXPECT_THROW((void)mesh.coord(8, Axis::kTp), Error);
}

TEST(Mesh, NamesAreMegatrons) {
  EXPECT_EQ(name(AxisSet{Axis::kCp, Axis::kDp}), "dp-cp");
  EXPECT_EQ(name(AxisSet{Axis::kCp, Axis::kDp, Axis::kTp}), "tp-dp-cp");
  EXPECT_EQ(name(AxisSet{Axis::kPp, Axis::kTp}), "tp-pp");
}

}  // namespace
}  // namespace colonnade::layout
