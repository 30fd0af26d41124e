// config.json: every key is read, known to have no effect, or rejected by name; missing keys default to those
// of the family's configuration class; conflicting blocks are rejected.
#include "colonnade/models/hf/keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/names_support.h"
#include "support/vectors.h"

namespace colonnade::models::hf {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace)
using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

json file_of(const std::string& name) {
  return json::parse(read_file(colonnade::test::vectors() + "/" + name));
}

/// Error for `config`; "" without one.
std::string fault_of(const json& config) {
  try {
    settings_of(config, "x/config.json");
    return "";
  } catch (const ConfigError& e) {
    return e.what();
  }
}

/// Error for a minimal config.json of a type with a change; "" without one.
std::string small(const char* type, const json& change) {
  json config = {{"model_type", type}};
  config.update(change);
  return fault_of(config);
}

// Configurations like published ones with settings from model cards or configuration classes of transformers
// 5.23; null: no such setting.
TEST(ConfigKeys, ReadsPublishedModels) {
  for (const json& model : file_of("config_json/published.json")) {
    const std::string name = model.at("name");
    const std::string fault = fault_of(model.at("config"));
    EXPECT_EQ(fault, "") << name;
    if (!fault.empty()) continue;
    const Settings settings = settings_of(model.at("config"), "x");
    for (const auto& [key, value] : model.at("settings").items()) {
      const auto found = settings.find(key);
      const json is = found == settings.end() ? json() : json(found->second);
      EXPECT_EQ(is, value) << name << ": " << key;
    }
    const auto run = run_from(model.at("config"));
    EXPECT_TRUE(family_of(run.model)) << name;
    EXPECT_EQ(run.model, run_from(config_of(run.model)).model) << name;
  }
}

TEST(ConfigKeys, RejectsAllUnknownKeysAtOnce) {
  const std::string fault = small("llama", {{"clip_qkv", 8.0},
                                            {"logit_scale", 0.5},
                                            {"attention_bias", true},
                                            {"residual_multiplier", 0.22},
                                            {"no_such_key", "on"},
                                            {"null_is_neutral", nullptr}});
  for (const char* part : {"clip_qkv is unknown and may change the model; got 8.0; remove the key",
                           "logit_scale must be 1; got 0.5", "attention_bias must be false; got true",
                           "residual_multiplier must be 1; got 0.22", "no_such_key is unknown"})
    EXPECT_THAT(fault, HasSubstr(std::string("x/config.json: ") + part));
  EXPECT_EQ(std::count(fault.begin(), fault.end(), '\n'), 4) << fault;
  EXPECT_THAT(fault, Not(HasSubstr("null_is_neutral")));
}

/// A change of the smallest config.json of a model type, and a part of the message that rejects it.
struct Unsupported {
  const char* type;
  json change;
  const char* part;
};

void expect_rejected(const std::vector<Unsupported>& cases) {
  for (const auto& one : cases) EXPECT_THAT(small(one.type, one.change), HasSubstr(one.part)) << one.type;
}

