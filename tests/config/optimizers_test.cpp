// The table of optimizers: names, states and settings.
#include "colonnade/config/optimizers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "colonnade/config/parse.h"
#include "colonnade/config/schema.h"

namespace colonnade::config {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Optimizers, NamesAreTheChoicesOfTheFlag) {
  const Setting& flag = setting("optimizer");
  ASSERT_EQ(flag.choices.size(), optimizers().size() + 1);
  EXPECT_EQ(flag.choices.back(), "dist_muon");
  for (std::size_t i = 0; i < optimizers().size(); ++i) {
    const OptimizerTraits& traits = optimizers()[i];
    EXPECT_EQ(flag.choices[i], traits.name);
    EXPECT_EQ(&traits_of(traits.kind), &traits);
    config::Run run;
    set(run, "optimizer", traits.name);
    EXPECT_EQ(run.optimizer.optimizer, traits.kind);
  }
}

TEST(Optimizers, DistMuonIsMuonWithShardedStates) {
  config::Run run;
  set(run, "optimizer", "muon");
  EXPECT_FALSE(run.parallel.use_distributed_optimizer);
  set(run, "optimizer", "dist_muon");
  EXPECT_EQ(run.optimizer.optimizer, OptimizerKind::kMuon);
  EXPECT_TRUE(run.parallel.use_distributed_optimizer);
}

TEST(Optimizers, StatesHaveTheNamesOfCheckpoints) {
  Optimizer settings;
  EXPECT_THAT(optimizer_states(OptimizerKind::kAdam, settings), ElementsAre("exp_avg", "exp_avg_sq"));
  EXPECT_THAT(optimizer_states(OptimizerKind::kSgd, settings), ElementsAre("exp_avg"));
  settings.sgd_momentum = 0;
  EXPECT_THAT(optimizer_states(OptimizerKind::kAdam, settings), ElementsAre("exp_avg", "exp_avg_sq"));
  EXPECT_THAT(optimizer_states(OptimizerKind::kSgd, settings), IsEmpty());
  EXPECT_THAT(optimizer_states(OptimizerKind::kLion, settings), ElementsAre("exp_avg"));
}

TEST(Optimizers, ReadTheirSettings) {
  std::vector<std::string_view> keys;
  for (const OptimizerSetting& s : optimizer_settings()) {
    EXPECT_EQ(setting(s.key).key, s.key);
    keys.push_back(s.key);
  }
  EXPECT_THAT(keys, ElementsAre("adam_beta1", "adam_beta2", "adam_eps", "sgd_momentum", "lion_beta1",
                                "lion_beta2", "muon_momentum", "muon_nesterov", "muon_split_qkv",
                                "muon_split_gate_up", "muon_scale_mode", "muon_extra_scale_factor",
                                "muon_coefficient_type", "muon_num_ns_steps", "muon_fp32_matmul_prec",
                                "muon_tp_mode", "muon_scalar_optimizer"));
  const Optimizer adam, sgd{.optimizer = OptimizerKind::kSgd}, muon{.optimizer = OptimizerKind::kMuon};
  EXPECT_TRUE(optimizer_reads(adam, "adam_eps"));
  EXPECT_TRUE(optimizer_reads(sgd, "sgd_momentum"));
  EXPECT_FALSE(optimizer_reads(adam, "sgd_momentum"));
  EXPECT_FALSE(optimizer_reads(sgd, "adam_eps"));
  EXPECT_TRUE(optimizer_reads(Optimizer{.optimizer = OptimizerKind::kLion}, "lion_beta2"));
  EXPECT_FALSE(optimizer_reads(adam, "muon_momentum"));
  EXPECT_TRUE(optimizer_reads(muon, "muon_momentum"));
  EXPECT_TRUE(optimizer_reads(muon, "adam_eps")) << "of the scalar optimizer";
  EXPECT_FALSE(optimizer_reads(muon, "sgd_momentum"));
}

}  // namespace
}  // namespace colonnade::config
