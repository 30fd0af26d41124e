// See activations.h.
#include "colonnade/cost/activations.h"

#include <algorithm>

#include "colonnade/cost/activations/kept.h"
#include "colonnade/layout/recompute.h"

namespace colonnade::cost {

std::int64_t element_size(const config::Model& model) {
  return model.params_dtype == config::ParamsDtype::kFloat32 ? 4 : 2;
}

std::int64_t stage_activations(const config::Run& run, const layout::StageBlocks& stage) {
  const Sequences s(run);
  std::int64_t kept = 0, first = stage.first_layer;
  for (const std::int64_t length : layout::stretches_made_again(run.recompute, stage.num_layers)) {
    kept += s.hidden();
    first += length;
  }
  for (std::int64_t i = first; i < stage.first_layer + stage.num_layers; ++i) kept += layer_activations(s, i);
  if (stage.embedding) kept += embedding_activations(run, s.tokens());
  if (stage.embedding && s.encoder() != nullptr) kept += embedding_activations(run, *s.encoder());
  if (stage.empty()) kept = stage.states_in * s.hidden();
  return kept + end_activations(s, stage);
}

std::int64_t batch_bytes(const config::Run& run) {
  const Sequences s(run);
  const Sizes& z = s.tokens();
  const std::int64_t encoder = s.encoder() != nullptr ? s.encoder()->n * (kInt64 + 1) : 0;
  const std::int64_t further = z.further_in_batch ? z.m.mtp_num_layers : 0;
  const std::int64_t types = z.m.num_tokentypes > 0 ? z.n * kInt64 : 0;
  const std::int64_t order = z.m.bert_binary_head ? z.b * kInt64 : 0;
  return encoder + types + order + (z.m.bidirectional ? z.n : 0) +
         (1 + further) * z.n * (2 * kInt64 + kFp32) + (has_positions(run) ? z.n * kInt64 : 0) +
         (run.data.reset_attention_mask ? z.b * z.length * z.length : 0);
}

namespace {

/// Of the rows and what is next made of them, the gathered tokens beside the first and the last.
std::int64_t expert_evaluation(const Sizes& z) {
  const std::int64_t rows = z.rows * z.e * z.m.hidden_size, ffn = z.rows * z.e * z.expert_ffn;
  const std::int64_t ranks = z.ep * z.etp;
  const bool gathers = ranks > 1 && z.m.moe.token_dispatcher_type == config::TokenDispatcher::kAllGather;
  const std::int64_t home = z.weighed * z.e * z.m.hidden_size;
  const std::int64_t border = gathers     ? rows + ranks * z.hidden
                              : ranks > 1 ? std::max(2 * rows, z.hidden) + home
                                          : rows + z.hidden;
  return routing_activations(z) + std::max({border, rows + z.up * ffn, (z.up + 1) * ffn});
}

/// Fused queries, keys and values beside those apart, or the result on its way through the projection.
std::int64_t attention_evaluation(const config::Run& run, const Sizes& z) {
  if (!z.m.latent.enabled) return z.whole() + z.n * z.e * (3 * z.q + 2 * z.kv);
  const config::LatentAttention& latent = z.m.latent;
  const std::int64_t narrow = z.r * z.e * (2 * latent.kv_lora_rank + 2 * latent.qk_pos_emb_head_dim) +
                              z.n * z.e * latent.kv_lora_rank;
  const std::int64_t fused = z.q + z.heads * (latent.qk_head_dim + latent.v_head_dim);
  const std::int64_t wide = std::max(z.q, z.out);
  const std::int64_t core = fills_heads(run, z) ? 2 * wide + z.out : z.out;
  return z.n * z.e * (z.q + z.kv + z.v) + std::max(narrow + z.n * z.e * fused, z.n * z.e * core);
}

/// Keys and values of the encoder beside the queries, on top of what attention makes.
std::int64_t cross_evaluation(const Sequences& s) {
  const Sizes &z = s.tokens(), &t = *s.encoder();
  const bool dense = z.m.attn_logit_softcapping > 0;
  return 2 * z.hidden + z.whole() + t.whole() + z.n * z.e * 2 * z.q + t.n * z.e * 4 * z.q +
         (dense ? 2 * cross_scores(s) : 0);
}

}  // namespace

// A layer holds its input, its sum with the attention's output and that normed to its end, and inside that
// what its two parts make; the projection's sum over the tensor ranks is whole before it is cut.
std::int64_t stage_evaluation(const config::Run& run, const layout::StageBlocks& stage,
                              const std::vector<UnitBytes>& units) {
  const Sequences s(run);
  const config::Model& m = run.model;
  const bool dense = m.attn_logit_softcapping > 0 || (has_sinks(m) && run.training.device == "cuda") ||
                     m.position_embedding == config::PositionEmbedding::kRelative;
  const auto layer_bytes = [&](std::int64_t i) {
    const Sizes& z = s.of(i);
    const std::int64_t mlp =
        3 * z.hidden + (z.has_experts(i) ? expert_evaluation(z) : z.whole() + mlp_activations(z));
    const layout::ContextLayer context = across(run, i);
    const std::int64_t whole = dense ? 2 * scores(z) : 0;
    const std::int64_t scored = context.ring > 1 ? block_scores(run, z, i, /*backward=*/false) : whole;
    const std::int64_t attention = 2 * z.hidden + attention_evaluation(run, z) + scored;
    return std::max({mlp, attention, s.crosses(i) ? cross_evaluation(s) : 0}) + s.beside(i);
  };
  std::int64_t layers = 0;
  for (std::int64_t i = stage.first_layer; i < stage.first_layer + stage.num_layers; ++i)
    layers = std::max(layers, layer_bytes(i));
  const auto largest = [&](std::ptrdiff_t first, std::ptrdiff_t last) {
    std::int64_t bytes = 0;
    for (; first < last; ++first) bytes = std::max(bytes, units[static_cast<std::size_t>(first)].forward);
    return bytes;
  };
  const std::ptrdiff_t before = stage.embedding ? 1 : 0, all = std::ssize(units);
  const std::ptrdiff_t layers_end = std::max(before, all - (stage.final_norm || stage.head ? 1 : 0));
  if (stage.num_layers > 0) layers += largest(before, std::min(layers_end, all));
  const Sizes& z = s.tokens();
  const std::int64_t norm = stage.final_norm ? z.hidden + s.hidden() : s.hidden();
  const std::int64_t transformed = z.m.lm_head_transform ? z.hidden : 0;
  const std::int64_t logits = stage.head ? transformed + z.gathered + z.n * z.e * z.vocabulary : 0;
  if (stage.final_norm || stage.head) return std::max(layers, norm + logits + largest(layers_end, all));
  return std::max(layers, s.hidden() + (s.encoder() != nullptr ? s.hidden() : z.whole()) +
                              largest(0, std::min(before, all)));
}

std::int64_t message_bytes(const config::Run& run, std::int64_t states) {
  return states * Sequences(run).hidden();
}

}  // namespace colonnade::cost
