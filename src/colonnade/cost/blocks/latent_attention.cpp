// See latent_attention.h.
#include "colonnade/cost/blocks/latent_attention.h"

#include <algorithm>

namespace colonnade::cost {

LatentAttentionCost::LatentAttentionCost(const Sizes& z, const LayerTraits& layer)
    : AttentionCost(z, layer),
      a_(z.m.latent.q_lora_rank),
      c_(z.m.latent.kv_lora_rank),
      p_(z.m.latent.qk_pos_emb_head_dim),
      plain_(z.m.latent.qk_head_dim),
      v_(z.m.latent.v_head_dim) {}

/// A latent between its projections: raw and normed.
std::int64_t LatentAttentionCost::saved_of(std::int64_t width) const {
  if (width == 0) return 0;
  return z_.r * z_.e * width * (z_.m.qk_layernorm ? 2 : 1) +
         (z_.m.qk_layernorm ? norm_statistics(z_.m, z_.r) : 0);
}

std::int64_t LatentAttentionCost::projections_saved() const { return saved_of(a_) + saved_of(c_); }

/// The rotary channels of all keys stay saved for the recomputation. Attention frees heads as it reads them,
/// unless it is recomputed too.
std::int64_t LatentAttentionCost::recomputed_qkv() const {
  return z_.recomputed("mla_up_proj",
                       qkv_bytes() + (recomputes_core() ? 0 : extra_exchanged_qkv()) - z_.n * z_.e * p_);
}

/// The gradients of the heads are the largest tensors; the narrow latents follow.
void LatentAttentionCost::projections_backward(LayerTracker& /*tracker*/, std::int64_t /*copies*/) const {}

/// Both down projections share one input; queries without one read the gathered sequence.
std::int64_t LatentAttentionCost::wgrad_saved() const {
  const std::int64_t inputs = a_ > 0 || !z_.sequence_parallel ? z_.hidden : z_.hidden + z_.full_hidden();
  const std::int64_t down = z_.r * z_.e * (a_ + c_ + p_);
  const std::int64_t up = z_.n * z_.e * (a_ + z_.q + c_ + z_.heads * (plain_ + v_));
  return inputs + down + up + z_.n * z_.e * z_.out + z_.full_hidden();
}

std::int64_t LatentAttentionCost::largest_weight() const {
  const std::int64_t queries = a_ > 0 ? a_ : z_.m.hidden_size;
  return std::max(
      {queries * z_.q, a_ * z_.m.hidden_size, z_.out * z_.m.hidden_size, c_ * z_.heads * (plain_ + v_)});
}

std::int64_t LatentAttentionCost::projections_evaluation() const {
  const std::int64_t latents = z_.r * z_.e * (2 * c_ + 2 * p_) + z_.n * z_.e * c_;
  const std::int64_t fused = z_.q + z_.heads * (plain_ + v_);
  const std::int64_t padded = std::max(z_.q, z_.out);
  const std::int64_t core = pads_value_heads() ? 2 * padded + z_.out : z_.out;
  return qkv_bytes() + std::max(latents + z_.n * z_.e * fused, z_.n * z_.e * core);
}

/// Up-projections of n tokens from the latents to queries, keys and values.
void LatentAttentionCost::add_up_projections(BlockCompute& compute) const {
  const RealSizes z(z_);
  const double a = RealSizes::real(a_), c = RealSizes::real(c_), p = RealSizes::real(p_);
  const double kv_channels = z.heads * RealSizes::real(plain_ + v_);
  if (a > 0)
    compute.matmuls.push_back({"q_up", z.n, z.q, a, LinearSharding::kColumns, z.n * a * z.e});
  else
    compute.matmuls.push_back({"q", z.n, z.q, z.h, LinearSharding::kColumns, z.full_hidden});
  compute.matmuls.push_back({"kv_up", z.n, kv_channels, c, LinearSharding::kColumns, z.n * c * z.e});
  const double assembly = z.n * z.e * (z.q + kv_channels + p + 2 * z.q + z.out);
  compute.add_elementwise(assembly, assembly, 1, 1);
}

void LatentAttentionCost::add_projections(BlockCompute& compute) const {
  const RealSizes z(z_);
  const double a = RealSizes::real(a_), c = RealSizes::real(c_), p = RealSizes::real(p_);
  if (a > 0) compute.matmuls.push_back({"q_down", z.r, a, z.h, LinearSharding::kReplicated});
  compute.matmuls.push_back({"kv_down", z.r, c + p, z.h, LinearSharding::kReplicated});
  add_gather(compute, z, z.n * p * z.e);
  if (z.m.qk_layernorm) {
    if (a > 0) add_plain_norm(compute, z.r * a * z.e);
    add_plain_norm(compute, z.r * c * z.e);
  }
  compute.add_elementwise(2 * z.r * (c + p) * z.e, 2 * z.r * (c + p) * z.e, 2, 1);
  add_up_projections(compute);
}

/// With the all-to-all of queries, keys and values if core attention is not recomputed too.
void LatentAttentionCost::add_recomputed(AttentionKernel kernel, std::vector<BlockCompute>& parts) const {
  AttentionCost::add_recomputed(kernel, parts);
  if (!z_.recomputes("mla_up_proj")) return;
  BlockCompute& up = parts.emplace_back();
  add_up_projections(up);
  if (z_.cp == 1 || recomputes_core()) return;
  up.context = layer_.context;
  if (layer_.context.heads > 1) add_qkv_all_to_all(up);
}

/// With the norms of the latents.
double LatentAttentionCost::parameters() const {
  const double norm = z_.m.normalization == config::Normalization::kLayerNorm ? 2 : 1;
  const double h = RealSizes::real(z_.m.hidden_size), n = RealSizes::real(z_.m.num_attention_heads);
  const double d = RealSizes::real(z_.m.kv_channels), v = RealSizes::real(v_);
  const double a = RealSizes::real(a_), c = RealSizes::real(c_);
  return (a > 0 ? a * (h + n * d + norm) : h * n * d) + c * (h + n * (RealSizes::real(plain_) + v) + norm) +
         h * RealSizes::real(p_) + n * v * h;
}

double LatentAttentionCost::up_projection_flops() const {
  const double h = RealSizes::real(z_.m.hidden_size), n = RealSizes::real(z_.m.num_attention_heads);
  const double d = RealSizes::real(z_.m.kv_channels), a = RealSizes::real(a_);
  return 2 * ((a > 0 ? a : h) * n * d + RealSizes::real(c_) * n * RealSizes::real(plain_ + v_));
}

double LatentAttentionCost::projection_flops() const {
  const double h = RealSizes::real(z_.m.hidden_size), n = RealSizes::real(z_.m.num_attention_heads);
  return up_projection_flops() + 2 * (RealSizes::real(a_ + c_ + p_) * h + n * RealSizes::real(v_) * h);
}

double LatentAttentionCost::score_flops() const {
  return RealSizes::real(z_.m.num_attention_heads) * RealSizes::real(z_.m.kv_channels + v_);
}

ForwardFlops LatentAttentionCost::flops() const {
  ForwardFlops flops = AttentionCost::flops();
  flops.norms = RealSizes::real(z_.seq_length) * 2 * RealSizes::real(a_ + c_);
  return flops;
}

ForwardFlops LatentAttentionCost::recomputed_flops() const {
  ForwardFlops flops = AttentionCost::recomputed_flops();
  if (z_.recomputes("mla_up_proj")) flops.linears = RealSizes::real(z_.seq_length) * up_projection_flops();
  return flops;
}

}  // namespace colonnade::cost
