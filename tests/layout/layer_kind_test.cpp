// Mixer and channel mixer of each layer, from the layer patterns of the settings.
#include "colonnade/layout/layer_kind.h"

#include <gmock/gmock.h>

#include "colonnade/base/error.h"

namespace colonnade::layout {
namespace {

using ::testing::ElementsAre;

std::vector<bool> moe_layers(const config::Model& model) {
  std::vector<bool> moe;
  for (const LayerKind& kind : layer_kinds(model)) moe.push_back(kind.is_moe());
  return moe;
}

TEST(LayerKind, FollowsThePatternOfMoeLayers) {
  config::Model m;
  m.num_layers = 4;
  EXPECT_THAT(moe_layers(m), ElementsAre(false, false, false, false)) << "no experts";
  m.moe.num_experts = 8;
  m.moe.layer_freq = "([0]*1+[1]*3)";
  EXPECT_THAT(moe_layers(m), ElementsAre(false, true, true, true));
  m.moe.layer_freq = "2";
  EXPECT_THAT(moe_layers(m), ElementsAre(true, false, true, false));
  EXPECT_EQ(layer_kind(m, 7), layer_kind(m, 3)) << "MTP layers have the kind of the last layer";
  m.moe.layer_freq = "[1,0]";
  EXPECT_THROW(layer_kinds(m), Error);
}

TEST(LayerKind, KnowsTheModulesOfTheLayers) {
  config::Model m;
  m.num_layers = 2;
  EXPECT_TRUE(has_module(m, "core_attn") && has_module(m, "layernorm") && has_module(m, "mlp"));
  for (const char* module : {"moe", "moe_act", "shared_experts", "mla_up_proj"})
    EXPECT_FALSE(has_module(m, module)) << module;
  m.latent.enabled = true;
  EXPECT_TRUE(has_module(m, "mla_up_proj"));
  m.moe.num_experts = 8;
  EXPECT_TRUE(has_module(m, "moe") && has_module(m, "moe_act"));
  EXPECT_FALSE(has_module(m, "mlp") || has_module(m, "shared_experts"));
  m.moe.shared_expert_intermediate_size = 16;
  EXPECT_TRUE(has_module(m, "shared_experts"));
  m.moe.layer_freq = "2";
  EXPECT_TRUE(has_module(m, "mlp")) << "of the other layers";
}

TEST(LayerKind, TokensAreRoutedAndDispatched) {
  config::Model m;
  config::Parallel p;
  p.tensor_model_parallel_size = 2;
  EXPECT_FALSE(routes_tokens(m));
  EXPECT_FALSE(dispatches_tokens(m, p));
  EXPECT_THAT(param_groups(m), ElementsAre(ParamGroup::kDense));
  m.moe.num_experts = 8;
  EXPECT_TRUE(routes_tokens(m));
  EXPECT_TRUE(dispatches_tokens(m, p)) << "over expert tensor ranks";
  EXPECT_THAT(param_groups(m), ElementsAre(ParamGroup::kDense, ParamGroup::kExpert));
  p.expert_tensor_parallel_size = 1;
  EXPECT_FALSE(dispatches_tokens(m, p));
  p.expert_model_parallel_size = 4;
  EXPECT_TRUE(dispatches_tokens(m, p));
  EXPECT_FALSE(sums_router_counts(m));
  m.moe.router_load_balancing_type = {"global_aux_loss"};
  EXPECT_TRUE(sums_router_counts(m));
  m.moe.router_load_balancing_type = {"none"};
  m.moe.router_enable_expert_bias = true;
  EXPECT_TRUE(sums_router_counts(m));
  m.moe.num_experts = 0;
  EXPECT_FALSE(sums_router_counts(m));
}

TEST(LayerKind, KnowsLatentAndCrossAttention) {
  config::Model m;
  m.num_layers = 2;
  m.latent.enabled = true;
  EXPECT_EQ(layer_kind(m, 0), LayerKind{.mixer = Mixer::kLatentAttention});
  m.latent.enabled = false;
  m.encoder_num_layers = 1;
  EXPECT_EQ(layer_kind(m, 0), LayerKind{});
  EXPECT_EQ(layer_kind(m, 2), LayerKind{.cross_attention = true});
  EXPECT_TRUE(is_bidirectional(m, 0));
  EXPECT_FALSE(is_bidirectional(m, 1));
}

}  // namespace
}  // namespace colonnade::layout
