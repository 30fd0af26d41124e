// Name tables list every parameter of every family, and config.json survives the round trip.
#include "colonnade/models/hf/names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>

#include "models/names_support.h"

namespace colonnade::models::hf {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace)
using testing::HasSubstr;

constexpr std::pair<const char*, const char*> kFolders[] = {{"llama", "llama"},
                                                            {"llama_plain", "llama"},
                                                            {"mistral", "mistral"},
                                                            {"qwen2", "qwen2"},
                                                            {"qwen3", "qwen3"},
                                                            {"mixtral", "mixtral"},
                                                            {"gpt2", "gpt2"},
                                                            {"qwen3_moe", "qwen3_moe"},
                                                            {"gpt_oss", "gpt_oss"},
                                                            {"gemma2", "gemma2"},
                                                            {"gemma3_text", "gemma3_text"},
                                                            {"deepseek_v3", "deepseek_v3"},
                                                            {"t5", "t5"},
                                                            {"bert", "bert"}};

/// Those of hf and of hf_more, each with the model_type of its family; the text model of a Gemma 3 that reads
/// images is written as such.
std::vector<std::pair<std::string, std::string>> all_folders() {
  std::vector<std::pair<std::string, std::string>> all(std::begin(kFolders), std::end(kFolders));
  for (const char* name : colonnade::test::kFurtherModels)
    if (const std::string folder = std::string("hf_more/") + name;
        colonnade::test::is_written_as_read(folder)) {
      all.emplace_back(folder, config_in(folder).at("model_type"));
    }
  return all;
}

using Shapes = std::map<std::string, std::vector<std::int64_t>>;

/// Shapes in the header of the folder's safetensors file.
Shapes recorded_shapes(const std::string& folder) {
  const std::string file = read_file(path_of(folder, "model.safetensors"));
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  Shapes shapes;
  const auto header = nlohmann::json::parse(file.substr(sizeof length, length));
  for (const auto& [name, tensor] : header.items())
    if (name != "__metadata__") shapes[name] = tensor.at("shape").get<std::vector<std::int64_t>>();
  return shapes;
}

Shapes shapes_of(const config::Run& run) {
  Shapes shapes;
  for (const auto& spec : layout::model_params(run.model, run.parallel))
    for (const auto& tensor : tensors_of(spec, naming_of(run.model))) {
      auto shape = spec.shape;
      if (tensor.index) shape.erase(shape.begin());
      shape[0] = tensor.rows;
      if (tensor.transposed) std::swap(shape[shape.size() - 2], shape.back());
      if (tensor.has_leading_one) shape.insert(shape.begin(), 1);
      EXPECT_TRUE(shapes.emplace(tensor.name, shape).second) << tensor.name;
    }
  return shapes;
}

TEST(HfNames, MatchEveryCheckpoint) {
  for (const auto& [folder, family] : all_folders()) {
    const auto run = run_of(folder);
    EXPECT_EQ(family_of(run.model), family_of_type(family)) << folder;
    EXPECT_EQ(shapes_of(run), recorded_shapes(folder)) << folder;
  }
}

TEST(HfNames, NumberExpertsAndTheirRows) {
  const auto run = run_of("mixtral");
  for (const auto& spec : layout::model_params(run.model, run.parallel)) {
    if (spec.name != "decoder.layers.1.mlp.experts.linear_fc1.weight") continue;
    const auto tensors = tensors_of(spec, family_of_type("mixtral"));
    ASSERT_EQ(tensors.size(), 2U * 4);
    EXPECT_EQ(tensors[5].name, "model.layers.1.block_sparse_moe.experts.2.w3.weight");
    EXPECT_EQ(tensors[5].index, 2);
    EXPECT_EQ(tensors[5].first_row, 80);  // up rows come after the gate's
    EXPECT_EQ(tensors[5].rows, 80);
    return;
  }
  FAIL() << "layer 1 has no experts";
}

