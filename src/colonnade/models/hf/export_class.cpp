// See export_class.h.
#include "colonnade/models/hf/export_class.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <span>
#include <vector>

#include "colonnade/models/hf/config.h"

namespace colonnade::models::hf {
namespace {

using config::Model;

/// A change of one setting that may make a family fit.
struct Change {
  const char* flags;
  void (*apply)(Model&);
};

/// Ordered by likelihood: the first change that suffices is reported.
constexpr Change kChanges[] = {
    {"with --position-embedding-type rope",
     [](Model& m) { m.position_embedding = config::PositionEmbedding::kRope; }},
    {"with --normalization RMSNorm", [](Model& m) { m.normalization = config::Normalization::kRmsNorm; }},
    {"with --swiglu", [](Model& m) { m.activation = config::Activation::kSwiglu; }},
    {"with --disable-bias-linear", [](Model& m) { m.add_bias_linear = false; }},
    {"without --add-qkv-bias", [](Model& m) { m.add_qkv_bias = false; }},
    {"without --apply-layernorm-1p", [](Model& m) { m.apply_layernorm_1p = false; }},
    {"without --qk-layernorm", [](Model& m) { m.qk_layernorm = false; }},
    {"with --qk-layernorm", [](Model& m) { m.qk_layernorm = true; }},
    {"without --qk-norm-across-heads", [](Model& m) { m.qk_norm_across_heads = false; }},
    {"without --qk-norm-after-rope", [](Model& m) { m.qk_norm_after_rope = false; }},
    {"without --clip-qkv", [](Model& m) { m.clip_qkv = 0; }},
    {"without --no-rope-freq", [](Model& m) { m.no_rope_freq.clear(); }},
    {"without --longrope-short-factor", [](Model& m) { m.longrope_short_factor.clear(); }},
    {"with --input-norms", [](Model& m) { m.input_norms = true; }},
    {"with --layernorm-bias", [](Model& m) { m.layernorm_bias = true; }},
    {"with --residual-factor 1", [](Model& m) { m.residual_factor = 1; }},
    {"with --embedding-factor 1", [](Model& m) { m.embedding_factor = 1; }},
    {"with --logit-factor 1", [](Model& m) { m.logit_factor = 1; }},
    {"without --qk-l2-norm", [](Model& m) { m.qk_l2_norm = false; }},
    {"without --attention-output-gate", [](Model& m) { m.attention_output_gate = false; }},
    {"without --use-mup", [](Model& m) { m.use_mup = false; }},
    {"without --group-query-attention", [](Model& m) { m.num_query_groups = m.num_attention_heads; }},
    {"without --kv-channels", [](Model& m) { m.kv_channels = m.hidden_size / m.num_attention_heads; }},
    {"without --window-size", [](Model& m) { m.window_size = 0; }},
    {"without --window-attn-skip-freq", [](Model& m) { m.window_attn_skip_freq.clear(); }},
    {"with --rotary-percent 1", [](Model& m) { m.rotary_percent = 1; }},
    {"without --rotary-interleaved", [](Model& m) { m.rotary_interleaved = false; }},
    {"without --use-rope-scaling", [](Model& m) { m.use_rope_scaling = false; }},
    {"with --rotary-seq-len-interpolation-factor 1",
     [](Model& m) { m.rotary_seq_len_interpolation_factor = 1; }},
    {"with --mscale 1 and --mscale-all-dim 1", [](Model& m) { m.mscale = m.mscale_all_dim = 1; }},
    {"without --rotary-base-local", [](Model& m) { m.rotary_base_local.reset(); }},
    {"with --softmax-type vanilla", [](Model& m) { m.softmax_type = config::SoftmaxType::kVanilla; }},
    {"without --attn-logit-softcapping", [](Model& m) { m.attn_logit_softcapping = 0; }},
    {"without --final-logit-softcapping", [](Model& m) { m.final_logit_softcapping = 0; }},
    {"without --query-pre-attn-scalar", [](Model& m) { m.query_pre_attn_scalar.reset(); }},
    {"without --parallel-residual", [](Model& m) { m.parallel_residual = false; }},
    {"without --sandwich-norm", [](Model& m) { m.sandwich_norm = false; }},
    {"without --scale-embeddings", [](Model& m) { m.scale_embeddings = false; }},
    {"without --mtp-num-layers", [](Model& m) { m.mtp_num_layers = 0; }},
    {"with --norm-epsilon 1e-6", [](Model& m) { m.norm_epsilon = 1e-6; }},
    {"without --moe-layer-freq", [](Model& m) { m.moe.layer_freq = std::string("1"); }},
    {"with --moe-router-score-function softmax",
     [](Model& m) { m.moe.router_score_function = config::RouterScore::kSoftmax; }},
    {"with --moe-router-score-function sigmoid",
     [](Model& m) { m.moe.router_score_function = config::RouterScore::kSigmoid; }},
    {"with --moe-router-load-balancing-type aux_loss",
     [](Model& m) {
       if (m.moe.uses_sinkhorn()) m.moe.router_load_balancing_type = {"aux_loss"};
     }},
    {"without --moe-router-pre-softmax", [](Model& m) { m.moe.router_pre_softmax = false; }},
    {"without --moe-router-num-groups", [](Model& m) { m.moe.router_num_groups = 0; }},
    {"without --moe-router-topk-scaling-factor", [](Model& m) { m.moe.router_topk_scaling_factor.reset(); }},
    {"without --moe-router-enable-expert-bias", [](Model& m) { m.moe.router_enable_expert_bias = false; }},
    {"with --moe-router-enable-expert-bias", [](Model& m) { m.moe.router_enable_expert_bias = true; }},
    {"without --moe-shared-expert-intermediate-size",
     [](Model& m) { m.moe.shared_expert_intermediate_size = 0; }},
    {"with --no-output-layer-bias", [](Model& m) { m.output_layer_bias = false; }},
    {"with --query-pre-attn-scalar 1", [](Model& m) { m.query_pre_attn_scalar = 1; }},
    {"without --apply-residual-connection-post-layernorm",
     [](Model& m) { m.apply_residual_connection_post_layernorm = false; }},
    {"with --apply-residual-connection-post-layernorm",
     [](Model& m) { m.apply_residual_connection_post_layernorm = true; }},
    {"with --position-embedding-type learned_absolute",
     [](Model& m) { m.position_embedding = config::PositionEmbedding::kLearnedAbsolute; }},
    {"with --activation gelu", [](Model& m) { m.activation = config::Activation::kGeluErf; }},
    {"with --normalization LayerNorm", [](Model& m) { m.normalization = config::Normalization::kLayerNorm; }},
    {"with --add-bias-linear", [](Model& m) { m.add_bias_linear = true; }},
    {"with --position-embedding-type relative",
     [](Model& m) { m.position_embedding = config::PositionEmbedding::kRelative; }},
    {"with --activation geglu-tanh", [](Model& m) { m.activation = config::Activation::kGegluTanh; }},
};

std::string class_of(const Model& model) {
  const nlohmann::json config = config_of(model);
  return config.is_null() ? "" : config.at("architectures").at(0).get<std::string>();
}

/// Class of `model` after the first `count` changes, in table order from `from` on, that give it one; appends
/// their flags to `flags`. "" if none do.
std::string class_after(const Model& model, std::span<const Change> from, int count,
                        std::vector<std::string>& flags) {
  for (std::size_t i = 0; i < from.size(); ++i) {
    Model changed = model;
    from[i].apply(changed);
    if (changed == model) continue;
    flags.emplace_back(from[i].flags);
    std::string name =
        count == 1 ? class_of(changed) : class_after(changed, from.subspan(i + 1), count - 1, flags);
    if (!name.empty()) return name;
    flags.pop_back();
  }
  return "";
}

}  // namespace

std::string export_text(const Model& model) {
  if (std::string name = class_of(model); !name.empty()) return name;
  for (int count = 1; count <= 3; ++count) {
    std::vector<std::string> flags;
    const std::string name = class_after(model, kChanges, count, flags);
    if (!name.empty())
      return fmt::format("no Hugging Face class: {} it would be {}", fmt::join(flags, ", "), name);
  }
  return "no Hugging Face class: none has such layers";
}

}  // namespace colonnade::models::hf
