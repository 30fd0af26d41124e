// Every parameter belongs to the first optimizer group whose pattern matches it.
#include "colonnade/layout/optimizer_groups.h"

#include <gtest/gtest.h>

#include "colonnade/base/error.h"

namespace colonnade::layout {
namespace {

ParamSpec matrix(const char* name) { return {.name = name, .shape = {4, 3}}; }
ParamSpec vector(const char* name) { return {.name = name, .shape = {4}, .weight_decay = false}; }

TEST(OptimizerGroups, PatternIsAGlobOverTheGlobalName) {
  const ParamSpec spec = matrix("decoder.layers.3.mlp.linear_fc1.weight");
  for (const char* names : {"*", "decoder.*", "*.mlp.*", "decoder.layers.[0-3].*", "*.weight",
                            "decoder.layers.?.mlp.linear_fc1.weight"})
    EXPECT_TRUE(matches({.names = names}, spec)) << names;
  for (const char* names : {"", "decoder", "mlp.*", "*.bias", "decoder.layers.[0-2].*", "*.linear_fc2.*"})
    EXPECT_FALSE(matches({.names = names}, spec)) << names;
}

TEST(OptimizerGroups, PropertyRestrictsThePattern) {
  EXPECT_TRUE(matches({.property = ParamProperty::kWeightDecay}, matrix("a")));
  EXPECT_FALSE(matches({.property = ParamProperty::kWeightDecay}, vector("a")));
  EXPECT_TRUE(matches({.property = ParamProperty::kOneDimensional}, vector("a")));
  EXPECT_FALSE(matches({.property = ParamProperty::kOneDimensional}, matrix("a")));
  EXPECT_FALSE(matches({.names = "b", .property = ParamProperty::kOneDimensional}, vector("a")));
}

TEST(OptimizerGroups, BiasesAndNormsDoNotDecay) {
  for (const bool qk : {false, true}) {
    const auto groups = optimizer_groups({.apply_wd_to_qk_layernorm = qk});
    const auto decay = [&](const ParamSpec& spec) {
      return groups[first_match(groups, spec)].weight_decay_multiplier;
    };
    EXPECT_EQ(decay(matrix("embedding.word_embeddings.weight")), 1);
    EXPECT_EQ(decay(vector("decoder.final_layernorm.weight")), 0);
    EXPECT_EQ(decay(vector("decoder.layers.0.self_attention.q_layernorm.weight")), qk ? 1 : 0);
    EXPECT_EQ(decay(vector("decoder.layers.0.self_attention.k_layernorm.weight")), qk ? 1 : 0);
    EXPECT_EQ(decay(vector("decoder.layers.0.self_attention.k_layernorm.bias")), 0);
    for (const OptimizerGroup& group : groups) {
      EXPECT_FALSE(group.optimizer);
      EXPECT_EQ(group.lr_multiplier, 1);
      EXPECT_FALSE(group.frozen);
    }
  }
}

TEST(OptimizerGroups, FirstMatchWins) {
  const auto groups = optimizer_groups({}, {{.names = "*.bias", .lr_multiplier = 2},
                                            {.names = "decoder.*", .frozen = true},
                                            {.names = "*", .property = ParamProperty::kOneDimensional}});
  EXPECT_EQ(first_match(groups, vector("decoder.a.bias")), 0U);
  EXPECT_EQ(first_match(groups, matrix("decoder.a.weight")), 1U);
  EXPECT_EQ(first_match(groups, vector("norm.weight")), 2U);
  EXPECT_EQ(first_match(groups, matrix("embedding.word_embeddings.weight")), 3U);
  EXPECT_EQ(groups[3], optimizer_groups({}).front());
}

TEST(OptimizerGroups, WordEmbeddingsAndOutputLayerHaveTheDecoupledSchedule) {
  const auto groups = optimizer_groups({});
  const auto schedule = [&](const ParamSpec& spec) { return groups[first_match(groups, spec)].schedule; };
  for (const char* name :
       {"embedding.word_embeddings.weight", "output_layer.weight", "lm_head.output_layer.weight"})
    EXPECT_EQ(schedule(matrix(name)), LrSchedule::kDecoupled) << name;
  for (const char* name : {"embedding.position_embeddings.weight", "decoder.layers.0.mlp.linear_fc1.weight"})
    EXPECT_EQ(schedule(matrix(name)), LrSchedule::kMain) << name;
  EXPECT_EQ(schedule(vector("output_layer.bias")), LrSchedule::kMain);
}

TEST(OptimizerGroups, FrozenPatternsOfTheSettingsComeFirst) {
  const auto groups = optimizer_groups({.freeze_parameters = {"embedding.*", "*.router.weight"}});
  const auto frozen = [&](const ParamSpec& spec) { return groups[first_match(groups, spec)].frozen; };
  EXPECT_TRUE(frozen(matrix("embedding.word_embeddings.weight")));
  EXPECT_TRUE(frozen(matrix("decoder.layers.1.mlp.router.weight")));
  EXPECT_FALSE(frozen(matrix("decoder.layers.1.mlp.linear_fc1.weight")));
}

// Megatron's get_mup_config_overrides with a width multiplier of 4.
TEST(OptimizerGroups, MupMultipliers) {
  using config::OptimizerKind;
  const auto multipliers = [](const config::Optimizer& settings, const ParamSpec& spec) {
    const auto groups = optimizer_groups(settings);
    const OptimizerGroup& group = groups[first_match(groups, spec)];
    return std::pair(group.lr_multiplier, group.eps_multiplier);
  };
  const ParamSpec bias = vector("decoder.layers.0.mlp.linear_fc1.bias");
  const ParamSpec experts{.name = "experts", .shape = {8, 4, 2}, .param_group = ParamGroup::kExpert};
  const ParamSpec expert_bias{
      .name = "biases", .shape = {8, 4}, .param_group = ParamGroup::kExpert, .weight_decay = false};
  for (const bool decoupled : {false, true}) {
    const config::MupOptimizer mup{.width_mult = 4, .decoupled_embeddings = decoupled};
    const config::Optimizer adam{.mup = mup}, lion{.optimizer = OptimizerKind::kLion, .mup = mup},
        sgd{.optimizer = OptimizerKind::kSgd, .mup = mup},
        muon{.optimizer = OptimizerKind::kMuon, .mup = mup};
    for (const ParamSpec& hidden :
         {matrix("decoder.layers.0.mlp.linear_fc1.weight"), matrix("decoder.layers.0.mlp.router.weight"),
          matrix("mtp.layers.0.eh_proj.weight"), experts}) {
      EXPECT_EQ(multipliers(adam, hidden), (std::pair{0.25, 0.25})) << hidden.name;
      EXPECT_EQ(multipliers(lion, hidden), (std::pair{0.25, 1.0})) << hidden.name;
      EXPECT_EQ(multipliers(sgd, hidden), (std::pair{1.0, 1.0})) << hidden.name;
      EXPECT_EQ(multipliers(muon, hidden), (std::pair{1.0, 1.0})) << hidden.name;
    }
    for (const ParamSpec& other :
         {matrix("embedding.word_embeddings.weight"), matrix("embedding.position_embeddings.weight"),
          matrix("output_layer.weight"), bias, expert_bias, vector("decoder.final_layernorm.weight")}) {
      const bool has_decoupled_rate =
          other.name.find("word") != std::string::npos || other.name == "output_layer.weight";
      EXPECT_EQ(multipliers(adam, other), (std::pair{1.0, 1.0})) << other.name;
      EXPECT_EQ(multipliers(lion, other), (std::pair{1.0, 1.0})) << other.name;
      EXPECT_EQ(multipliers(sgd, other).first, decoupled && has_decoupled_rate ? 1 : 4) << other.name;
      EXPECT_EQ(multipliers(muon, other), (std::pair{1.0, 1.0})) << other.name;
    }
  }
  EXPECT_EQ(optimizer_groups({}), optimizer_groups({.mup = {.width_mult = 1, .decoupled_embeddings = true}}));
}

// As in Megatron (core/optimizer/emerging_optimizers.py): matrices without word embeddings and output layer.
TEST(OptimizerGroups, MuonUpdatesMatrices) {
  const auto groups = optimizer_groups({.optimizer = config::OptimizerKind::kMuon});
  const auto has_scalar = [&](const ParamSpec& spec) {
    return groups[first_match(groups, spec)].optimizer == config::OptimizerKind::kAdam;
  };
  EXPECT_FALSE(has_scalar(matrix("decoder.layers.0.mlp.linear_fc1.weight")));
  EXPECT_FALSE(has_scalar(matrix("decoder.layers.0.mlp.router.weight")));
  EXPECT_FALSE(has_scalar(matrix("embedding.position_embeddings.weight")));
  EXPECT_FALSE(has_scalar({.name = "experts", .shape = {8, 4, 2}, .param_group = ParamGroup::kExpert}));
  EXPECT_TRUE(has_scalar({.name = "biases", .shape = {8, 4}, .param_group = ParamGroup::kExpert}));
  EXPECT_TRUE(has_scalar(matrix("embedding.word_embeddings.weight")));
  EXPECT_TRUE(has_scalar(matrix("output_layer.weight")));
  EXPECT_TRUE(has_scalar(vector("decoder.layers.0.mlp.linear_fc1.bias")));
  EXPECT_TRUE(has_scalar(vector("decoder.final_layernorm.weight")));
}

TEST(OptimizerGroups, ParameterWithoutAGroupIsAnError) {
  EXPECT_THROW(first_match({{.names = "b"}}, matrix("a")), Error);
}

}  // namespace
}  // namespace colonnade::layout