TEST(HfNames, OfTheLlamaCheckpoint) {
  const auto run = run_of("llama");
  ASSERT_EQ(family_of(run.model), family_of_type("llama"));
  const auto names = names_of(run);
  EXPECT_EQ(names.size(), 2U * 9 + 3);
  EXPECT_TRUE(names.contains("model.layers.1.self_attn.k_proj.weight"));
  EXPECT_TRUE(names.contains("lm_head.weight"));
}

TEST(HfNames, OfTheGpt2Checkpoint) {
  const auto run = run_of("gpt2");
  ASSERT_EQ(family_of(run.model), family_of_type("gpt2"));
  const auto names = names_of(run);
  EXPECT_EQ(names.size(), 2U * 12 + 4);
  EXPECT_TRUE(names.contains("transformer.h.0.attn.c_attn.bias"));
  EXPECT_FALSE(names.contains("lm_head.weight"));
}

TEST(HfNames, UntiedGpt2HasAnLmHead) {
  auto config = config_of(run_of("gpt2").model);
  EXPECT_TRUE(config.at("tie_word_embeddings"));
  config["tie_word_embeddings"] = false;
  const auto run = run_from(config);
  ASSERT_EQ(family_of(run.model), family_of_type("gpt2"));
  EXPECT_TRUE(names_of(run).contains("lm_head.weight"));
  EXPECT_FALSE(config_of(run.model).at("tie_word_embeddings"));
}

TEST(HfNames, UnknownTensorsAreFoundExceptBuffers) {
  const auto run = run_of("gpt2");
  const auto known = names_of(run);
  std::vector<std::string> names(known.begin(), known.end());
  for (const char* buffer :
       {"transformer.h.0.attn.bias", "transformer.h.1.attn.masked_bias", "lm_head.weight"})
    names.emplace_back(buffer);
  EXPECT_TRUE(tensor_diff(run.model, names).unknown.empty());
  names.emplace_back("transformer.h.2.ln_1.weight");  // the model has two layers
  EXPECT_EQ(tensor_diff(run.model, names).unknown, (std::vector<std::string>{"transformer.h.2.ln_1.weight"}));
  EXPECT_EQ(tensor_diff(run_of("llama").model, {"model.layers.0.self_attn.q_proj.bias"}).unknown.size(), 1U);
}

TEST(HfNames, MtpLayersFollowTheModelsLayers) {
  auto run = run_of("deepseek_v3");  // two layers
  const auto without = names_of(run);
  std::vector<std::string> names(without.begin(), without.end());
  // A model without MTP ignores the MTP layers of a published checkpoint.
  for (const char* part :
       {"enorm.weight", "eh_proj.weight", "embed_tokens.weight", "shared_head.head.weight"})
    names.push_back(std::string("model.layers.2.") + part);
  EXPECT_TRUE(tensor_diff(run.model, names).unknown.empty());
  run.model.mtp_num_layers = 1;
  const auto with = names_of(run);
  std::size_t mtp = 0;
  for (const std::string& name : with) mtp += name.starts_with("model.layers.2.") ? 1 : 0;
  EXPECT_EQ(with.size(), without.size() + mtp);
  for (const char* part :
       {"enorm.weight", "hnorm.weight", "eh_proj.weight", "shared_head.norm.weight", "input_layernorm.weight",
        "self_attn.kv_b_proj.weight", "mlp.gate.e_score_correction_bias", "mlp.experts.7.down_proj.weight"})
    EXPECT_TRUE(with.contains(std::string("model.layers.2.") + part)) << part;
  EXPECT_TRUE(tensor_diff(run.model, names).unknown.empty());
  names.emplace_back("model.layers.2.other.weight");
  EXPECT_EQ(tensor_diff(run.model, names).unknown, (std::vector<std::string>{"model.layers.2.other.weight"}));
  EXPECT_EQ(config_of(run.model).at("num_nextn_predict_layers"), 1);
}

