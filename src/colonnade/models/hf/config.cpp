// Writes config.json; see config.h.
#include "colonnade/models/hf/config.h"

#include <algorithm>

#include "colonnade/config/attention.h"
#include "colonnade/layout/layer_kind.h"
#include "colonnade/models/hf/bert.h"
#include "colonnade/models/hf/deepseek.h"
#include "colonnade/models/hf/gpt2.h"
#include "colonnade/models/hf/names.h"
#include "colonnade/models/hf/t5.h"

namespace colonnade::models::hf {
namespace {

using nlohmann::json;

std::string dtype_name(config::Dtype dtype) {
  switch (dtype) {
    case config::Dtype::kBfloat16:
      return "bfloat16";
    case config::Dtype::kFloat16:
      return "float16";
    default:
      return "float32";
  }
}

json yarn_scaling(const config::Model& m) {
  json scaling = {{"rope_type", "yarn"},
                  {"factor", m.rotary_scaling_factor},
                  {"beta_fast", m.yarn_beta_fast},
                  {"beta_slow", m.yarn_beta_slow},
                  {"truncate", m.yarn_correction_range_round_to_int},
                  {"original_max_position_embeddings", m.yarn_original_max_position_embeddings}};
  if (m.mscale_all_dim != 0) scaling.update({{"mscale", m.mscale}, {"mscale_all_dim", m.mscale_all_dim}});
  return scaling;
}

json rope_scaling(const config::Model& m) {
  const bool from_positions = config::rotary_of(m).from_position_embedding;
  if (m.uses_yarn() && (from_positions || m.rotary_scaling_factor > 1)) return yarn_scaling(m);
  if (!from_positions) return nullptr;
  if (m.use_rope_scaling)
    return {{"rope_type", "llama3"},
            {"factor", m.rope_scaling_factor},
            {"low_freq_factor", m.rope_low_freq_factor},
            {"high_freq_factor", m.rope_high_freq_factor},
            {"original_max_position_embeddings", m.rope_original_max_position_embeddings}};
  if (m.rotary_seq_len_interpolation_factor != 1.0)
    return {{"rope_type", "linear"}, {"factor", m.rotary_seq_len_interpolation_factor}};
  return nullptr;
}

/// model_type and class of the Llama-like families.
struct HfClass {
  Family family;
  const char* type;
  const char* architecture;
};
constexpr HfClass kLlamaLike[] = {{Family::kLlama, "llama", "LlamaForCausalLM"},
                                  {Family::kMistral, "mistral", "MistralForCausalLM"},
                                  {Family::kQwen2, "qwen2", "Qwen2ForCausalLM"},
                                  {Family::kQwen3, "qwen3", "Qwen3ForCausalLM"},
                                  {Family::kMixtral, "mixtral", "MixtralForCausalLM"},
                                  {Family::kQwen3Moe, "qwen3_moe", "Qwen3MoeForCausalLM"},
                                  {Family::kGptOss, "gpt_oss", "GptOssForCausalLM"},
                                  {Family::kGemma2, "gemma2", "Gemma2ForCausalLM"},
                                  {Family::kGemma3, "gemma3_text", "Gemma3ForCausalLM"},
                                  {Family::kDeepseekV3, "deepseek_v3", "DeepseekV3ForCausalLM"}};

json layer_types(const config::Model& m) {
  json types = json::array();
  for (std::int64_t i = 0; i < m.num_layers; ++i)
    types.push_back(layout::attention_window(m, i) > 0 ? "sliding_attention" : "full_attention");
  return types;
}

/// Transformers' window includes the token itself.
json sliding_window(const config::Model& m) { return m.window_size > 0 ? json(m.window_size + 1) : json(); }

/// sliding_window for classes that require one; their layer_types select the layers.
json required_window(const config::Model& m, std::int64_t default_value) {
  return m.window_size > 0 ? sliding_window(m) : json(default_value);
}

json gemma(const config::Model& m) {
  const auto cap = [](double at) { return at > 0 ? json(at) : json(); };
  return {{"attention_bias", false},
          {"hidden_act", "gelu_pytorch_tanh"},
          {"hidden_activation", "gelu_pytorch_tanh"},
          {"sliding_window", required_window(m, 4096)},
          {"layer_types", layer_types(m)},
          {"query_pre_attn_scalar", static_cast<std::int64_t>(*m.query_pre_attn_scalar)},
          {"attn_logit_softcapping", cap(m.attn_logit_softcapping)},
          {"final_logit_softcapping", cap(m.final_logit_softcapping)}};
}

/// Keys of a family beyond those of all Llama-like families.
json family_keys(const config::Model& m, Family family) {
  switch (family) {
    case Family::kMistral:
      return {{"sliding_window", sliding_window(m)}};
    case Family::kQwen2:
      return {{"use_sliding_window", false}};
    case Family::kQwen3:
      return {{"attention_bias", false}, {"use_sliding_window", false}};
    case Family::kMixtral:
      return {{"sliding_window", sliding_window(m)},
              {"intermediate_size", m.moe.ffn_hidden_size},
              {"num_local_experts", m.moe.num_experts},
              {"num_experts_per_tok", m.moe.router_topk}};
    case Family::kGptOss:
      return {{"attention_bias", true},
              {"sliding_window", required_window(m, 128)},
              {"layer_types", layer_types(m)},
              {"intermediate_size", m.moe.ffn_hidden_size},
              {"num_local_experts", m.moe.num_experts},
              {"num_experts_per_tok", m.moe.router_topk},
              {"swiglu_alpha", kQuickAlpha},
              {"swiglu_limit", *m.activation_func_clamp_value}};
    case Family::kGemma2:
      return gemma(m);
    case Family::kGemma3: {
      json c = gemma(m);
      c["rope_local_base_freq"] = m.rotary_base_local.value_or(10000);
      return c;
    }
    case Family::kQwen3Moe: {
      json dense = json::array();
      const std::vector<layout::LayerKind> kinds = layout::layer_kinds(m);
      for (std::size_t i = 0; i < kinds.size(); ++i)
        if (!kinds[i].is_moe()) dense.push_back(i);
      return {{"attention_bias", false},
              {"use_sliding_window", false},
              {"moe_intermediate_size", m.moe.ffn_hidden_size},
              {"num_experts", m.moe.num_experts},
              {"num_experts_per_tok", m.moe.router_topk},
              {"norm_topk_prob", !m.moe.router_pre_softmax},
              {"decoder_sparse_step", 1},
              {"mlp_only_layers", dense}};
    }
    case Family::kDeepseekV3:
      return deepseek_config(m);
    default:
      return {{"attention_bias", false}, {"mlp_bias", false}};
  }
}

json llama_config(const config::Model& m, Family family) {
  const HfClass& hf_class = *std::ranges::find(kLlamaLike, family, &HfClass::family);
  json c = {{"architectures", {hf_class.architecture}},
            {"model_type", hf_class.type},
            {"hidden_act", "silu"},
            {"hidden_size", m.hidden_size},
            {"intermediate_size", m.ffn_hidden_size},
            {"num_hidden_layers", m.num_layers},
            {"num_attention_heads", m.num_attention_heads},
            {"num_key_value_heads", m.num_query_groups},
            {"head_dim", m.kv_channels},
            {"vocab_size", m.vocab_size},
            {"max_position_embeddings", m.max_position_embeddings},
            {"rms_norm_eps", m.norm_epsilon},
            {"rope_theta", m.rotary_base},
            {"rope_scaling", rope_scaling(m)},
            {"initializer_range", m.init_method_std},
            {"attention_dropout", m.attention_dropout},
            {"tie_word_embeddings", !m.untie_embeddings_and_output_weights}};
  c.update(family_keys(m, family));
  // GPT-OSS's class reads null as its default YaRN.
  if (family == Family::kGptOss && c["rope_scaling"].is_null())
    c["rope_scaling"] = {{"rope_type", "default"}};
  return c;
}

}  // namespace

json config_of(const config::Model& model) {
  const auto family = family_of(model);
  if (!family) return nullptr;
  json c = *family == Family::kT5     ? t5_config(model)
           : *family == Family::kBert ? bert_config(model)
           : *family == Family::kGpt2 ? gpt2_config(model)
                                      : llama_config(model, *family);
  c["torch_dtype"] = dtype_name(model.params_dtype);
  return c;
}

}  // namespace colonnade::models::hf