TEST(ConfigKeys, RejectsUnsupportedFeaturesByName) {
  expect_rejected(
      {{"gpt2", {{"scale_attn_weights", false}}, "scale_attn_weights must be true; got false"},
       {"gpt2", {{"scale_attn_by_inverse_layer_idx", true}}, "scale_attn_by_inverse_layer_idx must be false"},
       {"gpt2", {{"add_cross_attention", true}}, "add_cross_attention must be false"},
       {"gpt2", {{"n_special", 3}}, "n_special must be 0; got 3"},
       {"llama", {{"activation", "gelu"}}, "activation must be swiglu; got gelu"},
       {"llama", {{"mlp_bias", true}}, "mlp_bias must be false"},
       {"llama", {{"sliding_window", 4096}}, "sliding_window is unknown"},
       {"llama",
        {{"layer_types", json(std::vector<std::string>(32, "sliding_attention"))}},
        "layer_types must be full_attention"},
       {"llama", {{"partial_rotary_factor", 0.5}}, "partial_rotary_factor must be 1; got 0.5"},
       {"llama", {{"quantization_config", {{"quant_method", "fp8"}}}}, "quantization_config must be absent"},
       {"llama", {{"per_layer_config", {{"0", {{"hidden_act", "relu"}}}}}}, "per_layer_config must be {}"},
       {"llama", {{"text_config", {{"hidden_size", 64}}}}, "text_config is unknown"},
       {"mistral", {{"use_sliding_window", false}}, "use_sliding_window must be true"},
       {"qwen2",
        {{"use_sliding_window", true}, {"max_window_layers", 0}},
        "use_sliding_window must be false"},
       {"gemma2", {{"query_pre_attn_scalar", 32.5}}, "the values together must describe a model"},
       {"gemma2", {{"sliding_window", 8}, {"sliding_window_size", 16}}, "must agree"},
       {"gemma2", {{"use_bidirectional_attention", true}}, "use_bidirectional_attention must be false"},
       {"gemma2", {{"hidden_size", 60}}, "hidden_size must be a multiple of num_attention_heads"},
       {"gemma3_text",
        {{"rope_parameters", {{"rope_theta", 5000}}}},
        "rope_parameters.rope_theta is unknown"},
       {"t5",
        {{"feed_forward_proj", "gated-gelu"}, {"dense_act_fn", "silu"}},
        "dense_act_fn must be gelu_new"},
       {"t5", {{"feed_forward_proj", "gated-gelu"}, {"d_model", 64}, {"hidden_size", 32}}, "must agree"},
       {"bert", {{"position_embedding_type", "relative_key"}}, "position_embedding_type must be absolute"},
       {"bert", {{"is_decoder", true}}, "is_decoder must be false"}});
}

TEST(ConfigKeys, RejectsUnsupportedFeaturesOfExpertModelsByName) {
  expect_rejected(
      {{"mixtral", {{"attention_bias", true}}, "attention_bias must be false"},
       {"qwen3_moe", {{"shared_expert_intermediate_size", 64}}, "shared_expert_intermediate_size must be 0"},
       {"qwen3_moe",
        {{"num_experts", 8}, {"num_local_experts", 4}},
        "num_experts and num_local_experts must"},
       {"deepseek_v3", {{"topk_method", "greedy"}}, "topk_method must be noaux_tc; got greedy"},
       {"deepseek_v3", {{"num_key_value_heads", 8}}, "num_key_value_heads must be 128"},
       {"deepseek_v3", {{"head_dim", 192}}, "head_dim must be 64; got 192"},
       {"deepseek_v3", {{"rope_interleave", false}}, "rope_interleave must be true"},
       {"deepseek_v3", {{"n_shared_experts", 0}}, "n_shared_experts must be at least 1"},
       {"deepseek_v3", {{"first_k_dense_replace", 61}}, "first_k_dense_replace must be below the 61 layers"},
       {"deepseek_v3",
        {{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}},
        "rope_scaling must be of rope_type default or yarn: latent attention supports no other scaling; "
        "got linear"},
       {"kimi_k2",
        {{"rope_parameters",
          {{"rope_type", "llama3"}, {"factor", 8.0}, {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}}}},
        "rope_parameters must be of rope_type default or yarn"},
       {"mixtral", {{"num_experts_per_tok", 1}}, "num_experts_per_tok must be at least 2"},
       {"qwen3_moe",
        {{"num_experts_per_tok", 1}, {"norm_topk_prob", true}},
        "num_experts_per_tok must be at least 2"},
       {"gpt_oss", {{"num_experts_per_tok", 1}}, "num_experts_per_tok must be at least 2"},
       {"gpt_oss",
        {{"experts_per_token", 2}},
        "experts_per_token must be 4 without num_experts_per_tok, the only key that Transformers reads; got "
        "2; write num_experts_per_tok"},
       {"gpt_oss", {{"experts_per_token", 2}, {"num_experts_per_tok", 4}}, "must agree"},
       {"gpt_oss", {{"rope_scaling", nullptr}}, "Transformers 4 and 5 read null as different models"}});
}

