// See activations.h.
#include "colonnade/cost/activations.h"

#include <algorithm>

#include "colonnade/cost/activations/saved.h"
#include "colonnade/layout/recompute.h"

namespace colonnade::cost {

using layout::BlockKind;

std::int64_t stage_activations(const config::Run& run, const layout::StageBlocks& stage) {
  const Sequences s(run);
  std::int64_t saved = 0, first = stage.layers().first;
  for (const std::int64_t length : layout::recompute_spans(run.recompute, stage.layers().size())) {
    saved += s.hidden();
    first += length;
  }
  for (std::int64_t i = first; i < stage.layers().last; ++i) saved += layer_activations(s, i);
  if (stage.has(BlockKind::kEmbedding)) saved += embedding_activations(run, s.tokens());
  if (stage.has(BlockKind::kEmbedding) && s.encoder() != nullptr)
    saved += embedding_activations(run, *s.encoder());
  if (stage.empty()) saved = stage.states_in * s.hidden();
  return saved + post_process_activations(s, stage);
}

std::int64_t batch_bytes(const config::Run& run) {
  const Sequences s(run);
  const Sizes& z = s.tokens();
  const std::int64_t encoder = s.encoder() != nullptr ? s.encoder()->n * (kInt64 + 1) : 0;
  const std::int64_t mtp = z.mtp_in_batch ? z.m.mtp_num_layers : 0;
  const std::int64_t types = z.m.num_tokentypes > 0 ? z.n * kInt64 : 0;
  const std::int64_t sentence_order = z.m.bert_binary_head ? z.b * kInt64 : 0;
  return encoder + types + sentence_order + (z.m.bidirectional ? z.n : 0) +
         (1 + mtp) * z.n * (2 * kInt64 + kFp32) + (has_position_ids(run) ? z.n * kInt64 : 0) +
         (run.data.reset_attention_mask ? z.b * z.seq_length * z.seq_length : 0);
}

namespace {

/// Expert rows and the tensors computed from them next, with the gathered tokens alongside the first and the
/// last.
std::int64_t moe_evaluation(const Sizes& z) {
  const std::int64_t rows = z.expert_rows * z.e * z.m.hidden_size, ffn = z.expert_rows * z.e * z.expert_ffn;
  const std::int64_t ranks = z.ep * z.etp;
  const bool gathers = ranks > 1 && z.m.moe.token_dispatcher_type == config::TokenDispatcher::kAllGather;
  const std::int64_t combined = z.combined_rows * z.e * z.m.hidden_size;
  const std::int64_t border = gathers     ? rows + ranks * z.hidden
                              : ranks > 1 ? std::max(2 * rows, z.hidden) + combined
                                          : rows + z.hidden;
  return routing_activations(z) + std::max({border, rows + z.fc1_per_ffn * ffn, (z.fc1_per_ffn + 1) * ffn});
}

/// Fused queries, keys and values alongside the split ones, or the attention output and its projection.
std::int64_t attention_evaluation(const config::Run& run, const Sizes& z) {
  if (!z.m.latent.enabled) return z.full_hidden() + z.n * z.e * (3 * z.q + 2 * z.kv);
  const config::LatentAttention& latent = z.m.latent;
  const std::int64_t latents = z.r * z.e * (2 * latent.kv_lora_rank + 2 * latent.qk_pos_emb_head_dim) +
                               z.n * z.e * latent.kv_lora_rank;
  const std::int64_t fused = z.q + z.heads * (latent.qk_head_dim + latent.v_head_dim);
  const std::int64_t padded = std::max(z.q, z.out);
  const std::int64_t core = pads_value_heads(run, z) ? 2 * padded + z.out : z.out;
  return z.n * z.e * (z.q + z.kv + z.v) + std::max(latents + z.n * z.e * fused, z.n * z.e * core);
}

/// Keys and values of the encoder alongside the queries, on top of the attention's own tensors.
std::int64_t cross_evaluation(const Sequences& s) {
  const Sizes &z = s.tokens(), &t = *s.encoder();
  const bool dense = z.m.attn_logit_softcapping > 0;
  return 2 * z.hidden + z.full_hidden() + t.full_hidden() + z.n * z.e * 2 * z.q + t.n * z.e * 4 * z.q +
         (dense ? 2 * cross_score_bytes(s) : 0);
}

}  // namespace

// A layer holds its input, the residual sum and the normed sum to its end, and in between the tensors of
// attention and MLP; the output of a row-parallel linear is unsharded before its reduce-scatter.
std::int64_t stage_evaluation(const config::Run& run, const layout::StageBlocks& stage,
                              const std::vector<UnitBytes>& units) {
  const Sequences s(run);
  const config::Model& m = run.model;
  const bool dense = m.attn_logit_softcapping > 0 || (has_sinks(m) && run.training.device == "cuda") ||
                     m.position_embedding == config::PositionEmbedding::kRelative;
  const auto layer_bytes = [&](std::int64_t i) {
    const Sizes& z = s.of(i);
    const std::int64_t mlp =
        3 * z.hidden + (z.has_experts(i) ? moe_evaluation(z) : z.full_hidden() + mlp_activations(z));
    const layout::LayerContextParallel context = context_of_layer(run, i);
    const std::int64_t unfused = dense ? 2 * score_bytes(z) : 0;
    const std::int64_t scored = context.ring > 1 ? block_scores(run, z, i, /*backward=*/false) : unfused;
    const std::int64_t attention = 2 * z.hidden + attention_evaluation(run, z) + scored;
    return std::max({mlp, attention, s.has_cross_attention(i) ? cross_evaluation(s) : 0}) +
           s.other_sequence_bytes(i);
  };
  std::int64_t layers = 0;
  for (const std::int64_t i : stage.layers()) layers = std::max(layers, layer_bytes(i));
  const auto largest = [&](std::ptrdiff_t first, std::ptrdiff_t last) {
    std::int64_t bytes = 0;
    for (; first < last; ++first) bytes = std::max(bytes, units[static_cast<std::size_t>(first)].forward);
    return bytes;
  };
  const std::ptrdiff_t before = stage.has(BlockKind::kEmbedding) ? 1 : 0, all = std::ssize(units);
  const std::ptrdiff_t layers_end =
      std::max(before, all - (stage.has(BlockKind::kFinalNorm) || stage.has(BlockKind::kHead) ? 1 : 0));
  if (stage.layers().size() > 0) layers += largest(before, std::min(layers_end, all));
  const Sizes& z = s.tokens();
  const std::int64_t norm = stage.has(BlockKind::kFinalNorm) ? z.hidden + s.hidden() : s.hidden();
  const std::int64_t transformed = z.m.lm_head_transform ? z.hidden : 0;
  const std::int64_t logits =
      stage.has(BlockKind::kHead) ? transformed + z.gathered + z.n * z.e * z.vocabulary : 0;
  if (stage.has(BlockKind::kFinalNorm) || stage.has(BlockKind::kHead))
    return std::max(layers, norm + logits + largest(layers_end, all));
  return std::max(layers, s.hidden() + (s.encoder() != nullptr ? s.hidden() : z.full_hidden()) +
                              largest(0, std::min(before, all)));
}

std::int64_t message_bytes(const config::Run& run, std::int64_t states) {
  return states * Sequences(run).hidden();
}

}  // namespace colonnade::cost
