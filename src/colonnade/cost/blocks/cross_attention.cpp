// See cross_attention.h.
#include "colonnade/cost/blocks/cross_attention.h"

#include "colonnade/cost/blocks/compute_parts.h"

namespace colonnade::cost {

std::int64_t CrossAttentionCost::saved() const {
  std::int64_t core = 0;
  if (is_unfused()) {
    core = ((is_capped() ? 1 : 0) + (z_.m.attention_dropout > 0 ? 2 : 1)) * score_bytes();
  } else {
    core = z_.n * kFp32 * z_.heads + z_.b * z_.seq_length * keys_.seq_length * z_.e +
           (z_.b * z_.heads > 1 ? z_.n * z_.e * z_.out : 0);
  }
  return z_.n * z_.e * (z_.q + z_.out) + keys_.n * z_.e * 2 * z_.q + keys_.converted +
         (z_.recomputes("core_attn") ? 0 : core);
}

/// Gradients of queries, keys, values and output; of the scores if attention is unfused. The gradient of
/// the other sequence stays alive.
void CrossAttentionCost::backward(LayerTracker& tracker) const {
  tracker.transient(z_.n * z_.e * (z_.q + z_.out) + keys_.n * z_.e * 2 * z_.q +
                    (is_unfused() ? 2 * score_bytes() : 0) + z_.recomputed("layernorm", z_.hidden));
  tracker.allocate(keys_.stream + (tracker.delay_wgrad() ? wgrad_saved() : 0));
  tracker.release(norm_saved(z_) + saved());
}

std::int64_t CrossAttentionCost::wgrad_saved() const {
  return 2 * z_.full_hidden() + 2 * z_.n * z_.e * z_.q + keys_.full_hidden() + 2 * keys_.n * z_.e * z_.q;
}

std::int64_t CrossAttentionCost::largest_weight_gradient() const {
  return weight_gradient_bytes(z_, 2 * z_.q * z_.m.hidden_size);
}

/// Keys and values of the other sequence alongside the queries, on top of the attention's own tensors.
std::int64_t CrossAttentionCost::evaluation() const {
  return z_.stream + z_.hidden + keys_.converted + z_.full_hidden() + keys_.full_hidden() +
         z_.n * z_.e * 2 * z_.q + keys_.n * z_.e * 4 * z_.q + (is_capped() ? 2 * score_bytes() : 0);
}

BlockCompute CrossAttentionCost::core(AttentionKernel kernel) const {
  const RealSizes z(z_);
  const double keys = RealSizes::real(keys_.seq_length);
  BlockCompute compute;
  compute.attention.flops = 2 * z.n * keys * 2 * z.q;
  if (kernel == AttentionKernel::kFused || !is_unfused()) return compute;
  const double accesses = 11 * z.n * keys * z.heads * z.e;
  compute.add_elementwise(accesses, accesses, 6, 6);
  return compute;
}

BlockCompute CrossAttentionCost::compute(AttentionKernel kernel) const {
  const RealSizes z(z_), t(keys_);
  BlockCompute compute = core(kernel);
  compute.matmuls = {{"cross q", z.n, z.q, z.h, LinearSharding::kColumns, z.full_hidden},
                     {"cross kv", t.n, 2 * z.q, z.h, LinearSharding::kColumns, t.full_hidden},
                     {"cross proj", z.n, z.h, z.q, LinearSharding::kRows, z.full_hidden}};
  return compute;
}

void CrossAttentionCost::add_recomputed(AttentionKernel kernel, std::vector<BlockCompute>& parts) const {
  if (z_.recomputes("core_attn")) parts.push_back(core(kernel));
}

double CrossAttentionCost::parameters() const {
  return RealSizes::real(4 * z_.m.hidden_size * z_.m.num_attention_heads * z_.m.kv_channels);
}

ForwardFlops CrossAttentionCost::flops() const {
  const double h = RealSizes::real(z_.m.hidden_size);
  const double q = RealSizes::real(z_.m.num_attention_heads * z_.m.kv_channels);
  const double tokens = RealSizes::real(z_.seq_length), keys = RealSizes::real(keys_.seq_length);
  return {.linears = 4 * h * q * (tokens + keys), .attention = 4 * q * tokens * keys};
}

ForwardFlops CrossAttentionCost::recomputed_flops() const {
  return {.attention = z_.recomputes("core_attn") ? flops().attention : 0};
}

}  // namespace colonnade::cost