/// transformers 5.23 ignores these keys, or these values.
TEST(ConfigKeys, AcceptsKeysWithoutEffect) {
  for (const char* type : {"llama", "mistral", "qwen2", "qwen3", "mixtral", "qwen3_moe", "deepseek_v3",
                           "gpt_oss", "gemma2", "gemma3_text", "gpt2"})
    for (const bool value : {false, true}) EXPECT_EQ(small(type, {{"is_decoder", value}}), "") << type;
  EXPECT_EQ(small("bert", {{"is_decoder", false}, {"language", "german"}, {"eos_token_ids", 0}}), "");
  EXPECT_EQ(small("gpt2", {{"n_special", 0}, {"predict_special_tokens", true}}), "");
  EXPECT_EQ(small("llama", {{"activation", "swiglu"}, {"hidden_act", "silu"}}), "");
  EXPECT_EQ(small("gpt_oss", {{"experts_per_token", 4}}), "") << "the default of num_experts_per_tok";
  EXPECT_EQ(small("qwen3_moe", {{"num_experts_per_tok", 1}, {"norm_topk_prob", false}}), "");
  EXPECT_EQ(small("deepseek_v3", {{"rope_scaling", {{"type", "linear"}, {"factor", 1.0}}}}), "");
}

TEST(ConfigKeys, RequiresAClassOfTheModelType) {
  EXPECT_EQ(small("llama", {{"architectures", {"LlamaForCausalLM"}}}), "");
  EXPECT_THAT(small("llama", {{"architectures", {"LlamaForSequenceClassification"}}}),
              HasSubstr("architectures must be LlamaForCausalLM with model_type llama; got "
                        "LlamaForSequenceClassification"));
  EXPECT_THAT(small("qwen2", {{"architectures", {"LlamaForCausalLM"}}}), HasSubstr("Qwen2ForCausalLM"));
  EXPECT_THAT(fault_of({{"hidden_size", 64}}), HasSubstr("model_type must be one of"));
  EXPECT_THAT(fault_of({{"model_type", "other_vl"}, {"text_config", {{"model_type", "llama"}}}}),
              HasSubstr("got other_vl; save the text model that text_config describes"));
  EXPECT_THAT(small("gemma2", {{"final_logit_softcapping", 0.0}}), HasSubstr("must be a number of at least"));
}

TEST(ConfigKeys, NamesKeysOfWrongTypeOrRange) {
  const struct {
    json change;
    const char* part;
  } kCases[] = {
      {{{"hidden_size", "64"}}, "hidden_size must be an integer from 1 to 1000000000; got \"64\""},
      {{{"hidden_size", 64.0}}, "hidden_size must be an integer from 1 to 1000000000; got 64.0"},
      {{{"hidden_size", nullptr}}, "hidden_size must be an integer"},
      {{{"num_hidden_layers", -1}}, "num_hidden_layers must be an integer from 1 to 10000; got -1"},
      {{{"num_hidden_layers", 1'000'000}}, "num_hidden_layers must be an integer from 1 to 10000"},
      {{{"vocab_size", 18446744073709551615ULL}}, "vocab_size must be an integer"},
      {{{"num_attention_heads", 0}}, "num_attention_heads must be an integer from 1"},
      {{{"num_key_value_heads", {4}}}, "num_key_value_heads must be an integer"},
      {{{"rms_norm_eps", "1e-5"}}, "rms_norm_eps must be a number from 0 to 1; got \"1e-5\""},
      {{{"rms_norm_eps", -1e-5}}, "rms_norm_eps must be a number from 0 to 1; got -1e-05"},
      {{{"rope_theta", 0}}, "rope_theta must be a number of at least 1; got 0"},
      {{{"rope_theta", nullptr}}, "rope_theta must be a number"},
      {{{"tie_word_embeddings", "false"}}, "tie_word_embeddings must be true or false; got \"false\""},
      {{{"rope_scaling", "linear"}}, "rope_scaling must be a JSON object; got \"linear\""},
      {{{"rope_scaling", {{"rope_type", 3}}}}, "rope_scaling.rope_type must be a string; got 3"},
      {{{"layer_types", 7}}, "layer_types must be a list with one entry for each of 32 layers; got 7"},
      {{{"hidden_size", 63}}, "must be a multiple of num_attention_heads"},
      {{{"attention_dropout", 1.5}}, "attention_dropout must be a number from 0 to 1"}};
  for (const auto& one : kCases) EXPECT_THAT(small("llama", one.change), HasSubstr(one.part));
  EXPECT_THAT(fault_of(json::array()), HasSubstr("must be a JSON object"));
}

