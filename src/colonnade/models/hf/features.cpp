// See features.h.
#include "colonnade/models/hf/features.h"

#include <algorithm>

#include "colonnade/config/attention.h"
#include "colonnade/config/stacks.h"
#include "colonnade/layout/layer_kind.h"

namespace colonnade::models::hf {
namespace {

void add_norms_and_biases(const config::Model& m, Features& f) {
  f.add(Feature::kLayerNorm, m.normalization == config::Normalization::kLayerNorm);
  f.add(Feature::kRmsNorm, m.normalization == config::Normalization::kRmsNorm);
  f.add(Feature::kZeroCenteredNorm, m.apply_layernorm_1p);
  f.add(Feature::kSandwichNorm, m.sandwich_norm);
  f.add(Feature::kNoInputNorms, !m.input_norms);
  f.add(Feature::kNoNormBias, m.normalization == config::Normalization::kLayerNorm && !m.layernorm_bias);
  f.add(Feature::kResidualAfterNorm, m.apply_residual_connection_post_layernorm);
  f.add(Feature::kParallelResidual, m.parallel_residual);
  f.add(Feature::kBias, m.add_bias_linear);
  f.add(Feature::kQkvBias, m.add_qkv_bias && !m.add_bias_linear);
  f.add(Feature::kOutputBias, m.output_layer_bias.value_or(false));
}

Feature feature_of(config::Activation activation) {
  switch (activation) {
    case config::Activation::kGeluErf:
      return Feature::kGelu;
    case config::Activation::kGeluTanh:
      return Feature::kGeluTanh;
    case config::Activation::kSquaredRelu:
      return Feature::kSquaredRelu;
    case config::Activation::kRelu:
      return Feature::kRelu;
    case config::Activation::kSwiglu:
      return Feature::kSwiglu;
    case config::Activation::kGeglu:
      return Feature::kGeglu;
    case config::Activation::kGegluTanh:
      return Feature::kGegluTanh;
    case config::Activation::kQuickGeglu:
      return Feature::kQuickGeglu;
  }
  return Feature::kCount;
}

void add_position_features(const config::Model& m, Features& f) {
  f.add(Feature::kLearnedPositions, m.position_embedding == config::PositionEmbedding::kLearnedAbsolute);
  f.add(Feature::kRelativePositions, m.position_embedding == config::PositionEmbedding::kRelative);
  if (!m.has_rotary()) return;
  const bool scales = config::rotary_of(m).from_position_embedding;
  f.add(Feature::kRotary);
  f.add(Feature::kPartialRotary,
        m.latent.enabled ? m.rotary_channels() != m.latent.qk_pos_emb_head_dim : m.rotary_percent != 1.0);
  f.add(Feature::kInterleavedRotary, m.rotary_interleaved && !m.latent.enabled);
  f.add(Feature::kLinearScaling, scales && m.rotary_seq_len_interpolation_factor != 1.0);
  f.add(Feature::kLlama3Scaling, scales && m.use_rope_scaling);
  f.add(Feature::kYarn, m.uses_yarn());
  f.add(Feature::kQueryScaling, m.query_scaling_beta != 0);
  f.add(Feature::kLongRope, m.uses_longrope());
  f.add(Feature::kLayersWithoutRope, !m.no_rope_freq.empty());
  f.add(Feature::kLocalBase, m.rotary_base_local.has_value());
}

void add_attention_features(const config::Model& m, Features& f) {
  f.add(Feature::kGroupedQueries, !m.latent.enabled && m.num_query_groups != m.num_attention_heads);
  f.add(Feature::kQkNorm, m.qk_layernorm);
  f.add(Feature::kNormAcrossHeads, m.qk_norm_across_heads);
  f.add(Feature::kNormAfterRope, m.qk_norm_after_rope);
  f.add(Feature::kClippedHeads, m.clip_qkv != 0);
  f.add(Feature::kQkL2Norm, m.qk_l2_norm);
  f.add(Feature::kWindow, m.window_size > 0);
  f.add(Feature::kSomeWindows, m.window_size > 0 && !m.window_attn_skip_freq.empty());
  f.add(Feature::kSinks, m.softmax_type == config::SoftmaxType::kLearnable);
  f.add(Feature::kOffByOneSoftmax, m.softmax_type == config::SoftmaxType::kOffByOne);
  f.add(Feature::kScoreCap, m.attn_logit_softcapping != 0);
  f.add(Feature::kScoreScale, m.query_pre_attn_scalar.has_value());
  f.add(Feature::kOutputGate, m.attention_output_gate);
  f.add(Feature::kLatentAttention, m.latent.enabled);
}

void add_expert_features(const config::Model& m, Features& f) {
  const config::Moe& moe = m.moe;
  if (moe.num_experts == 0) return;
  using config::RouterScore;
  f.add(Feature::kExperts);
  f.add(Feature::kDenseLayers,
        std::ranges::count(layout::layer_kinds(m), false, &layout::LayerKind::is_moe) > 0);
  f.add(Feature::kSharedExperts, moe.shared_expert_intermediate_size > 0);
  f.add(Feature::kSharedGate, moe.shared_expert_intermediate_size > 0 && moe.shared_expert_gate);
  f.add(Feature::kLatentExperts, moe.routed_size > 0);
  f.add(Feature::kSinkhorn, moe.uses_sinkhorn());
  f.add(Feature::kSigmoidRouter, moe.router_score_function == RouterScore::kSigmoid);
  f.add(Feature::kSqrtSoftplusRouter, moe.router_score_function != RouterScore::kSigmoid &&
                                          moe.router_score_function != RouterScore::kSoftmax);
  f.add(Feature::kExpertBias, moe.router_enable_expert_bias);
  f.add(Feature::kRouterGroups, moe.router_num_groups > 0);
  f.add(Feature::kRouterScale, moe.router_topk_scaling_factor.value_or(1) != 1);
  f.add(Feature::kPreSoftmax, moe.router_pre_softmax && moe.router_score_function == RouterScore::kSoftmax);
}

}  // namespace

Features features_of(const config::Model& m) {
  Features f;
  add_norms_and_biases(m, f);
  f.add(feature_of(m.activation));
  add_position_features(m, f);
  add_attention_features(m, f);
  add_expert_features(m, f);
  f.add(Feature::kEmbeddingFactor, m.embedding_factor != 1);
  f.add(Feature::kResidualFactor, m.residual_factor != 1);
  f.add(Feature::kLogitFactor, m.logit_factor != 1);
  f.add(Feature::kScaledEmbeddings, m.scale_embeddings);
  f.add(Feature::kLogitCap, m.final_logit_softcapping != 0);
  f.add(Feature::kScaledOutputs, m.scale_decoder_outputs);
  f.add(Feature::kMtp, m.mtp_num_layers > 0);
  f.add(Feature::kMup, m.use_mup);
  f.add(Feature::kSeveralStacks, config::has_several_stacks(m));
  f.add(Feature::kBidirectional, m.bidirectional);
  f.add(Feature::kTokenTypes, m.num_tokentypes > 0);
  f.add(Feature::kHeadTransform, m.lm_head_transform);
  return f;
}

}  // namespace colonnade::models::hf
