// Costs of attention and multi-latent attention, with context parallelism. Letters as in the header; S is the
// full sequence length, d and v are the head sizes of keys and values.
#include "colonnade/cost/block_sizes.h"
#include "colonnade/cost/window.h"
#include "colonnade/layout/layer_kind.h"
#include "colonnade/layout/params/gpt.h"

namespace colonnade::cost {
namespace {

bool has_relative_bias(const config::Model& m) {
  return m.position_embedding == config::PositionEmbedding::kRelative;
}

/// Whether scores are materialized. Ring attention adds sinks after its last KV block; its kernel supports no
/// masks.
bool materializes_scores(const config::Model& m, AttentionKernel kernel, bool masked, bool blocks) {
  const bool sinks = m.softmax_type != config::SoftmaxType::kVanilla;
  return kernel == AttentionKernel::kUnfused && (m.attn_logit_softcapping != 0 || m.attention_dropout > 0 ||
                                                 has_relative_bias(m) || (blocks ? masked : sinks));
}

/// Relative-position biases of the local heads, shared by all samples; backward sums the score gradients over
/// samples in fp32, and by bucket.
void add_relative_bias(BlockCost& cost, const BlockSizes& z) {
  if (!has_relative_bias(z.m)) return;
  const double biases = z.heads * z.seq_length * z.seq_length, scores = z.n * z.seq_length * z.heads;
  cost.add_elementwise(2 * biases * z.e, scores * z.e + biases * (2 * z.e + 2 * kFp32), 2, 3);
}

/// Unfused scores are written by QK^T, read and written by scale, cap or sink, mask and softmax, and read by
/// PV; backward does as many accesses. The matmuls then cover the full square, as does a kernel with a mask;
/// those of KV blocks cover half of it, with fp32 scores.
void add_scores(BlockCost& cost, const config::Run& run, const BlockSizes& z, std::int64_t layer,
                AttentionKernel kernel) {
  const std::int64_t window = layout::attention_window(run.model, layer);
  const bool context_parallel = run.parallel.context_parallel_size > 1;
  const bool blocks = context_parallel && layout::context_layer(run.parallel, layer).ring > 1;
  const bool masked = window_masks(window, z.seq_length) || run.data.reset_attention_mask;
  const bool fused = kernel == AttentionKernel::kFused,
             unfused = materializes_scores(z.m, kernel, masked, blocks);
  cost.attention.flops =
      z.n * (fused ? twice_attended_keys(window, z.seq_length) : z.seq_length) * (z.q + z.out);
  const bool bidirectional = layout::is_bidirectional(z.m, layer);
  if (bidirectional || (!blocks && (unfused || (!fused && masked)))) cost.attention.flops *= 2;
  add_relative_bias(cost, z);
  if (!unfused) return;
  const double accesses = 11 * z.n * z.seq_length * z.heads * (blocks ? kFp32 / 2 : z.e);
  cost.add_elementwise(accesses, accesses, 6, 6);
}

/// All-to-all of queries, keys and values from sequence to head sharding, with reordering.
void add_qkv_all_to_all(BlockCost& cost, const BlockSizes& z, double keys) {
  const double bytes = z.n * z.e * (z.q + 2 * keys);
  cost.collectives.push_back({GroupKind::kContextAllToAll, true, bytes, 1, 1});
  cost.add_elementwise(2 * bytes, 2 * bytes, 2, 2);
}

/// All-to-all of the output bytes to sequence sharding.
void add_output_all_to_all(BlockCost& cost, const BlockSizes& z) {
  const double bytes = z.n * z.e * z.q;
  cost.collectives.push_back({GroupKind::kContextAllToAll, true, bytes, 1, 1});
  cost.add_elementwise(2 * bytes, 2 * bytes, 2, 2);
}

/// KV blocks, as if all queries attended to each. The first output is converted to fp32, the others are
/// merged into it; backward accumulates gradients of queries, keys and values in fp32. Gathered keys form up
/// to three blocks.
void add_kv_blocks(BlockCost& cost, const BlockSizes& z, double keys) {
  const int hops = cost.context.ring - 1, joins = cost.context.gathers ? std::min(2, hops) : hops;
  const double queries = z.n * z.q, kv = 2 * z.n * keys, join = z.e + 2 * kFp32;
  cost.add_elementwise(queries * (joins * join + 2 * (z.e + kFp32)), (joins + 1) * (queries + kv) * join,
                       4 * joins + 2, 6 * joins + 6);
  if (cost.context.gathers) {
    const double ranks = cost.context.ring;
    cost.collectives.push_back({GroupKind::kContextRing, false, ranks * kv * z.e, 1, 1});
    cost.collectives.push_back({GroupKind::kContextRing, false, ranks * kv * kFp32, 0, 1});
    return;
  }
  cost.attention.ring = cost.context.ring;
  cost.attention.kv_bytes = kv * z.e;
  cost.attention.kv_grad_bytes = kv * kFp32;
}

/// Key channels that a rank sends; heads shared by several ranks are sent to each of them.
double exchanged_kv_width(const BlockSizes& z, const layout::LayerContextParallel& context) {
  const double channels = static_cast<double>(z.m.kv_channels), groups = z.kv / channels;
  return context.heads > 1 ? context.heads * std::max(1.0, groups / context.heads) * channels : z.kv;
}

void add_context(BlockCost& cost, const config::Run& run, const BlockSizes& z, std::int64_t layer) {
  if (run.parallel.context_parallel_size == 1) return;
  cost.context = layout::context_layer(run.parallel, layer);
  const double keys = exchanged_kv_width(z, cost.context);
  if (cost.context.heads > 1) {
    add_qkv_all_to_all(cost, z, keys);
    add_output_all_to_all(cost, z);
  }
  if (cost.context.ring > 1) add_kv_blocks(cost, z, keys);
}

void add_projections(BlockCost& cost, const BlockSizes& z) {
  const double rotary = z.m.has_rotary() ? z.q + z.kv : 0;
  const double normed = z.m.qk_layernorm ? z.q + z.kv : 0;
  cost.add_elementwise(2 * z.n * z.e * (rotary + normed), z.n * z.e * (2 * rotary + 3 * normed),
                       (rotary > 0 ? 2 : 0) + (normed > 0 ? 2 : 0),
                       (rotary > 0 ? 2 : 0) + (normed > 0 ? 4 : 0));
  cost.matmuls.push_back({"qkv", z.n, z.q + 2 * z.kv, z.h, LinearSharding::kColumns, z.full_hidden});
}

/// Up-projections of n tokens from the latents to queries, keys and values, with p rotary channels.
void add_latent_up_projection(BlockCost& cost, const BlockSizes& z) {
  const config::LatentAttention& latent = z.m.latent;
  const auto a = static_cast<double>(latent.q_lora_rank), c = static_cast<double>(latent.kv_lora_rank);
  const auto p = static_cast<double>(latent.qk_pos_emb_head_dim);
  const double kv_channels = z.heads * static_cast<double>(latent.qk_head_dim + latent.v_head_dim);
  if (a > 0)
    cost.matmuls.push_back({"q_up", z.n, z.q, a, LinearSharding::kColumns, z.n * a * z.e});
  else
    cost.matmuls.push_back({"q", z.n, z.q, z.h, LinearSharding::kColumns, z.full_hidden});
  cost.matmuls.push_back({"kv_up", z.n, kv_channels, c, LinearSharding::kColumns, z.n * c * z.e});
  const double assembly = z.n * z.e * (z.q + kv_channels + p + 2 * z.q + z.out);
  cost.add_elementwise(assembly, assembly, 1, 1);
}

/// Down-projections to the query latent (a; without one, queries project the hidden state) and the key-value
/// latent (c, with p rotary channels), latent norms, and up-projections.
void add_latent_projections(BlockCost& cost, const BlockSizes& z) {
  const config::LatentAttention& latent = z.m.latent;
  const auto a = static_cast<double>(latent.q_lora_rank), c = static_cast<double>(latent.kv_lora_rank);
  const auto p = static_cast<double>(latent.qk_pos_emb_head_dim);
  if (a > 0) cost.matmuls.push_back({"q_down", z.r, a, z.h, LinearSharding::kReplicated});
  cost.matmuls.push_back({"kv_down", z.r, c + p, z.h, LinearSharding::kReplicated});
  add_gather(cost, z, z.n * p * z.e);
  if (z.m.qk_layernorm) {
    if (a > 0) add_plain_norm(cost, z.r * a * z.e);
    add_plain_norm(cost, z.r * c * z.e);
  }
  cost.add_elementwise(2 * z.r * (c + p) * z.e, 2 * z.r * (c + p) * z.e, 2, 1);
  add_latent_up_projection(cost, z);
}

}  // namespace

BlockCost core_attention_cost(const config::Run& run, std::int64_t layer, AttentionKernel kernel) {
  const BlockSizes z(run);
  BlockCost cost;
  add_scores(cost, run, z, layer, kernel);
  add_context(cost, run, z, layer);
  return cost;
}

BlockCost latent_up_projection_cost(const config::Run& run, std::int64_t layer) {
  const BlockSizes z(run);
  BlockCost cost;
  add_latent_up_projection(cost, z);
  if (run.parallel.context_parallel_size == 1 || run.recompute.recomputes("core_attn")) return cost;
  cost.context = layout::context_layer(run.parallel, layer);
  if (cost.context.heads > 1) add_qkv_all_to_all(cost, z, exchanged_kv_width(z, cost.context));
  return cost;
}

BlockCost attention_cost(const config::Run& run, std::int64_t layer, AttentionKernel kernel) {
  const BlockSizes z(run);
  BlockCost cost = core_attention_cost(run, layer, kernel);
  add_norm(cost, z);
  if (z.m.latent.enabled)
    add_latent_projections(cost, z);
  else
    add_projections(cost, z);
  add_sandwich_norm(cost, z);
  cost.matmuls.push_back({"proj", z.n, z.h, z.out, LinearSharding::kRows, z.full_hidden});
  return cost;
}

}  // namespace colonnade::cost
