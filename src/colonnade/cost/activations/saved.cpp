// See saved.h.
#include "colonnade/cost/activations/saved.h"

#include <algorithm>

#include "colonnade/layout/layer_kind.h"
#include "colonnade/layout/recompute.h"

namespace colonnade::cost {
namespace {

using layout::BlockKind;

/// Softmax outputs, those after dropout, and capped scores; a sink adds one column to the scores and one
/// value row per sequence.
std::int64_t saved_scores(const Sizes& z, const layout::LayerContextParallel& context) {
  const std::int64_t cap = z.m.attn_logit_softcapping > 0 ? 1 : 0;
  const std::int64_t softmaxes = z.m.attention_dropout > 0 ? 2 : 1;
  const std::int64_t values = context.heads > 1 ? exchanged_kv_channels(z, context) / context.heads : z.v;
  const std::int64_t sinks = has_sinks(z.m) ? z.e * (z.n * z.heads + z.b * values) : 0;
  return (cap + softmaxes) * score_bytes(z) + sinks;
}

/// Saved copies of the attention output: in the kernel's layout, and in that of the projection.
std::int64_t output_copies(const config::Run& run, const Sizes& z, std::int64_t layer) {
  if (saves_scores(run, layer) || (pads_value_heads(run, z) && z.out < z.q)) return 1;
  if (context_of_layer(run, layer).heads > 1) return 2;
  return (run.training.device == "cuda" ? z.b : z.b * z.heads) > 1 ? 2 : 1;
}

/// Saved attention mask. Ring attention rebuilds its masks. Bidirectional layers mask padding.
std::int64_t mask_bytes(const config::Run& run, const Sizes& z, std::int64_t layer) {
  if (layout::is_bidirectional(z.m, layer)) return z.b * z.seq_length * z.seq_length * z.e;
  if (context_of_layer(run, layer).ring > 1) return 0;
  const std::int64_t window = layout::attention_window(z.m, layer);
  const bool windowed = window > 0 && window < z.seq_length - 1;
  if (run.data.reset_attention_mask) return z.b * z.seq_length * z.seq_length * z.e;
  return windowed ? z.seq_length * z.seq_length * z.e : 0;
}

/// A latent between its projections: raw and normed.
std::int64_t latent_activations(const Sizes& z, std::int64_t width) {
  if (width == 0) return 0;
  return z.r * z.e * width * (z.m.qk_layernorm ? 2 : 1) + (z.m.qk_layernorm ? norm_statistics(z.m, z.r) : 0);
}

/// The shared-expert gate in fp32 and in the activations' dtype, and the output it scales.
std::int64_t shared_gate_activations(const Sizes& z) {
  return z.m.moe.shared_expert_gate ? z.hidden + z.r * (kFp32 + (z.in_fp32() ? 0 : z.e)) : 0;
}

/// Queries, keys and values of the local tokens.
std::int64_t qkv_bytes(const Sizes& z) { return z.n * z.e * (z.q + z.kv + z.v); }

/// Extra bytes of queries, keys and values in context-parallel attention.
std::int64_t extra_exchanged_qkv(const config::Run& run, const Sizes& z, std::int64_t layer) {
  return z.cp > 1 ? z.n * z.e * exchanged_qkv_channels(z, context_of_layer(run, layer)) - qkv_bytes(z) : 0;
}

}  // namespace

std::int64_t core_attention_activations(const config::Run& run, const Sizes& z, std::int64_t layer) {
  const bool unpadded = z.cp > 1 && z.out < z.heads * z.cp_head_dim;
  const std::int64_t copies = unpadded ? z.heads * z.cp_head_dim : (output_copies(run, z, layer) - 1) * z.out;
  const std::int64_t bytes = extra_exchanged_qkv(run, z, layer) + z.n * z.e * copies;
  if (saves_scores(run, layer)) return bytes + saved_scores(z, context_of_layer(run, layer));
  return bytes + z.n * kFp32 * z.heads + mask_bytes(run, z, layer);
}

namespace {

std::int64_t attention_activations(const config::Run& run, const Sizes& z, std::int64_t layer) {
  std::int64_t bytes = qkv_bytes(z) + z.n * z.e * z.out + core_attention_activations(run, z, layer);
  if (z.m.latent.enabled)
    bytes += latent_activations(z, z.m.latent.q_lora_rank) + latent_activations(z, z.m.latent.kv_lora_rank);
  else if (z.m.qk_layernorm)
    bytes += z.n * z.e * (z.q + z.kv) + norm_statistics(z.m, z.n * (z.heads + z.groups));
  if (z.m.has_rotary() && has_position_ids(run) && z.b > 1) bytes += z.n * kInt64;  // copied to [s, b] order
  return bytes;
}

}  // namespace

std::int64_t mlp_activations(const Sizes& z) { return z.n * z.e * (z.fc1 + z.ffn); }

std::int64_t routing_activations(const Sizes& z) {
  const config::Moe& moe = z.m.moe;
  const std::int64_t ranks = z.ep * z.etp, pairs = z.r * z.topk;
  const std::int64_t router = z.r * moe.num_experts * kFp32 + pairs * kInt64;
  const std::int64_t z_loss = moe.z_loss_coeff > 0 ? z.r * kFp32 * (moe.num_experts + 2) : 0;
  if (ranks > 1 && moe.token_dispatcher_type == config::TokenDispatcher::kAllGather)
    return router + z_loss + 2 * z.expert_rows * kInt64 + ranks * pairs * (kInt64 + kFp32) +
           moe.num_experts / z.ep * kInt64;
  const std::int64_t exchange = ranks > 1 ? 2 * z.expert_rows * kInt64 : 0;
  return router + z_loss + exchange + 2 * z.sent_rows * kInt64 + pairs * z.etp * (kInt64 + kFp32) +
         moe.num_experts * z.etp * kInt64;
}

namespace {

/// MoE: expert inputs and combined outputs, and the tensors of an MLP.
std::int64_t moe_activations(const Sizes& z) {
  // With jitter only shared experts save the input without noise.
  const std::int64_t jitter_input = z.m.moe.input_jitter_eps > 0 && z.shared_ffn > 0 ? z.hidden : 0;
  const std::int64_t computed = z.expert_rows * z.e * (z.m.hidden_size + (z.fc1_per_ffn + 1) * z.expert_ffn);
  return jitter_input + routing_activations(z) + computed + z.combined_rows * z.e * z.m.hidden_size +
         z.n * z.e * (z.fc1_per_ffn + 1) * z.shared_ffn + shared_gate_activations(z);
}

}  // namespace

RecomputedParts::RecomputedParts(const config::Run& run, const Sizes& z, std::int64_t layer) {
  const auto selected = [&](const char* module, std::int64_t bytes) {
    return run.recompute.recomputes(module) ? bytes : 0;
  };
  norm = selected("layernorm", z.hidden);
  core_attention = selected("core_attn", core_attention_activations(run, z, layer));
  // The rotary channels of all keys stay saved for it. Attention frees heads as it reads them, unless it is
  // recomputed too.
  qkv = selected("mla_up_proj", qkv_bytes(z) + (core_attention > 0 ? 0 : extra_exchanged_qkv(run, z, layer)) -
                                    z.n * z.e * z.m.latent.qk_pos_emb_head_dim);
  if (!z.has_experts(layer)) {
    mlp = selected("mlp", mlp_activations(z));
    return;
  }
  activation = selected("moe_act", z.expert_rows * z.e * z.expert_ffn);
  shared = selected("shared_experts", z.n * z.e * (z.fc1_per_ffn + 1) * z.shared_ffn);
  mlp = selected("moe", moe_activations(z));
}

std::int64_t mlp_or_moe_activations(const Sizes& z, std::int64_t layer, const RecomputedParts& recomputed) {
  return (z.has_experts(layer) ? moe_activations(z) : mlp_activations(z)) - recomputed.mlp -
         recomputed.activation - recomputed.shared;
}

std::int64_t cross_score_bytes(const Sequences& s) {
  const Sizes &z = s.tokens(), &t = *s.encoder();
  return z.n * t.seq_length * z.heads * z.e;
}

std::int64_t cross_attention_activations(const Sequences& s, std::int64_t layer) {
  if (!s.has_cross_attention(layer)) return 0;
  const config::Run& run = s.run(layer);
  const Sizes &z = s.tokens(), &t = *s.encoder();
  const RecomputedParts recomputed(run, z, layer);
  std::int64_t core = 0;
  if (z.m.attention_dropout > 0 || z.m.attn_logit_softcapping > 0) {
    const std::int64_t cap = z.m.attn_logit_softcapping > 0 ? 1 : 0;
    core = (cap + (z.m.attention_dropout > 0 ? 2 : 1)) * cross_score_bytes(s);
  } else {
    core = z.n * kFp32 * z.heads + z.b * z.seq_length * t.seq_length * z.e +
           (z.b * z.heads > 1 ? z.n * z.e * z.out : 0);
  }
  const std::int64_t norm = 2 * z.hidden + norm_statistics(z.m, z.r) - recomputed.norm;
  return norm + z.n * z.e * (z.q + z.out) + t.n * z.e * 2 * z.q +
         (run.recompute.recomputes("core_attn") ? 0 : core);
}

std::int64_t layer_activations(const Sequences& s, std::int64_t layer) {
  const config::Run& run = s.run(layer);
  const Sizes& z = s.of(layer);
  const RecomputedParts recomputed(run, z, layer);
  const std::int64_t norms = (z.m.sandwich_norm ? 4 : 2) + (s.ends_encoder(layer) ? 1 : 0);
  return (2 + norms) * z.hidden + norms * norm_statistics(z.m, z.r) + attention_activations(run, z, layer) +
         mlp_or_moe_activations(z, layer, recomputed) - recomputed.core_attention - recomputed.qkv -
         2 * recomputed.norm + s.other_sequence_bytes(layer) + cross_attention_activations(s, layer);
}

std::int64_t final_norm_activations(const Sizes& z) { return 2 * z.hidden + norm_statistics(z.m, z.r); }

std::int64_t mtp_activations(const Sequences& s) {
  const Sizes& z = s.tokens();
  if (z.m.mtp_num_layers == 0) return 0;
  const std::int64_t layer = layout::recomputes_mtp_layers(s.run(z.m.num_layers).recompute)
                                 ? 0
                                 : layer_activations(s, z.m.num_layers);
  const std::int64_t tokens = z.mtp_in_batch ? 0 : z.n * kInt64;
  return tokens + 3 * z.hidden + 2 * norm_statistics(z.m, z.r) + layer + final_norm_activations(z);
}

std::int64_t lm_head_transform_activations(const Sizes& z) {
  const std::int64_t transform = z.m.lm_head_transform ? 3 * z.hidden + norm_statistics(z.m, z.r) : 0;
  const std::int64_t pooled = z.b * (2 * z.m.hidden_size * z.e + 2 * (z.e + kFp32));
  return transform + (z.m.bert_binary_head ? pooled : 0);
}

namespace {

std::int64_t logit_bytes(const Sizes& z) {
  return z.n * z.vocabulary * z.e + z.n * kFp32 * (z.tp > 1 ? 3 : 2);
}

/// A copy in [s, b] order.
std::int64_t label_bytes(const Sizes& z) { return z.b > 1 ? z.n * kInt64 : 0; }

}  // namespace

std::int64_t logit_activations(const Sequences& s) {
  const Sizes& z = s.tokens();
  return logit_bytes(z) + label_bytes(z) + s.other_sequence_bytes(z.m.total_layers());
}

std::int64_t mtp_logit_activations(const Sequences& s) {
  const Sizes& z = s.tokens();
  return logit_bytes(z) + (z.mtp_in_batch ? label_bytes(z) : z.n * (kInt64 + kFp32));
}

bool mtp_apart_from_head(const config::Model& model, const layout::StageBlocks& stage) {
  return model.mtp_num_layers > 0 && stage.has(BlockKind::kFinalNorm) != stage.has(BlockKind::kHead);
}

std::int64_t post_process_activations(const Sequences& s, const layout::StageBlocks& stage) {
  const Sizes& z = s.tokens();
  const std::int64_t depths = z.m.mtp_num_layers;
  const bool apart = mtp_apart_from_head(z.m, stage);
  std::int64_t saved = 0;
  if (stage.has(BlockKind::kFinalNorm))
    saved += final_norm_activations(z) + depths * mtp_activations(s) - (apart ? z.hidden : 0);
  if (stage.has(BlockKind::kHead))
    saved += logit_activations(s) + depths * mtp_logit_activations(s) + lm_head_transform_activations(z) +
             (apart ? stage.states_in * z.hidden : 0);
  return saved;
}

std::int64_t embedding_activations(const config::Run& run, const Sizes& z) {
  const std::int64_t copied = z.sequence_parallel && z.b > 1 ? z.r * kInt64 : 0;
  const std::int64_t types = z.m.num_tokentypes > 0 ? copied : 0;
  if (z.m.position_embedding != config::PositionEmbedding::kLearnedAbsolute) return types;
  if (has_position_ids(run)) return types + copied;
  return types + (z.b == 1 ? z.n : z.r) * kInt64;
}

}  // namespace colonnade::cost