TEST(HfNames, ModelsWithoutAFamilyUseOurNames) {
  auto run = run_of("llama");
  run.model.apply_layernorm_1p = true;
  EXPECT_FALSE(family_of(run.model));
  EXPECT_TRUE(names_of(run).contains("decoder.layers.0.self_attention.linear_qkv.weight"));
  run = run_of("llama_plain");
  run.model.rotary_seq_len_interpolation_factor = 4;
  EXPECT_TRUE(family_of(run.model));
  run.model.use_rope_scaling = true;  // config.json expresses one scaling only
  EXPECT_FALSE(family_of(run.model));
}

TEST(HfConfig, SurvivesTheRoundTrip) {
  for (const auto& [folder, family] : all_folders()) {
    const auto run = run_of(folder);
    EXPECT_EQ(run.model, run_from(config_of(run.model)).model) << folder;
  }
}

TEST(HfConfig, IsEqualInBothTransformersVersions) {
  for (const auto& [folder, family] : all_folders())
    EXPECT_EQ(run_of(folder).model, run_from(config_in(folder, "config_v5.json")).model) << folder;
}

/// Values that transformers 5.23 reads from these files.
TEST(HfConfig, ReadsMoeModels) {
  const config::Model mixtral = run_of("mixtral").model;
  EXPECT_EQ(mixtral.moe.num_experts, 4);
  EXPECT_EQ(mixtral.moe.router_topk, 2);
  EXPECT_EQ(mixtral.moe.ffn_hidden_size, 80);
  const auto all_moe = layout::layer_kinds(mixtral);
  EXPECT_TRUE(all_moe.size() == 2 && all_moe[0].is_moe() && all_moe[1].is_moe());
  const config::Model qwen3 = run_of("qwen3_moe").model;
  EXPECT_EQ(qwen3.moe.num_experts, 8);
  EXPECT_EQ(qwen3.moe.router_topk, 3);
  EXPECT_EQ(qwen3.moe.ffn_hidden_size, 80);
  EXPECT_EQ(qwen3.ffn_hidden_size, 160);
  EXPECT_FALSE(qwen3.moe.router_pre_softmax);
  const auto kinds = layout::layer_kinds(qwen3);
  EXPECT_TRUE(kinds.size() == 2 && !kinds[0].is_moe() && kinds[1].is_moe());
}

TEST(HfConfig, WindowIncludesTheTokenItself) {
  auto config = config_in("mixtral");
  config["sliding_window"] = 8;
  const auto run = run_from(config);
  EXPECT_EQ(run.model.window_size, 7);
  EXPECT_EQ(config_of(run.model)["sliding_window"], 8);
  EXPECT_TRUE(config_of(run_of("mixtral").model)["sliding_window"].is_null());
}

TEST(HfConfig, KeepsMoeLayers) {
  auto config = config_in("qwen3_moe");
  config.update({{"num_hidden_layers", 6}, {"decoder_sparse_step", 2}, {"mlp_only_layers", {1}}});
  config["norm_topk_prob"] = false;
  const auto run = run_from(config);
  EXPECT_EQ(run.model.moe.layer_freq, "[0,0,0,1,0,1]");
  EXPECT_TRUE(run.model.moe.router_pre_softmax);
  const auto written = config_of(run.model);
  EXPECT_EQ(written["mlp_only_layers"], (nlohmann::json{0, 1, 2, 4}));
  EXPECT_EQ(written["decoder_sparse_step"], 1);
  EXPECT_EQ(written["norm_topk_prob"], false);
  EXPECT_EQ(run.model, run_from(written).model);
  config.update({{"decoder_sparse_step", 1}, {"mlp_only_layers", nullptr}});
  EXPECT_EQ(run_from(config).model.moe.layer_freq, "1");
}

