// A model belongs to a family only if config.json can express all of its features.
#include "colonnade/models/hf/features.h"

#include <gtest/gtest.h>

#include <functional>

#include "models/names_support.h"

namespace colonnade::models::hf {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace)

TEST(Family, OfDenseModelsDependsOnBiasesNormsAndWindows) {
  const auto window = [](config::Model& m) { m.window_size = 7; };
  EXPECT_EQ(family_after("llama", window), family_of_type("mistral"));
  EXPECT_EQ(family_after("qwen2", window), nullptr);
  EXPECT_EQ(family_after("qwen3", window), nullptr);
  EXPECT_EQ(family_after("llama", [](config::Model& m) { m.add_qkv_bias = true; }), family_of_type("qwen2"));
  EXPECT_EQ(family_after("llama", [](config::Model& m) { m.qk_layernorm = true; }), family_of_type("qwen3"));
  EXPECT_EQ(family_after("qwen3", [](config::Model& m) { m.add_qkv_bias = true; }), nullptr);
  EXPECT_EQ(family_after("gpt2", [](config::Model& m) { m.qk_layernorm = true; }), nullptr);
  EXPECT_EQ(family_after("qwen2", [](config::Model& m) { m.add_bias_linear = true; }), nullptr);
}

TEST(Family, OfMoeModelsDependsOnLayersAndRouter) {
  const auto some_layers = [](config::Model& m) { m.moe.layer_freq = "[1,0]"; };
  EXPECT_EQ(family_after("mixtral", some_layers), nullptr);
  EXPECT_EQ(family_after("qwen3_moe", some_layers), family_of_type("qwen3_moe"));
  const auto softmax_over_all = [](config::Model& m) { m.moe.router_pre_softmax = true; };
  EXPECT_EQ(family_after("mixtral", softmax_over_all), nullptr);
  EXPECT_EQ(family_after("qwen3_moe", softmax_over_all), family_of_type("qwen3_moe"));
  const auto window = [](config::Model& m) { m.window_size = 7; };
  EXPECT_EQ(family_after("mixtral", window), family_of_type("mixtral"));
  EXPECT_EQ(family_after("qwen3_moe", window), nullptr);
  EXPECT_EQ(family_after("gpt2", [](config::Model& m) { m.moe.num_experts = 4; }), nullptr);
  using config::Moe;
  const std::function<void(Moe&)> none[] = {
      [](Moe& m) { m.router_score_function = config::RouterScore::kSigmoid; },
      [](Moe& m) { m.router_num_groups = 2; }, [](Moe& m) { m.router_topk_scaling_factor = 2.5; },
      [](Moe& m) { m.router_enable_expert_bias = true; },
      [](Moe& m) { m.shared_expert_intermediate_size = 8; }};
  for (const char* folder : {"mixtral", "qwen3_moe"}) {
    for (const auto& change : none)
      EXPECT_EQ(family_after(folder, [&](config::Model& m) { change(m.moe); }), nullptr) << folder;
    EXPECT_EQ(family_after(folder, [](config::Model& m) { m.add_qkv_bias = true; }), nullptr);
    // Load balancing does not affect the family.
    EXPECT_TRUE(family_after(folder, [](config::Model& m) { m.moe.aux_loss_coeff = {0.1}; }));
  }
}

TEST(Family, OfDeepSeekDependsOnPositions) {
  const std::function<void(config::Model&)> other[] = {
      [](auto& m) { m.position_embedding = config::PositionEmbedding::kLearnedAbsolute; },
      [](auto& m) { m.rope_type = config::RopeType::kRope; },  // its factor of 4 would scale scores
      [](auto& m) { m.mscale_all_dim = 0, m.mscale = 0.5; }};
  for (const auto& change : other) EXPECT_EQ(family_after("deepseek_v3", change), nullptr);
}

TEST(Family, OfGptOssAndGemmaDependsOnEverySetting) {
  using config::Model;
  const std::function<void(Model&)> other[] = {
      [](Model& m) { m.softmax_type = config::SoftmaxType::kOffByOne; },
      [](Model& m) { m.sandwich_norm = !m.sandwich_norm; },
      [](Model& m) { m.parallel_residual = true; },
      [](Model& m) { m.scale_embeddings = !m.scale_embeddings; },
      [](Model& m) { m.qk_layernorm = !m.qk_layernorm; },
      [](Model& m) { m.apply_layernorm_1p = !m.apply_layernorm_1p; },
      [](Model& m) { m.activation = config::Activation::kGeglu; },
      [](Model& m) { m.add_bias_linear = !m.add_bias_linear; },
      [](Model& m) { m.latent.enabled = true; },
      [](Model& m) { m.mtp_num_layers = 1; }};
  for (const char* folder : {"gpt_oss", "gemma2", "gemma3_text"})
    for (const auto& change : other) EXPECT_EQ(family_after(folder, change), nullptr) << folder;
  for (const char* folder : {"llama", "gpt2", "mixtral"})
    for (int i = 0; i < 4; ++i) EXPECT_EQ(family_after(folder, other[i]), nullptr) << folder;
}

TEST(Family, NoneHasOtherEncodersOrOutputBiases) {
  EXPECT_EQ(family_after("t5", [](config::Model& m) { m.query_pre_attn_scalar = {}; }), nullptr);
  EXPECT_EQ(family_after("t5", [](config::Model& m) { m.output_layer_bias = true; }), nullptr);
  EXPECT_EQ(family_after("llama", [](config::Model& m) { m.output_layer_bias = true; }), nullptr);
  EXPECT_EQ(family_after("llama", [](config::Model& m) { m.encoder_num_layers = 2; }), nullptr);
}

}  // namespace
}  // namespace colonnade::models::hf