TEST(ConfigKeys, ReadsPositionsAnywhere) {
  const auto theta = [](const char* folder) {
    return run_from(file_of(std::string("cases/") + folder)).model;
  };
  EXPECT_EQ(theta("theta-in-rope-scaling/hf/config.json").rotary_base, 50000);
  EXPECT_EQ(theta("deepseek-theta-in-rope-scaling/hf/config.json").rotary_base, 50000);
  EXPECT_EQ(theta("llama3-length-at-top/hf/config.json").rope_original_max_position_embeddings, 8);
  EXPECT_EQ(theta("yarn-length-at-top/hf/config.json").yarn_original_max_position_embeddings, 8);
  // Without a length: max_position_embeddings.
  const json llama3 = {
      {"rope_type", "llama3"}, {"factor", 8.0}, {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}};
  const config::Model m =
      run_from({{"model_type", "llama"}, {"max_position_embeddings", 512}, {"rope_scaling", llama3}}).model;
  EXPECT_EQ(m.rope_original_max_position_embeddings, 512);
}

TEST(ConfigKeys, RejectsConflictingPositions) {
  EXPECT_THAT(fault_of(file_of("cases/two-rope-blocks/config.json")),
              HasSubstr("rope_scaling must agree with rope_parameters"));
  EXPECT_THAT(fault_of(file_of("cases/gpt2-scores-unscaled/config.json")), HasSubstr("scale_attn_weights"));
  const json linear = {{"rope_type", "linear"}, {"factor", 2.0}};
  json block = linear;
  block["rope_theta"] = 5000;
  EXPECT_THAT(small("llama", {{"rope_theta", 10000.0}, {"rope_parameters", block}}),
              HasSubstr("rope_theta must agree with rope_theta of the block of positions; got "
                        "[10000.0,5000.0]; remove the wrong one"));
  // Equivalent blocks do not conflict.
  EXPECT_EQ(small("llama", {{"rope_theta", 5000.0},
                            {"rope_scaling", {{"type", "linear"}, {"factor", 2}}},
                            {"rope_parameters", block}}),
            "");
  EXPECT_THAT(small("llama", {{"rope_scaling", {{"type", "linear"}, {"rope_type", "yarn"}, {"factor", 2}}}}),
              HasSubstr("rope_scaling.rope_type and type must agree"));
  EXPECT_THAT(small("llama", {{"original_max_position_embeddings", 8},
                              {"rope_scaling",
                               {{"type", "yarn"}, {"factor", 2}, {"original_max_position_embeddings", 16}}}}),
              HasSubstr("original_max_position_embeddings must agree with that of the block"));
  EXPECT_THAT(small("gemma3_text", {{"rope_local_base_freq", 5000},
                                    {"rope_parameters", {{"sliding_attention", {{"rope_theta", 10000}}}}}}),
              HasSubstr("rope_local_base_freq must agree"));
}