// Values that transformers 5.23 reads from these files.
TEST(HfConfig, ReadsGptOss) {
  const config::Model m = run_of("gpt_oss").model;
  EXPECT_EQ(m.position_embedding, config::PositionEmbedding::kYarn);
  EXPECT_EQ(m.rotary_scaling_factor, 4);
  EXPECT_EQ(m.yarn_original_max_position_embeddings, 32);
  EXPECT_FALSE(m.yarn_correction_range_round_to_int);
  EXPECT_EQ(m.rotary_base, 150000);
  EXPECT_EQ(m.activation_func_clamp_value, 7);
  EXPECT_EQ(layout::attention_window(m, 0), 7);
  EXPECT_EQ(layout::attention_window(m, 1), 0);
  EXPECT_EQ(m.moe.ffn_hidden_size, 80);
  // Without layer_types every second layer has a sliding window.
  auto config = config_in("gpt_oss");
  config["layer_types"] = nullptr;
  EXPECT_EQ(run_from(config).model, m);
}

TEST(HfConfig, ReadsGemma3) {
  const config::Model m = run_of("gemma3_text").model;
  EXPECT_EQ(m.rotary_base, 1e6);
  EXPECT_EQ(m.rotary_base_local, 1e4);
  EXPECT_EQ(m.query_pre_attn_scalar, 32);
  EXPECT_FALSE(m.untie_embeddings_and_output_weights);
  EXPECT_EQ(layout::attention_window(m, 0), 7);
  EXPECT_EQ(layout::attention_window(m, 1), 0);
  auto config = config_in("gemma3_text");
  config.update({{"layer_types", nullptr}, {"num_hidden_layers", 12}, {"sliding_window_pattern", 6}});
  config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 8.0}};
  const config::Model deep = run_from(config).model;
  for (int i = 0; i < 12; ++i) EXPECT_EQ(layout::attention_window(deep, i), i == 5 || i == 11 ? 0 : 7) << i;
  EXPECT_EQ(deep.rotary_seq_len_interpolation_factor, 8);
}

TEST(HfConfig, ReadsGemma2) {
  const config::Model m = run_of("gemma2").model;
  EXPECT_EQ(m.attn_logit_softcapping, 2);
  EXPECT_EQ(m.final_logit_softcapping, 6);
  EXPECT_EQ(m.query_pre_attn_scalar, 32);
  EXPECT_EQ(layout::attention_window(m, 0), 7);
  EXPECT_EQ(layout::attention_window(m, 1), 0);
  auto config = config_in("gemma2");
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping", "layer_types"})
    config.erase(key);
  const config::Model usual = run_from(config).model;
  EXPECT_EQ(usual.attn_logit_softcapping, 50);
  EXPECT_EQ(usual.final_logit_softcapping, 30);
  EXPECT_EQ(layout::attention_window(usual, 0), 7);
  EXPECT_EQ(layout::attention_window(usual, 1), 0);
}

TEST(HfConfig, SoftCapsSurviveTheRoundTrip) {
  for (const char* folder : {"gemma2", "gemma3_text"})
    for (const nlohmann::json& cap : {nlohmann::json(), nlohmann::json(12.5)}) {
      auto config = config_in(folder);
      config["final_logit_softcapping"] = cap;
      const config::Model m = run_from(config).model;
      EXPECT_EQ(m.final_logit_softcapping, cap.is_null() ? 0 : 12.5) << folder;
      EXPECT_EQ(config_of(m).at("final_logit_softcapping"), cap) << folder;
      EXPECT_EQ(m, run_from(config_of(m)).model) << folder;
    }
  auto config = config_in("gemma2");
  config["attn_logit_softcapping"] = nullptr;
  EXPECT_EQ(run_from(config).model.attn_logit_softcapping, 0);
  EXPECT_TRUE(config_of(run_from(config).model).at("attn_logit_softcapping").is_null());
  for (const char* folder : {"llama", "gpt2", "mixtral", "gpt_oss", "t5", "deepseek_v3"})
    EXPECT_EQ(family_after(folder, [](config::Model& m) { m.final_logit_softcapping = 30; }), nullptr)
        << folder;
  EXPECT_EQ(family_after("gemma3_text", [](config::Model& m) { m.attn_logit_softcapping = 50; }), nullptr);
}

