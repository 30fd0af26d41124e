// See kept.h.
#include "colonnade/cost/activations/kept.h"

#include <algorithm>

#include "colonnade/layout/params/gpt.h"
#include "colonnade/layout/recompute.h"

namespace colonnade::cost {
namespace {

/// Shares of the scores, those that are left of them, and scores under their cap; a sink is one more of each
/// row, and one more value of each sequence.
std::int64_t kept_scores(const Sizes& z, const layout::ContextLayer& context) {
  const std::int64_t cap = z.m.attn_logit_softcapping > 0 ? 1 : 0;
  const std::int64_t shares = z.m.attention_dropout > 0 ? 2 : 1;
  const std::int64_t values = context.heads > 1 ? exchanged_keys(z, context) / context.heads : z.v;
  const std::int64_t sinks = has_sinks(z.m) ? z.e * (z.n * z.heads + z.b * values) : 0;
  return (cap + shares) * scores(z) + sinks;
}

/// How often the attention output is kept: as the kernel wrote it, and in the order of the projection.
std::int64_t output_copies(const config::Run& run, const Sizes& z, std::int64_t layer) {
  if (keeps_scores(run, layer) || (fills_heads(run, z) && z.out < z.q)) return 1;
  if (across(run, layer).heads > 1) return 2;
  return (run.training.device == "cuda" ? z.b : z.b * z.heads) > 1 ? 2 : 1;
}

/// Of blocks of keys the mask is made again. That of layers which see both ways hides what fills sequences
/// up.
std::int64_t mask_bytes(const config::Run& run, const Sizes& z, std::int64_t layer) {
  if (layout::sees_both_ways(z.m, layer)) return z.b * z.length * z.length * z.e;
  if (across(run, layer).ring > 1) return 0;
  const std::int64_t window = layout::window_of(z.m, layer);
  const bool windowed = window > 0 && window < z.length - 1;
  if (run.data.reset_attention_mask) return z.b * z.length * z.length * z.e;
  return windowed ? z.length * z.length * z.e : 0;
}

/// A narrow vector between its projections: as it is, and normed.
std::int64_t narrow_activations(const Sizes& z, std::int64_t width) {
  if (width == 0) return 0;
  return z.r * z.e * width * (z.m.qk_layernorm ? 2 : 1) + (z.m.qk_layernorm ? norm_statistics(z.m, z.r) : 0);
}

/// The gate in fp32 and in the type of layers, and what it weighs.
std::int64_t shared_gate_activations(const Sizes& z) {
  return z.m.moe.shared_expert_gate ? z.hidden + z.r * (kFp32 + (z.e == kFp32 ? 0 : z.e)) : 0;
}

/// Queries, keys and values of this rank's tokens.
std::int64_t qkv_bytes(const Sizes& z) { return z.n * z.e * (z.q + z.kv + z.v); }

/// What queries, keys and values take more as context ranks read them.
std::int64_t shared_more(const config::Run& run, const Sizes& z, std::int64_t layer) {
  return z.cp > 1 ? z.n * z.e * shared_channels(z, across(run, layer)) - qkv_bytes(z) : 0;
}

}  // namespace

std::int64_t core_activations(const config::Run& run, const Sizes& z, std::int64_t layer) {
  const bool narrowed = z.cp > 1 && z.out < z.heads * z.wide;
  const std::int64_t copies = narrowed ? z.heads * z.wide : (output_copies(run, z, layer) - 1) * z.out;
  const std::int64_t bytes = shared_more(run, z, layer) + z.n * z.e * copies;
  if (keeps_scores(run, layer)) return bytes + kept_scores(z, across(run, layer));
  return bytes + z.n * kFp32 * z.heads + mask_bytes(run, z, layer);
}

namespace {

std::int64_t attention_activations(const config::Run& run, const Sizes& z, std::int64_t layer) {
  std::int64_t bytes = qkv_bytes(z) + z.n * z.e * z.out + core_activations(run, z, layer);
  if (z.m.latent.enabled)
    bytes += narrow_activations(z, z.m.latent.q_lora_rank) + narrow_activations(z, z.m.latent.kv_lora_rank);
  else if (z.m.qk_layernorm)
    bytes += z.n * z.e * (z.q + z.kv) + norm_statistics(z.m, z.n * (z.heads + z.groups));
  if (z.m.rotary() && has_positions(run) && z.b > 1) bytes += z.n * kInt64;  // in the order (s, b)
  return bytes;
}

}  // namespace

std::int64_t mlp_activations(const Sizes& z) { return z.n * z.e * (z.fc1 + z.ffn); }

std::int64_t routing_activations(const Sizes& z) {
  const config::Moe& moe = z.m.moe;
  const std::int64_t ranks = z.ep * z.etp, pairs = z.r * z.k;
  const std::int64_t router = z.r * moe.num_experts * kFp32 + pairs * kInt64;
  const std::int64_t z_loss = moe.z_loss_coeff > 0 ? z.r * kFp32 * (moe.num_experts + 2) : 0;
  if (ranks > 1 && moe.token_dispatcher_type == config::TokenDispatcher::kAllGather)
    return router + z_loss + 2 * z.rows * kInt64 + ranks * pairs * (kInt64 + kFp32) +
           moe.num_experts / z.ep * kInt64;
  const std::int64_t exchange = ranks > 1 ? 2 * z.rows * kInt64 : 0;
  return router + z_loss + exchange + 2 * z.chosen * kInt64 + pairs * z.etp * (kInt64 + kFp32) +
         moe.num_experts * z.etp * kInt64;
}

namespace {

/// Rows come in, and their sums out, beside what an MLP keeps.
std::int64_t expert_activations(const Sizes& z) {
  // With jitter nobody but shared experts keeps what the router reads without it.
  const std::int64_t noisy = z.m.moe.input_jitter_eps > 0 && z.shared_ffn > 0 ? z.hidden : 0;
  const std::int64_t computed = z.rows * z.e * (z.m.hidden_size + (z.up + 1) * z.expert_ffn);
  return noisy + routing_activations(z) + computed + z.weighed * z.e * z.m.hidden_size +
         z.n * z.e * (z.up + 1) * z.shared_ffn + shared_gate_activations(z);
}

}  // namespace

Again::Again(const config::Run& run, const Sizes& z, std::int64_t layer) {
  const auto of = [&](const char* module, std::int64_t bytes) {
    return run.recompute.selects(module) ? bytes : 0;
  };
  norm = of("layernorm", z.hidden);
  core = of("core_attn", core_activations(run, z, layer));
  // The turning channels of all keys are kept for it. Attention frees heads as it reads them, if it is not
  // made again itself.
  heads = of("mla_up_proj", qkv_bytes(z) + (core > 0 ? 0 : shared_more(run, z, layer)) -
                                z.n * z.e * z.m.latent.qk_pos_emb_head_dim);
  if (!z.has_experts(layer)) {
    mlp = of("mlp", mlp_activations(z));
    return;
  }
  activation = of("moe_act", z.rows * z.e * z.expert_ffn);
  shared = of("shared_experts", z.n * z.e * (z.up + 1) * z.shared_ffn);
  mlp = of("moe", expert_activations(z));
}

std::int64_t mlp_part(const Sizes& z, std::int64_t layer, const Again& again) {
  return (z.has_experts(layer) ? expert_activations(z) : mlp_activations(z)) - again.mlp - again.activation -
         again.shared;
}

std::int64_t cross_scores(const Sequences& s) {
  const Sizes &z = s.tokens(), &t = *s.encoder();
  return z.n * t.length * z.heads * z.e;
}

std::int64_t cross_activations(const Sequences& s, std::int64_t layer) {
  if (!s.crosses(layer)) return 0;
  const config::Run& run = s.run(layer);
  const Sizes &z = s.tokens(), &t = *s.encoder();
  const Again again(run, z, layer);
  std::int64_t core = 0;
  if (z.m.attention_dropout > 0 || z.m.attn_logit_softcapping > 0) {
    const std::int64_t cap = z.m.attn_logit_softcapping > 0 ? 1 : 0;
    core = (cap + (z.m.attention_dropout > 0 ? 2 : 1)) * cross_scores(s);
  } else {
    core =
        z.n * kFp32 * z.heads + z.b * z.length * t.length * z.e + (z.b * z.heads > 1 ? z.n * z.e * z.out : 0);
  }
  const std::int64_t norm = 2 * z.hidden + norm_statistics(z.m, z.r) - again.norm;
  return norm + z.n * z.e * (z.q + z.out) + t.n * z.e * 2 * z.q +
         (run.recompute.selects("core_attn") ? 0 : core);
}

std::int64_t layer_activations(const Sequences& s, std::int64_t layer) {
  const config::Run& run = s.run(layer);
  const Sizes& z = s.of(layer);
  const Again again(run, z, layer);
  const std::int64_t norms = (z.m.sandwich_norm ? 4 : 2) + (s.ends_encoder(layer) ? 1 : 0);
  return (2 + norms) * z.hidden + norms * norm_statistics(z.m, z.r) + attention_activations(run, z, layer) +
         mlp_part(z, layer, again) - again.core - again.heads - 2 * again.norm + s.beside(layer) +
         cross_activations(s, layer);
}

std::int64_t final_norm_activations(const Sizes& z) { return 2 * z.hidden + norm_statistics(z.m, z.r); }

std::int64_t prediction_activations(const Sequences& s) {
  const Sizes& z = s.tokens();
  if (z.m.mtp_num_layers == 0) return 0;
  const std::int64_t layer = layout::makes_predictions_again(s.run(z.m.num_layers).recompute)
                                 ? 0
                                 : layer_activations(s, z.m.num_layers);
  const std::int64_t tokens = z.further_in_batch ? 0 : z.n * kInt64;
  return tokens + 3 * z.hidden + 2 * norm_statistics(z.m, z.r) + layer + final_norm_activations(z);
}

std::int64_t transform_activations(const Sizes& z) {
  const std::int64_t made = z.m.lm_head_transform ? 3 * z.hidden + norm_statistics(z.m, z.r) : 0;
  const std::int64_t pooled = z.b * (2 * z.m.hidden_size * z.e + 2 * (z.e + kFp32));
  return made + (z.m.bert_binary_head ? pooled : 0);
}

namespace {

std::int64_t logits(const Sizes& z) { return z.n * z.vocabulary * z.e + z.n * kFp32 * (z.tp > 1 ? 3 : 2); }

/// In the order (s, b) a copy.
std::int64_t labels(const Sizes& z) { return z.b > 1 ? z.n * kInt64 : 0; }

}  // namespace

std::int64_t logit_activations(const Sequences& s) {
  const Sizes& z = s.tokens();
  return logits(z) + labels(z) + s.beside(z.m.all_layers());
}

std::int64_t further_logit_activations(const Sequences& s) {
  const Sizes& z = s.tokens();
  return logits(z) + (z.further_in_batch ? labels(z) : z.n * (kInt64 + kFp32));
}

bool ends_apart(const config::Model& model, const layout::StageBlocks& stage) {
  return model.mtp_num_layers > 0 && stage.final_norm != stage.head;
}

std::int64_t end_activations(const Sequences& s, const layout::StageBlocks& stage) {
  const Sizes& z = s.tokens();
  const std::int64_t depths = z.m.mtp_num_layers;
  const bool apart = ends_apart(z.m, stage);
  std::int64_t kept = 0;
  if (stage.final_norm)
    kept += final_norm_activations(z) + depths * prediction_activations(s) - (apart ? z.hidden : 0);
  if (stage.head)
    kept += logit_activations(s) + depths * further_logit_activations(s) + transform_activations(z) +
            (apart ? stage.states_in * z.hidden : 0);
  return kept;
}

std::int64_t embedding_activations(const config::Run& run, const Sizes& z) {
  const std::int64_t of_batch = z.by_sequence && z.b > 1 ? z.r * kInt64 : 0;
  const std::int64_t types = z.m.num_tokentypes > 0 ? of_batch : 0;
  if (z.m.position_embedding != config::PositionEmbedding::kLearnedAbsolute) return types;
  if (has_positions(run)) return types + of_batch;
  return types + (z.b == 1 ? z.n : z.r) * kInt64;
}

}  // namespace colonnade::cost
