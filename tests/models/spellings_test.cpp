// Tensor name variants: published ones map to the name tables, and two for one tensor are rejected.
#include "colonnade/models/hf/spellings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/names_support.h"

namespace colonnade::models::hf {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace)
using testing::HasSubstr;

/// The name that `stored` gets in a folder of `type`.
std::string spelled(const char* type, const std::string& stored) {
  return spelled_tensors(type, {{stored, {4, 4}}}, "x").begin()->first;
}

TEST(Spellings, KeepTheNamesOfEveryFamily) {
  for (const char* folder : {"llama", "mistral", "qwen2", "qwen3", "mixtral", "gpt2", "qwen3_moe", "gpt_oss",
                             "gemma2", "gemma3_text", "deepseek_v3", "t5", "bert"}) {
    const std::string type = config_in(folder).at("model_type");
    for (const std::string& name : names_of(run_of(folder)))
      EXPECT_EQ(spelled(type.c_str(), name), name) << folder;
  }
}

TEST(Spellings, AddTheBaseModelsPrefix) {
  EXPECT_EQ(spelled("llama", "embed_tokens.weight"), "model.embed_tokens.weight");
  EXPECT_EQ(spelled("gemma3_text", "layers.1.mlp.up_proj.weight"), "model.layers.1.mlp.up_proj.weight");
  EXPECT_EQ(spelled("qwen2", "norm.weight"), "model.norm.weight");
  EXPECT_EQ(spelled("kimi_k2", "layers.1.input_layernorm.weight"), "model.layers.1.input_layernorm.weight");
  EXPECT_EQ(spelled("gpt2", "h.0.attn.bias"), "transformer.h.0.attn.bias");
  EXPECT_EQ(spelled("gpt2", "wte.weight"), "transformer.wte.weight");
  EXPECT_EQ(spelled("bert", "encoder.layer.0.output.dense.bias"), "bert.encoder.layer.0.output.dense.bias");
  EXPECT_EQ(spelled("bert", "cls.predictions.bias"), "cls.predictions.bias");
}

TEST(Spellings, RemoveWrapperPrefixes) {
  for (const char* wrapper :
       {"module.", "_orig_mod.", "module._orig_mod.", "_fsdp_wrapped_module.", "language_model.",
        "base_model.model.", "model.language_model.", "pretrained_model.", "_orig_mod.module."}) {
    EXPECT_EQ(spelled("llama", std::string(wrapper) + "model.layers.0.mlp.up_proj.weight"),
              "model.layers.0.mlp.up_proj.weight")
        << wrapper;
    EXPECT_EQ(spelled("mistral", std::string(wrapper) + "lm_head.weight"), "lm_head.weight") << wrapper;
    EXPECT_EQ(spelled("gpt2", std::string(wrapper) + "transformer.wpe.weight"), "transformer.wpe.weight");
    EXPECT_EQ(spelled("t5", std::string(wrapper) + "shared.weight"), "shared.weight");
  }
  EXPECT_EQ(spelled("llama", "model.layers.0._orig_mod.mlp._fsdp_wrapped_module.up_proj.weight"),
            "model.layers.0.mlp.up_proj.weight");
  EXPECT_EQ(spelled("llama", "language_model.layers.0.input_layernorm.weight"),
            "model.layers.0.input_layernorm.weight");
  EXPECT_EQ(spelled("llama", "vision_tower.layers.0.weight"), "vision_tower.layers.0.weight");
  EXPECT_EQ(spelled("llama", "draft.model.norm.weight"), "draft.model.norm.weight");
}

TEST(Spellings, RenameNormsOfEarlyBerts) {
  EXPECT_EQ(spelled("bert", "bert.embeddings.LayerNorm.gamma"), "bert.embeddings.LayerNorm.weight");
  EXPECT_EQ(spelled("bert", "cls.predictions.transform.LayerNorm.beta"),
            "cls.predictions.transform.LayerNorm.bias");
}