/// Gemma 3's positions as in transformers 5.23 (rope_parameters of the configuration, and the frequencies).
TEST(ConfigKeys, ReadsGemma3PositionsAsTransformers) {
  const auto flat = [](json block) { return json::object({{"rope_scaling", std::move(block)}}); };
  const auto nested = [](json block) {
    return json::object({{"rope_parameters", json::object({{"full_attention", std::move(block)}})}});
  };
  const auto model = [](json config) {
    config["model_type"] = "gemma3_text";
    return run_from(config).model;
  };
  const json linear = {{"type", "linear"}, {"factor", 2.0}};
  EXPECT_THAT(small("gemma3_text", flat(linear)),
              HasSubstr("rope_scaling.type must be named rope_type: Transformers ignores type for this "
                        "class; got linear; write rope_type"));
  EXPECT_EQ(small("gemma3_text", flat({{"type", "default"}})), "");
  EXPECT_EQ(model(nested(linear)).rotary_seq_len_interpolation_factor, 2);
  json both = nested(linear);
  both.update(flat(linear));
  EXPECT_EQ(model(both).rotary_seq_len_interpolation_factor, 2) << "rope_type comes from the nested block";

  const json yarn = {{"rope_type", "yarn"}, {"factor", 4.0}};
  for (json config : {flat(yarn), nested(yarn)}) {
    EXPECT_EQ(model(config).yarn_original_max_position_embeddings, 131072);
    config["original_max_position_embeddings"] = 16;
    EXPECT_THAT(small("gemma3_text", config),
                HasSubstr("original_max_position_embeddings must be in the block of positions"));
    config["original_max_position_embeddings"] = 131072;
    EXPECT_EQ(small("gemma3_text", config), "");
  }
  json scaled = nested({{"rope_type", "linear"}, {"factor", 2.0}});
  scaled["original_max_position_embeddings"] = 16;
  EXPECT_EQ(small("gemma3_text", scaled), "") << "a length alone scales nothing";

  json cut = yarn;
  cut.update({{"original_max_position_embeddings", 16}, {"truncate", true}});
  EXPECT_EQ(model(nested(cut)).yarn_original_max_position_embeddings, 16);
  cut["truncate"] = false;
  EXPECT_THAT(small("gemma3_text", flat(cut)), HasSubstr("rope_scaling.truncate must be true"));
  EXPECT_THAT(small("gemma3_text", nested(cut)),
              HasSubstr("rope_parameters.full_attention.truncate must be true"));
  config::Model m = model(flat(yarn));
  EXPECT_EQ(family_of(m), family_of_type("gemma3_text"));
  m.yarn_correction_range_round_to_int = false;
  EXPECT_FALSE(family_of(m)) << "its class would round";
}

TEST(ConfigKeys, ReadsOrRejectsRopeScaling) {
  const auto scaled = [](json block) { return small("llama", {{"rope_scaling", std::move(block)}}); };
  EXPECT_THAT(scaled({{"rope_type", "yarn"}}), HasSubstr("rope_scaling.factor must be given"));
  EXPECT_THAT(scaled({{"rope_type", "llama3"}, {"factor", 8.0}}), HasSubstr("low_freq_factor must be given"));
  EXPECT_THAT(scaled({{"rope_type", "longrope"}, {"long_factor", {1}}}), HasSubstr("got longrope"));
  EXPECT_THAT(scaled({{"rope_type", "linear"}, {"factor", 2}, {"mscale", 1}}),
              HasSubstr("rope_scaling.mscale is unknown"));
  EXPECT_THAT(scaled({{"rope_type", "linear"}, {"factor", 2}, {"partial_rotary_factor", 0.5}}),
              HasSubstr("rope_scaling.partial_rotary_factor must be 1"));
  EXPECT_THAT(scaled({{"rope_type", "linear"}, {"factor", 0.5}}),
              HasSubstr("factor must be a number from 1"));
  EXPECT_THAT(scaled({{"rope_type", "default"}, {"factor", 4}}), HasSubstr("factor must be 1; got 4"));
  EXPECT_THAT(scaled({{"rope_type", "yarn"}, {"factor", 4}, {"attention_factor", 0.5}}),
              HasSubstr("attention_factor must be 1.138"));
  EXPECT_EQ(scaled({{"rope_type", "yarn"}, {"factor", 4}, {"attention_factor", 2.0}}), "");
  EXPECT_EQ(scaled({{"rope_type", "yarn"}, {"factor", 4}, {"attention_factor", 1.138629436111989}}), "");
  // A factor of 1 scales nothing.
  EXPECT_EQ(run_from({{"model_type", "llama"}, {"rope_scaling", {{"type", "yarn"}, {"factor", 1.0}}}})
                .model.position_embedding,
            config::PositionEmbedding::kRope);
}

