// Attention of both kinds, and how context ranks bring queries to keys. Letters as in work.h; S is the length
// of a whole sequence, d and v the channels of a head of keys and of values.
#include "colonnade/cost/window.h"
#include "colonnade/cost/work_sizes.h"
#include "colonnade/layout/params/gpt.h"

namespace colonnade::cost {
namespace {

constexpr double kFp32 = 4;

bool has_relative(const config::Model& m) {
  return m.position_embedding == config::PositionEmbedding::kRelative;
}

/// Sinks join blocks of keys when all are through; the kernel of blocks takes no masks.
bool in_memory(const config::Model& m, ScoresIn scores, bool masked, bool blocks) {
  const bool sinks = m.softmax_type != config::SoftmaxType::kVanilla;
  return scores == ScoresIn::kMemory && (m.attn_logit_softcapping != 0 || m.attention_dropout > 0 ||
                                         has_relative(m) || (blocks ? masked : sinks));
}

/// The biases of distances of a rank's heads, once for all samples; backward the sum of the gradients of
/// scores over these, in fp32 and by bucket.
void add_relative(Work& work, const WorkSizes& z) {
  if (!has_relative(z.m)) return;
  const double biases = z.heads * z.length * z.length, scores = z.n * z.length * z.heads;
  work.pass(2 * biases * z.e, scores * z.e + biases * (2 * z.e + 2 * kFp32), 2, 3);
}

/// Scores in memory are written by their product and read and written by scale, cap or sink, mask and
/// softmax, and read by the second product; backward as often. Products then take in all of the square, and
/// so does a kernel with a mask; those of blocks half of it, with scores in fp32.
void add_scores(Work& work, const config::Run& run, const WorkSizes& z, std::int64_t layer, ScoresIn scores) {
  const std::int64_t window = layout::window_of(run.model, layer);
  const bool shared = run.parallel.context_parallel_size > 1;
  const bool blocks = shared && layout::context_layer(run.parallel, layer).ring > 1;
  const bool masked = hides(window, z.length) || run.data.reset_attention_mask;
  const bool kernel = scores == ScoresIn::kKernel, memory = in_memory(z.m, scores, masked, blocks);
  work.attention.flops = z.n * (kernel ? twice_seen(window, z.length) : z.length) * (z.q + z.out);
  const bool both_ways = layout::sees_both_ways(z.m, layer);
  if (both_ways || (!blocks && (memory || (!kernel && masked)))) work.attention.flops *= 2;
  add_relative(work, z);
  if (!memory) return;
  const double passes = 11 * z.n * z.length * z.heads * (blocks ? kFp32 / 2 : z.e);
  work.pass(passes, passes, 6, 6);
}

/// Queries, keys and values, exchanged for positions and laid in order.
void add_heads_exchange(Work& work, const WorkSizes& z, double keys) {
  const double there = z.n * z.e * (z.q + 2 * keys);
  work.collectives.push_back({Among::kHeads, true, there, 1, 1});
  work.pass(2 * there, 2 * there, 2, 2);
}

/// The result, the other way round.
void add_result_exchange(Work& work, const WorkSizes& z) {
  const double back = z.n * z.e * z.q;
  work.collectives.push_back({Among::kHeads, true, back, 1, 1});
  work.pass(2 * back, 2 * back, 2, 2);
}

/// Blocks of keys, as if each met all queries: the first output becomes a sum in fp32, the others are joined
/// to it; backward adds the gradients of queries, keys and values in fp32. Gathered keys come in up to three
/// blocks.
void add_blocks(Work& work, const WorkSizes& z, double keys) {
  const int hops = work.context.ring - 1, joins = work.context.gathers ? std::min(2, hops) : hops;
  const double queries = z.n * z.q, kv = 2 * z.n * keys, join = z.e + 2 * kFp32;
  work.pass(queries * (joins * join + 2 * (z.e + kFp32)), (joins + 1) * (queries + kv) * join, 4 * joins + 2,
            6 * joins + 6);
  if (work.context.gathers) {
    const double ranks = work.context.ring;
    work.collectives.push_back({Among::kRing, false, ranks * kv * z.e, 1, 1});
    work.collectives.push_back({Among::kRing, false, ranks * kv * kFp32, 0, 1});
    return;
  }
  work.attention.ring = work.context.ring;
  work.attention.hop = kv * z.e;
  work.attention.gradient_hop = kv * kFp32;
}

/// Columns of keys that a layer's ranks send; those that neighbours share to each of them.
double keys_sent(const WorkSizes& z, const layout::ContextLayer& context) {
  const double channels = static_cast<double>(z.m.kv_channels), groups = z.kv / channels;
  return context.heads > 1 ? context.heads * std::max(1.0, groups / context.heads) * channels : z.kv;
}

void add_context(Work& work, const config::Run& run, const WorkSizes& z, std::int64_t layer) {
  if (run.parallel.context_parallel_size == 1) return;
  work.context = layout::context_layer(run.parallel, layer);
  const double keys = keys_sent(z, work.context);
  if (work.context.heads > 1) {
    add_heads_exchange(work, z, keys);
    add_result_exchange(work, z);
  }
  if (work.context.ring > 1) add_blocks(work, z, keys);
}

void add_projections(Work& work, const WorkSizes& z) {
  const double turned = z.m.rotary() ? z.q + z.kv : 0;
  const double normed = z.m.qk_layernorm ? z.q + z.kv : 0;
  work.pass(2 * z.n * z.e * (turned + normed), z.n * z.e * (2 * turned + 3 * normed),
            (turned > 0 ? 2 : 0) + (normed > 0 ? 2 : 0), (turned > 0 ? 2 : 0) + (normed > 0 ? 4 : 0));
  work.products.push_back({"qkv", z.n, z.q + 2 * z.kv, z.h, LinearCut::kColumns, z.whole});
}

/// Queries, keys and values of n tokens out of what is made of the narrow vectors, with the p channels that
/// turn.
void add_narrow_heads(Work& work, const WorkSizes& z) {
  const config::LatentAttention& latent = z.m.latent;
  const auto a = static_cast<double>(latent.q_lora_rank), c = static_cast<double>(latent.kv_lora_rank);
  const auto p = static_cast<double>(latent.qk_pos_emb_head_dim);
  const double made = z.heads * static_cast<double>(latent.qk_head_dim + latent.v_head_dim);
  if (a > 0)
    work.products.push_back({"q_up", z.n, z.q, a, LinearCut::kColumns, z.n * a * z.e});
  else
    work.products.push_back({"q", z.n, z.q, z.h, LinearCut::kColumns, z.whole});
  work.products.push_back({"kv_up", z.n, made, c, LinearCut::kColumns, z.n * c * z.e});
  const double assembled = z.n * z.e * (z.q + made + p + 2 * z.q + z.out);
  work.pass(assembled, assembled, 1, 1);
}

/// Narrow vectors of queries (a; without one they are made of the hidden state) and of keys and values (c,
/// with the p channels that turn beside it), their norms, and the heads made of them.
void add_narrow_projections(Work& work, const WorkSizes& z) {
  const config::LatentAttention& latent = z.m.latent;
  const auto a = static_cast<double>(latent.q_lora_rank), c = static_cast<double>(latent.kv_lora_rank);
  const auto p = static_cast<double>(latent.qk_pos_emb_head_dim);
  if (a > 0) work.products.push_back({"q_down", z.r, a, z.h, LinearCut::kWhole});
  work.products.push_back({"kv_down", z.r, c + p, z.h, LinearCut::kWhole});
  add_opening(work, z, z.n * p * z.e);
  if (z.m.qk_layernorm) {
    if (a > 0) add_plain_norm(work, z.r * a * z.e);
    add_plain_norm(work, z.r * c * z.e);
  }
  work.pass(2 * z.r * (c + p) * z.e, 2 * z.r * (c + p) * z.e, 2, 1);
  add_narrow_heads(work, z);
}

}  // namespace

Work core_attention_work(const config::Run& run, std::int64_t layer, ScoresIn scores) {
  const WorkSizes z(run);
  Work work;
  add_scores(work, run, z, layer, scores);
  add_context(work, run, z, layer);
  return work;
}

Work narrow_heads_work(const config::Run& run, std::int64_t layer) {
  const WorkSizes z(run);
  Work work;
  add_narrow_heads(work, z);
  if (run.parallel.context_parallel_size == 1 || run.recompute.selects("core_attn")) return work;
  work.context = layout::context_layer(run.parallel, layer);
  if (work.context.heads > 1) add_heads_exchange(work, z, keys_sent(z, work.context));
  return work;
}

Work attention_work(const config::Run& run, std::int64_t layer, ScoresIn scores) {
  const WorkSizes z(run);
  Work work = core_attention_work(run, layer, scores);
  add_norm(work, z);
  if (z.m.latent.enabled)
    add_narrow_projections(work, z);
  else
    add_projections(work, z);
  add_sandwich_norm(work, z);
  work.products.push_back({"proj", z.n, z.h, z.out, LinearCut::kRows, z.whole});
  return work;
}

}  // namespace colonnade::cost