TEST(Spellings, SplitFusedExperts) {
  const auto tensors = spelled_tensors(
      "qwen3_moe",
      {{"layers.1.mlp.experts.gate_up_proj", {2, 6, 4}}, {"layers.1.mlp.experts.down_proj", {2, 4, 3}}}, "x");
  ASSERT_EQ(tensors.size(), 6U);
  const SpelledTensor& up = tensors.at("model.layers.1.mlp.experts.1.up_proj.weight");
  EXPECT_EQ(up.stored, "layers.1.mlp.experts.gate_up_proj");
  EXPECT_EQ(up.index, 1);
  EXPECT_EQ(up.first_row, 3);
  EXPECT_EQ(up.rows, 3);
  EXPECT_EQ(tensors.at("model.layers.1.mlp.experts.0.down_proj.weight").rows, 4);
  const auto mixtral =
      spelled_tensors("mixtral", {{"model.layers.0.mlp.experts.gate_up_proj", {1, 6, 4}}}, "x");
  EXPECT_EQ(mixtral.at("model.layers.0.block_sparse_moe.experts.0.w3.weight").first_row, 3);
  EXPECT_EQ(spelled("mixtral", "model.layers.0.mlp.gate.weight"),
            "model.layers.0.block_sparse_moe.gate.weight");
  // GPT-OSS's own names are fused.
  EXPECT_EQ(spelled("gpt_oss", "model.layers.0.mlp.experts.gate_up_proj"),
            "model.layers.0.mlp.experts.gate_up_proj");
}

TEST(Spellings, KeepFusedExpertsOfCorruptShape) {
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{300'000'000, 2, 0}, std::vector<std::int64_t>{2, 0, 4}})
    EXPECT_EQ(spelled_tensors("qwen3_moe", {{"model.layers.0.mlp.experts.gate_up_proj", shape}}, "x").size(),
              1U);
}

TEST(Spellings, RejectDuplicateTensorsByName) {
  const auto error_of = [](const char* type, const StoredShapes& stored) {
    try {
      spelled_tensors(type, stored, "folder");
      return std::string();
    } catch (const DataError& e) {
      return std::string(e.what());
    }
  };
  EXPECT_THAT(
      error_of("llama", {{"norm.weight", {4}}, {"model.norm.weight", {4}}}),
      HasSubstr("folder: every tensor must be stored once; got model.norm.weight as 'model.norm.weight' and "
                "as 'norm.weight'"));
  EXPECT_THAT(
      error_of("bert", {{"bert.embeddings.LayerNorm.gamma", {4}}, {"bert.embeddings.LayerNorm.weight", {4}}}),
      HasSubstr("LayerNorm.gamma"));
  EXPECT_THAT(error_of("deepseek_v3", {{"model.layers.1.mlp.experts.gate_up_proj", {2, 6, 4}},
                                       {"model.layers.1.mlp.experts.1.up_proj.weight", {3, 4}}}),
              HasSubstr("experts.1.up_proj.weight"));
}

TEST(Spellings, ExplainUnsupportedTensors) {
  for (const auto& [name, kind] : std::vector<std::pair<std::string, const char*>>{
           {"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", "of a LoRA adapter"},
           {"model.layers.0.self_attn.q_proj.base_layer.weight", "of a model with an adapter"},
           {"model.layers.0.mlp.up_proj.weight_scale_inv", "quantized to FP8 in blocks"},
           {"model.layers.0.mlp.up_proj.weight_scale", "quantized to 8 bits"},
           {"model.layers.0.mlp.up_proj.qweight", "quantized by GPTQ or AWQ"},
           {"model.layers.0.mlp.up_proj.weight.absmax", "quantized to 4 bits by bitsandbytes"},
           {"model.layers.0.mlp.up_proj.SCB", "quantized to 8 bits by bitsandbytes"},
           {"model.layers.0.mlp.experts.gate_up_proj_blocks", "quantized to MXFP4"},
           {"vision_tower.patch_embed.weight", "of a model that reads images"}})
    EXPECT_THAT(unsupported_tensors({"a.weight", name}),
                testing::AllOf(HasSubstr(kind), HasSubstr(name), HasSubstr("; ")));
  EXPECT_EQ(unsupported_tensors({"model.layers.7.input_layernorm.weight"}), "");
}

}  // namespace
}  // namespace colonnade::models::hf
