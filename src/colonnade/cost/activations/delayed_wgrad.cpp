// See delayed_wgrad.h.
#include "colonnade/cost/activations/delayed_wgrad.h"

#include <algorithm>
#include <numeric>

#include "colonnade/cost/activations.h"
#include "colonnade/layout/recompute.h"

namespace colonnade::cost {

using layout::BlockKind;

std::int64_t weight_gradient_bytes(const Sizes& z, std::int64_t elements) {
  return z.dtypes.activation == z.dtypes.main_gradient ? 0 : elements * z.e;
}

std::int64_t expert_gradient_bytes(const config::Run& run, const Sizes& z) {
  const bool at_once = run.training.device == "cuda" && z.dtypes.activation == config::Dtype::kBfloat16;
  return weight_gradient_bytes(z,
                               (at_once ? z.m.moe.num_experts / z.ep : 1) * z.m.hidden_size * z.expert_ffn);
}

std::int64_t largest_attention_weight(const Sizes& z) {
  const config::LatentAttention& latent = z.m.latent;
  if (!latent.enabled) return (z.q + 2 * z.kv) * z.m.hidden_size;
  const std::int64_t queries = latent.q_lora_rank > 0 ? latent.q_lora_rank : z.m.hidden_size;
  return std::max({queries * z.q, latent.q_lora_rank * z.m.hidden_size, z.out * z.m.hidden_size,
                   latent.kv_lora_rank * z.heads * (latent.qk_head_dim + latent.v_head_dim)});
}

/// A language-model head transform adds its input and output gradient.
std::int64_t head_wgrad_saved(const Sizes& z) {
  return z.full_hidden() + z.n * z.vocabulary * z.e + (z.m.lm_head_transform ? 2 * z.hidden : 0);
}

/// Inputs and output gradients of the query, key-value and output projections.
std::int64_t cross_attention_wgrad_saved(const Sequences& s, std::int64_t layer) {
  if (!s.has_cross_attention(layer)) return 0;
  const Sizes &z = s.tokens(), &t = *s.encoder();
  return 2 * z.full_hidden() + 2 * z.n * z.e * z.q + t.full_hidden() + 2 * t.n * z.e * z.q;
}

/// Router and gate share one input if they need not convert it; shared experts share it if they need not
/// gather it.
std::int64_t router_wgrad_saved(const Sizes& z) {
  const bool jitter = z.m.moe.input_jitter_eps > 0;
  const bool one_input = z.shared_ffn > 0 && !z.sequence_parallel && z.in_fp32() && !jitter;
  const std::int64_t router = z.r * kFp32 * (z.m.moe.num_experts + (one_input ? 0 : z.m.hidden_size));
  const bool gate_converts = !z.in_fp32() || (jitter && z.sequence_parallel);
  return router +
         (z.m.moe.shared_expert_gate ? z.r * kFp32 * (1 + (gate_converts ? z.m.hidden_size : 0)) : 0);
}

namespace {

std::int64_t attention_wgrad_saved(const Sizes& z) {
  if (!z.m.latent.enabled) return 2 * z.full_hidden() + 2 * z.n * z.e * (z.q + z.kv);
  const config::LatentAttention& latent = z.m.latent;
  const std::int64_t queries = latent.q_lora_rank, vector = latent.kv_lora_rank;
  // Both down projections share one input; queries without one read the gathered sequence.
  const std::int64_t inputs = queries > 0 || !z.sequence_parallel ? z.hidden : z.hidden + z.full_hidden();
  const std::int64_t down = z.r * z.e * (queries + vector + latent.qk_pos_emb_head_dim);
  const std::int64_t up =
      z.n * z.e * (queries + z.q + vector + z.heads * (latent.qk_head_dim + latent.v_head_dim));
  return inputs + down + up + z.n * z.e * z.out + z.full_hidden();
}

std::int64_t mlp_wgrad_saved(const Sizes& z, std::int64_t layer) {
  if (!z.has_experts(layer)) return 2 * z.full_hidden() + z.n * z.e * (z.fc1 + z.ffn);
  const ExpertBytes x(z);
  const std::int64_t shared =
      z.shared_ffn > 0 ? 2 * z.full_hidden() + z.n * z.e * (z.fc1_per_ffn + 1) * z.shared_ffn : 0;
  return router_wgrad_saved(z) + 2 * x.hidden + x.fc1_output + x.fc2_input + shared;
}

/// One MTP depth: its projection of [embedding, hidden state], and a layer.
std::int64_t mtp_wgrad_saved(const Sizes& z) {
  return 3 * z.hidden + attention_wgrad_saved(z) + mlp_wgrad_saved(z, z.m.num_layers);
}

}  // namespace

std::int64_t layer_wgrad_saved(const Sequences& s, std::int64_t layer) {
  return attention_wgrad_saved(s.of(layer)) + cross_attention_wgrad_saved(s, layer) +
         mlp_wgrad_saved(s.of(layer), layer);
}

std::int64_t stage_wgrad_saved(const config::Run& run, const layout::StageBlocks& stage) {
  const Sequences s(run);
  const Sizes& z = s.tokens();
  std::int64_t bytes = 0;
  for (const std::int64_t i : stage.layers()) bytes += layer_wgrad_saved(s, i);
  if (stage.has(BlockKind::kFinalNorm)) bytes += z.m.mtp_num_layers * mtp_wgrad_saved(z);
  if (stage.has(BlockKind::kHead)) bytes += (1 + z.m.mtp_num_layers) * head_wgrad_saved(z);
  return bytes;
}

std::int64_t stage_wgrad_workspace(const config::Run& run, const layout::StageBlocks& stage,
                                   const std::vector<UnitBytes>& units) {
  const Sequences s(run);
  const Sizes& z = s.tokens();
  const std::int64_t h = z.m.hidden_size, depths = z.m.mtp_num_layers;
  const auto of_layer = [&](std::int64_t layer) {
    const std::int64_t attention = weight_gradient_bytes(z, largest_attention_weight(z));
    if (!z.has_experts(layer)) return std::max(attention, weight_gradient_bytes(z, z.fc1 * h));
    return std::max({attention, weight_gradient_bytes(z, z.fc1_per_ffn * z.shared_ffn * h),
                     z.fc1_per_ffn * expert_gradient_bytes(run, z)});
  };
  std::int64_t now = 0, peak = 0;
  std::size_t left = units.size();
  const auto compute = [&](std::int64_t gradient, std::int64_t saved) {
    const UnitBytes unit = left > 0 ? units[--left] : UnitBytes();
    peak = std::max(peak, now + gradient + unit.backward_weight);
    now -= saved;
    peak = std::max(peak, now + unit.reduce_weight);
    now += unit.pending_sum;
  };
  if (stage.has(BlockKind::kFinalNorm) || stage.has(BlockKind::kHead)) {
    const std::int64_t of_head = stage.has(BlockKind::kHead) ? weight_gradient_bytes(z, z.vocabulary * h) : 0;
    const bool has_mtp = stage.has(BlockKind::kFinalNorm) && depths > 0;
    const std::int64_t of_mtp =
        has_mtp ? std::max(weight_gradient_bytes(z, 2 * h * h), of_layer(z.m.num_layers)) : 0;
    compute(std::max(of_head, of_mtp),
            (stage.has(BlockKind::kHead) ? (1 + depths) * head_wgrad_saved(z) : 0) +
                (has_mtp ? depths * mtp_wgrad_saved(z) : 0));
  }
  std::int64_t layer = stage.layers().last;
  auto lengths = layout::recompute_spans(run.recompute, stage.layers().size());
  for (std::int64_t remaining =
           stage.layers().size() - std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
       remaining > 0; --remaining)
    lengths.push_back(1);
  for (auto length = lengths.rbegin(); length != lengths.rend(); ++length) {
    std::int64_t saved = 0, gradient = 0;
    for (std::int64_t i = 0; i < *length; ++i) {
      saved += layer_wgrad_saved(s, --layer);
      gradient = std::max(gradient, of_layer(layer));
    }
    compute(gradient, saved);
  }
  return peak;
}

}  // namespace colonnade::cost
