// GPT-OSS: Llama with biases, learned sinks, sliding windows in any layers, experts with clamped quick-geglu
// in every layer.
#include "colonnade/models/hf/families/blocks.h"
#include "colonnade/models/hf/families/decoder.h"
#include "colonnade/models/hf/families/list.h"

namespace colonnade::models::hf {

using nlohmann::json;

namespace {

/// swiglu_alpha of quick GELU in config.json.
constexpr double kQuickAlpha = 1.702;

void read_gpt_oss(const ReadContext& r) {
  auto& [type, keys, faults, s, tensors] = r;
  constexpr std::int64_t kDefaultTopk = 4;
  const Sizes sizes = read_sizes(keys, {201088, 2880, 2880, 36, 64, 8, 131072, 64, 1e-5}, s);
  const json yarn = {{"rope_type", "yarn"}, {"factor", 32.0},    {"beta_fast", 32.0},
                     {"beta_slow", 1.0},    {"truncate", false}, {"original_max_position_embeddings", 4096}};
  read_positions(keys, {.theta = 150000, .max_position_embeddings = sizes.max_positions, .block = yarn},
                 faults, s);
  read_windows(keys, 2, 128, sizes.layers, s);
  keys.only("hidden_act", {"silu", "swish"});
  keys.only("attention_bias", {true});
  keys.only("swiglu_alpha", {kQuickAlpha});
  keys.alias("num_experts", "num_local_experts");
  const json experts = keys.any("experts_per_token");
  if (!keys.has("num_experts_per_tok") && !experts.is_null() && experts != kDefaultTopk)
    keys.fault("experts_per_token",
               fmt::format("must be {} without num_experts_per_tok, the only key that Transformers reads",
                           kDefaultTopk),
               experts, "write num_experts_per_tok");
  keys.alias("num_experts_per_tok", "experts_per_token");
  const auto length = s.find("yarn_original_max_position_embeddings");
  if (length != s.end()) keys.only("initial_context_length", {std::stoll(length->second)});
  s.merge(Settings{{"activation", "quick-geglu"},
                   {"glu_linear_offset", "1"},
                   {"activation_func_clamp_value", text(keys.real("swiglu_limit", 7))},
                   {"add_bias_linear", "true"},
                   {"softmax_type", "learnable"},
                   {"num_experts", text(keys.integer("num_experts", 128, 1, kMostExperts))},
                   {"moe_router_topk", text(read_topk(keys, kDefaultTopk, true))},
                   {"moe_router_score_function", "softmax"},
                   {"moe_router_pre_softmax", "false"},
                   {"moe_ffn_hidden_size", text(sizes.intermediate)},
                   {"moe_layer_freq", "1"}});
}

json write_gpt_oss(const config::Model& m) {
  json c = decoder_config(m);
  c.update({{"attention_bias", true},
            {"sliding_window", required_window(m, 128)},
            {"layer_types", layer_types(m)},
            {"intermediate_size", m.moe.ffn_hidden_size},
            {"num_local_experts", m.moe.num_experts},
            {"num_experts_per_tok", m.moe.router_topk},
            {"swiglu_alpha", kQuickAlpha},
            {"swiglu_limit", *m.activation_func_clamp_value}});
  // The class reads null as its default YaRN.
  if (c["rope_scaling"].is_null()) c["rope_scaling"] = {{"rope_type", "default"}};
  return c;
}

bool has_clamped_experts(const config::Model& m) {
  return m.glu_linear_offset == 1 && m.activation_func_clamp_value.has_value();
}

Table gpt_oss_blocks() {
  return {
      {"decoder.layers.{}.self_attention.linear_proj.bias", {"model.layers.{}.self_attn.o_proj.bias"}},
      {"decoder.layers.{}.self_attention.core_attention.softmax_offset", {"model.layers.{}.self_attn.sinks"}},
      {"decoder.layers.{}.mlp.router.weight", {"model.layers.{}.mlp.router.weight"}},
      {"decoder.layers.{}.mlp.router.bias", {"model.layers.{}.mlp.router.bias"}},
      {"decoder.layers.{}.mlp.experts.linear_fc1.weight", {"model.layers.{}.mlp.experts.gate_up_proj"}, true},
      {"decoder.layers.{}.mlp.experts.linear_fc1.bias", {"model.layers.{}.mlp.experts.gate_up_proj_bias"}},
      {"decoder.layers.{}.mlp.experts.linear_fc2.weight", {"model.layers.{}.mlp.experts.down_proj"}, true},
      {"decoder.layers.{}.mlp.experts.linear_fc2.bias", {"model.layers.{}.mlp.experts.down_proj_bias"}}};
}

}  // namespace

const Family& gpt_oss() {
  static const Family kFamily = {
      .types = {{"gpt_oss", {"GptOssForCausalLM", "GptOssModel"}}},
      .has = {Feature::kRmsNorm, Feature::kQuickGeglu, Feature::kRotary, Feature::kBias, Feature::kSinks,
              Feature::kExperts},
      .may_have = kRopeScalings | Features{Feature::kGroupedQueries, Feature::kWindow, Feature::kSomeWindows},
      .also = has_clamped_experts,
      .names = joined({embedding_and_head(), pre_norms(), attention(), qkv_biases(), gpt_oss_blocks()}),
      .read = read_gpt_oss,
      .write = write_gpt_oss};
  return kFamily;
}

}  // namespace colonnade::models::hf
