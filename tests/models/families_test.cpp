// Families beyond those of names_test.cpp: their config.json, and types that are rejected by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "colonnade/models/hf/families/list.h"
#include "models/names_support.h"

namespace colonnade::models::hf {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace)
using testing::HasSubstr;

std::string further(const char* name) { return std::string("hf_more/") + name; }

TEST(Families, ReadBothSpellingsOfConfigJson) {
  for (const char* name : colonnade::test::kFurtherModels)
    EXPECT_EQ(run_of(further(name)).model, run_from(config_in(further(name), "config_v5.json")).model)
        << name;
}

TEST(Families, AreListedOnceWithANameForEveryParameter) {
  std::set<std::string_view> types;
  for (const Family* family : all_families()) {
    EXPECT_NE(family->write, nullptr);
    for (const ModelType& type : family->types) EXPECT_TRUE(types.insert(type.name).second) << type.name;
    EXPECT_TRUE(missing_layers(family->types.front().name).empty());
  }
  for (const char* name : colonnade::test::kFurtherModels)
    EXPECT_FALSE(names_of(run_of(further(name))).empty()) << name;
}

TEST(Families, TakeAttentionFactorsAndBasesFromOtherKeys) {
  EXPECT_NEAR(run_of(further("olmo3")).model.mscale, 0.2 / (0.1 * std::log(8)), 1e-12);
  EXPECT_EQ(run_of(further("olmo3")).model.rotary_base_local, 500000);
  EXPECT_NEAR(run_of(further("hunyuan_v1_dense")).model.rotary_base, 1e4 * std::pow(1000.0, 16.0 / 14), 1e-3);
  EXPECT_EQ(run_of(further("granite")).model.query_pre_attn_scalar, 256);
  EXPECT_EQ(run_of(further("granite")).model.logit_factor, 0.125);
  EXPECT_EQ(run_of(further("smollm3")).model.no_rope_freq, "[0,0,0,1]");
  EXPECT_EQ(run_of(further("cohere2")).model.no_rope_freq, "[0,0,0,1]");
  EXPECT_EQ(run_of(further("ministral3")).model.query_scaling_beta, 0.1);
}

TEST(Families, RejectsOtherArchitecturesByName) {
  const auto fault = [](const char* type) {
    try {
      settings_of({{"model_type", type}}, "x/config.json");
      return std::string();
    } catch (const ConfigError& e) {
      return std::string(e.what());
    }
  };
  EXPECT_EQ(
      fault("mamba2"),
      "x/config.json: model_type must be one that Colonnade supports; got mamba2 (needs state-space layers); "
      "convert the model or choose another");
  for (const char* type : {"bamba",
                           "falcon_h1",
                           "nemotron_h",
                           "granitemoehybrid",
                           "lfm2",
                           "qwen3_next",
                           "qwen3_5",
                           "qwen3_5_text",
                           "qwen3_5_moe_text",
                           "kimi_linear",
                           "deepseek_v32",
                           "deepseek_v4",
                           "glm_moe_dsa",
                           "gemma4",
                           "gemma4_text",
                           "mistral4",
                           "glm4_moe_lite",
                           "clip_vision_model",
                           "siglip_vision_model",
                           "llava",
                           "qwen2_vl",
                           "qwen2_5_vl",
                           "qwen3_vl",
                           "qwen3_vl_moe",
                           "internvl"})
    EXPECT_THAT(fault(type), HasSubstr(std::string("got ") + type + " (needs ")) << type;
  EXPECT_THAT(fault("unheard_of"), HasSubstr("must be one of llama, mistral,"));
}

TEST(Families, ReadsTheTextModelOfGemma3) {
  const auto config = config_in("hf_more/gemma3_wrapper_text");
  const auto run = run_from(config);
  EXPECT_EQ(run.model, run_from(config.at("text_config")).model);
  EXPECT_EQ(run.model, run_from(config_in("hf_more/gemma3_wrapper_text", "config_v5.json")).model);
  auto known = names_of(run);
  known.insert({"vision_tower.vision_model.post_layernorm.weight", "model.vision_tower.post_layernorm.bias",
                "multi_modal_projector.mm_soft_emb_norm.weight"});
  const auto diff = tensor_diff(run.model, {known.begin(), known.end()});
  EXPECT_TRUE(diff.unknown.empty());
  EXPECT_EQ(diff.unused.at("tensors that read images").size(), 3U);
  auto other = config;
  other["text_config"]["unheard_of"] = 1;
  EXPECT_THROW(run_from(other), ConfigError);
}

TEST(Families, ReadsLongRopeAndNormsOverAllHeads) {
  const auto phi = run_of("hf_more/phi3").model;
  EXPECT_EQ(phi.longrope_short_factor, "[1,1.1,1.2,1.3,1.4,1.5]");
  EXPECT_EQ(phi.longrope_original_max_position_embeddings, 16);
  EXPECT_EQ(phi.rotary_percent, 0.75);
  EXPECT_EQ(phi.window_size, 511);
  const auto olmo = run_of("hf_more/olmo2").model;
  EXPECT_TRUE(olmo.sandwich_norm && olmo.qk_norm_across_heads && !olmo.input_norms);
  EXPECT_EQ(run_of("hf_more/minimax_m2").model.rotary_percent, 0.5);
  EXPECT_EQ(family_after("hf_more/olmo2", [](auto& m) { m.input_norms = true; }), nullptr);
  EXPECT_EQ(family_after("hf_more/olmo2", [](auto& m) { m.qk_norm_across_heads = false; }),
            family_of_type("exaone4"));
}

}  // namespace
}  // namespace colonnade::models::hf