TEST(ConfigKeys, ReadsDropoutWithClassDefaults) {
  const auto dropout = [](const char* type, const json& change) {
    json config = {{"model_type", type}};
    if (change.is_object()) config.update(change);
    const config::Model m = run_from(config).model;
    return std::pair(m.hidden_dropout, m.attention_dropout);
  };
  using Two = std::pair<double, double>;
  for (const char* type :
       {"llama", "mistral", "qwen2", "qwen3", "mixtral", "qwen3_moe", "gemma2", "gemma3_text"})
    EXPECT_EQ(dropout(type, {}), Two(0, 0)) << type;
  EXPECT_EQ(dropout("llama", {{"attention_dropout", 0.25}}), Two(0, 0.25));
  EXPECT_EQ(dropout("gpt2", {}), Two(0.1, 0.1));
  EXPECT_EQ(dropout("gpt2", {{"attn_pdrop", 0.0}, {"resid_pdrop", 0}, {"embd_pdrop", 0}}), Two(0, 0));
  EXPECT_EQ(dropout("bert", {{"hidden_dropout_prob", 0.0}}), Two(0, 0.1));
  EXPECT_EQ(dropout("t5", {{"feed_forward_proj", "gated-gelu"}, {"dropout_rate", 0.05}}), Two(0.05, 0.05));
  EXPECT_FALSE(settings_of({{"model_type", "gpt2"}, {"embd_pdrop", 0.0}}, "x").contains("hidden_dropout"))
      << "no setting expresses two";
}

/// Models that transformers 5.23 would not open, or open as another model, get no config.json.
TEST(ConfigKeys, WritesConfigsThatTransformersReads) {
  config::Model m = run_of("gemma2").model;
  EXPECT_TRUE(config_of(m).at("query_pre_attn_scalar").is_number_integer());
  m.query_pre_attn_scalar = 32.5;
  EXPECT_FALSE(family_of(m)) << "a integer in Gemma2Config";
  m = run_of("gpt_oss").model;
  m.position_embedding = config::PositionEmbedding::kRope;
  EXPECT_EQ(config_of(m).at("rope_scaling"), (json{{"rope_type", "default"}})) << "null means YaRN there";
  // Their classes cannot compute without sliding_window, even where no layer has one.
  const struct {
    const char* folder;
    int window;
  } kByKind[] = {{"gemma2", 4096}, {"gemma3_text", 4096}, {"gpt_oss", 128}};
  for (const auto& one : kByKind) {
    json config = config_in(one.folder);
    config["layer_types"] = json::array({"full_attention", "full_attention"});
    m = run_from(config).model;
    config = config_of(m);
    EXPECT_EQ(config.at("sliding_window"), one.window) << one.folder;
    EXPECT_EQ(config.at("layer_types"), json::array({"full_attention", "full_attention"})) << one.folder;
    EXPECT_EQ(m, run_from(config).model) << one.folder;
  }
  // LlamaConfig requires hidden_size % heads == 0; Mistral has the same layers without this rule.
  m = run_of("llama_plain").model;
  m.hidden_size = 66;
  EXPECT_EQ(family_of(m), family_of_type("mistral"));
  EXPECT_TRUE(config_of(m).at("sliding_window").is_null());
}

}  // namespace
}  // namespace colonnade::models::hf
