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
  ASSERT_EQ(flag.choices.size(), optimizers().size());
  for (std::size_t i = 0; i < optimizers().size(); ++i) {
    const OptimizerTraits& traits = optimizers()[i];
    EXPECT_EQ(flag.choices[i], traits.name);
    EXPECT_EQ(&traits_of(traits.kind), &traits);
    config::Run run;
    set(run, "optimizer", traits.name);
    EXPECT_EQ(run.optimizer.optimizer, traits.kind);
  }
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
  EXPECT_THAT(
      keys, ElementsAre("adam_beta1", "adam_beta2", "adam_eps", "sgd_momentum", "lion_beta1", "lion_beta2"));
  EXPECT_TRUE(optimizer_reads(OptimizerKind::kAdam, "adam_eps"));
  EXPECT_TRUE(optimizer_reads(OptimizerKind::kSgd, "sgd_momentum"));
  EXPECT_TRUE(optimizer_reads(OptimizerKind::kLion, "lion_beta2"));
  EXPECT_FALSE(optimizer_reads(OptimizerKind::kAdam, "sgd_momentum"));
  EXPECT_FALSE(optimizer_reads(OptimizerKind::kSgd, "adam_eps"));
}

}  // namespace
}  // namespace colonnade::config