TEST(HfConfig, YarnSurvivesTheRoundTripInAnyFamily) {
  auto config = config_in("qwen3");
  config["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 4.0}};
  config::Model m = run_from(config).model;
  EXPECT_EQ(m.yarn_original_max_position_embeddings, config["max_position_embeddings"]);
  EXPECT_EQ(m.mscale_all_dim, 0);
  EXPECT_EQ(m, run_from(config_of(m)).model);
  config["rope_scaling"].update({{"mscale", 0.707}, {"mscale_all_dim", 1.0}, {"truncate", false}});
  m = run_from(config).model;
  EXPECT_EQ(m.mscale, 0.707);
  EXPECT_EQ(m, run_from(config_of(m)).model);
  m.mscale_all_dim = 0;  // as an attention factor
  EXPECT_NEAR(run_from(config_of(m)).model.mscale, 0.707, 1e-12);
}

/// The recorded DeepSeek-V3 with other positions.
config::Run deepseek_with(const nlohmann::json& rope_scaling) {
  auto config = config_in("deepseek_v3");
  config.erase("rope_parameters");
  config["rope_scaling"] = rope_scaling;
  return run_from(config);
}

TEST(HfConfig, NamesTheRotaryEmbeddingOfDeepSeek) {
  const config::Model plain = deepseek_with(nullptr).model;
  EXPECT_EQ(plain.rope_type, config::RopeType::kRope);
  EXPECT_TRUE(config_of(plain).at("rope_scaling").is_null());
  EXPECT_EQ(plain, run_from(config_of(plain)).model);
  const config::Model yarn = deepseek_with({{"rope_type", "yarn"},
                                            {"factor", 40.0},
                                            {"mscale", 1.0},
                                            {"mscale_all_dim", 1.0},
                                            {"original_max_position_embeddings", 4096}})
                                 .model;
  EXPECT_EQ(yarn.rope_type, config::RopeType::kYarn);
  EXPECT_EQ(yarn, run_from(config_of(yarn)).model);
  config::Run given = config::parse({"gpt", "--rotary-scaling-factor", "40"});
  EXPECT_THROW(config::fill(given, settings_of(config_of(plain), "x/config.json"), "x/config.json"),
               ConfigError)
      << "a factor that the folder does not have";
}

// Trained here with Megatron's defaults: YaRN, which without a factor scales nothing.
TEST(HfConfig, YarnWithoutAFactorIsUnscaled) {
  config::Model m = deepseek_with(nullptr).model;
  m.rope_type = config::RopeType::kYarn;
  for (const auto positions : {config::PositionEmbedding::kRope, config::PositionEmbedding::kNone}) {
    m.position_embedding = positions;
    EXPECT_EQ(family_of(m), family_of_type("deepseek_v3"));
    EXPECT_TRUE(config_of(m).at("rope_scaling").is_null());
  }
}

TEST(HfConfig, RejectsQwenWindows) {
  const nlohmann::json window = {{"use_sliding_window", true}, {"sliding_window", 8}};
  const nlohmann::json none = {{"layer_types", nullptr}};
  for (const char* folder : {"qwen2", "qwen3"}) {
    auto some = window;
    some.update({{"layer_types", {"full_attention", "sliding_attention"}}});
    EXPECT_THAT(config_error(folder, some), HasSubstr("layer_types must be full_attention"));
    EXPECT_EQ(config_error(folder, window), "") << "layer_types gives no layer a window";
    auto by_number = window;
    by_number.update(none);
    EXPECT_EQ(config_error(folder, by_number), "") << "28 layers have none";
    by_number["max_window_layers"] = 1;
    EXPECT_THAT(config_error(folder, by_number), HasSubstr("use_sliding_window must be false"));
    EXPECT_THAT(config_error(folder, by_number), HasSubstr("got true from layer 1 on"));
    by_number["use_sliding_window"] = false;
    EXPECT_EQ(config_error(folder, by_number), "");
  }
  EXPECT_THAT(config_error("qwen3_moe", window), HasSubstr("got true from layer 0 on"));
  EXPECT_EQ(config_error("qwen3_moe", {{"use_sliding_window", true}}), "") << "sliding_window is null";
}

TEST(HfConfig, RejectsFeaturesOfOtherModels) {
  for (const char* folder : {"qwen3", "qwen3_moe"})
    EXPECT_THAT(config_error(folder, {{"attention_bias", true}}), HasSubstr("attention_bias must be false"));
  for (const char* folder : {"qwen2", "qwen3", "mixtral", "qwen3_moe"}) {
    EXPECT_THAT(config_error(folder, {{"hidden_act", "gelu"}}),
                HasSubstr("hidden_act must be silu or swish; got gelu"));
    EXPECT_THAT(config_error(folder, {{"rope_scaling", {{"rope_type", "dynamic"}}}}),
                HasSubstr("got dynamic"));
    EXPECT_THAT(config_error(folder, {{"rope_scaling", {{"rope_type", "yarn"}}}}),
                HasSubstr("factor must be given"));
  }
  EXPECT_THAT(config_error("qwen3_moe", {{"decoder_sparse_step", 0}}), HasSubstr("got 0"));
  EXPECT_THAT(config_error("qwen3_moe", {{"decoder_sparse_step", "2"}}), HasSubstr("must be an integer"));
}

TEST(HfConfig, RejectsUnsupportedGptOssAndGemmaFeatures) {
  EXPECT_THAT(config_error("gpt_oss", {{"swiglu_alpha", 1.5}}),
              HasSubstr("swiglu_alpha must be 1.702; got 1.5"));
  EXPECT_THAT(config_error("gpt_oss", {{"quantization_config", {{"quant_method", "gptq"}}}}),
              HasSubstr("quantization_config must be absent"));
  EXPECT_THAT(config_error("gpt_oss", {{"layer_types", {"full_attention"}}}),
              HasSubstr("one entry for each of 2 layers"));
  EXPECT_THAT(config_error("gpt_oss", {{"layer_types", {"full_attention", "chunked_attention"}}}),
              HasSubstr("got chunked_attention"));
  EXPECT_THAT(config_error("gemma3_text", {{"attn_logit_softcapping", 30.0}}),
              HasSubstr("must be null; got 30"));
  EXPECT_THAT(config_error("gemma3_text", {{"use_bidirectional_attention", true}}),
              HasSubstr("must be false"));
  EXPECT_THAT(config_error("gemma3_text", {{"hidden_activation", "gelu"}}), HasSubstr("got gelu"));
}

TEST(HfConfig, ReadsT5AsTransformers) {
  EXPECT_THAT(config_error("t5", {{"decoder_start_token_id", 7}}), HasSubstr("must be 0"));
  EXPECT_THAT(config_error("t5", {{"feed_forward_proj", "gated-silu"}}), HasSubstr("must be relu or gated"));
  auto config = config_in("t5");
  config.erase("scale_decoder_outputs");
  EXPECT_TRUE(run_from(config).model.scale_decoder_outputs) << "the default of T5 with a tied output layer";
  config["tie_word_embeddings"] = false;
  const auto apart = run_from(config);
  EXPECT_FALSE(apart.model.scale_decoder_outputs);
  EXPECT_EQ(names_of(apart).count("lm_head.weight"), 1U);
  config["num_decoder_layers"] = nullptr;
  config["num_layers"] = 5;
  EXPECT_EQ(run_from(config).model.num_layers, 5) << "as many as the encoder";
  EXPECT_EQ(settings_of(config, "x").at("model"), "t5");
}

TEST(HfNames, IgnoreCopiesInT5) {
  const auto run = run_of("t5");
  EXPECT_TRUE(tensor_diff(run.model, {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight",
                                      "lm_head.weight", "shared.weight"})
                  .unknown.empty());
  EXPECT_EQ(tensor_diff(run.model, {"decoder.block.7.layer.0.layer_norm.weight"}).unknown.size(), 1U);
}

}  // namespace
}  // namespace colonnade::models::hf
