// See waiting.h.
#include "colonnade/cost/activations/waiting.h"

#include <algorithm>
#include <numeric>

#include "colonnade/cost/activations.h"
#include "colonnade/layout/recompute.h"

namespace colonnade::cost {

std::int64_t weight_gradient(const Sizes& z, std::int64_t elements) {
  return z.e == kFp32 ? 0 : elements * z.e;
}

std::int64_t expert_gradient(const config::Run& run, const Sizes& z) {
  const bool at_once = run.training.device == "cuda" && z.m.params_dtype == config::ParamsDtype::kBfloat16;
  return weight_gradient(z, (at_once ? z.m.moe.num_experts / z.ep : 1) * z.m.hidden_size * z.expert_ffn);
}

std::int64_t attention_weight(const Sizes& z) {
  const config::LatentAttention& latent = z.m.latent;
  if (!latent.enabled) return (z.q + 2 * z.kv) * z.m.hidden_size;
  const std::int64_t queries = latent.q_lora_rank > 0 ? latent.q_lora_rank : z.m.hidden_size;
  return std::max({queries * z.q, latent.q_lora_rank * z.m.hidden_size, z.out * z.m.hidden_size,
                   latent.kv_lora_rank * z.heads * (latent.qk_head_dim + latent.v_head_dim)});
}

/// With a transform also what that reads, and the gradient of what it makes.
std::int64_t head_waiting(const Sizes& z) {
  return z.whole() + z.n * z.vocabulary * z.e + (z.m.lm_head_transform ? 2 * z.hidden : 0);
}

/// Inputs and output gradients of the projections for queries, for keys and values, and of the result.
std::int64_t cross_waiting(const Sequences& s, std::int64_t layer) {
  if (!s.crosses(layer)) return 0;
  const Sizes &z = s.tokens(), &t = *s.encoder();
  return 2 * z.whole() + 2 * z.n * z.e * z.q + t.whole() + 2 * t.n * z.e * z.q;
}

/// Router and gate read the same input, where they need not convert it, and shared experts too, where they do
/// not gather it.
std::int64_t router_waiting(const Sizes& z) {
  const bool noisy = z.m.moe.input_jitter_eps > 0;
  const bool one_input = z.shared_ffn > 0 && !z.by_sequence && z.e == kFp32 && !noisy;
  const std::int64_t router = z.r * kFp32 * (z.m.moe.num_experts + (one_input ? 0 : z.m.hidden_size));
  const bool gate_apart = z.e != kFp32 || (noisy && z.by_sequence);
  return router + (z.m.moe.shared_expert_gate ? z.r * kFp32 * (1 + (gate_apart ? z.m.hidden_size : 0)) : 0);
}

namespace {

std::int64_t attention_waiting(const Sizes& z) {
  if (!z.m.latent.enabled) return 2 * z.whole() + 2 * z.n * z.e * (z.q + z.kv);
  const config::LatentAttention& latent = z.m.latent;
  const std::int64_t queries = latent.q_lora_rank, vector = latent.kv_lora_rank;
  // Both down projections read the same; queries without one read all of it, where it is cut.
  const std::int64_t inputs = queries > 0 || !z.by_sequence ? z.hidden : z.hidden + z.whole();
  const std::int64_t down = z.r * z.e * (queries + vector + latent.qk_pos_emb_head_dim);
  const std::int64_t up =
      z.n * z.e * (queries + z.q + vector + z.heads * (latent.qk_head_dim + latent.v_head_dim));
  return inputs + down + up + z.n * z.e * z.out + z.whole();
}

std::int64_t mlp_waiting(const Sizes& z, std::int64_t layer) {
  if (!z.has_experts(layer)) return 2 * z.whole() + z.n * z.e * (z.fc1 + z.ffn);
  const ExpertBytes x(z);
  const std::int64_t shared = z.shared_ffn > 0 ? 2 * z.whole() + z.n * z.e * (z.up + 1) * z.shared_ffn : 0;
  return router_waiting(z) + 2 * x.rows + x.up + x.down + shared;
}

/// Of a further token: the projection of the token and of what is predicted so far, and a layer.
std::int64_t prediction_waiting(const Sizes& z) {
  return 3 * z.hidden + attention_waiting(z) + mlp_waiting(z, z.m.num_layers);
}

}  // namespace

std::int64_t layer_waiting(const Sequences& s, std::int64_t layer) {
  return attention_waiting(s.of(layer)) + cross_waiting(s, layer) + mlp_waiting(s.of(layer), layer);
}

std::int64_t stage_waiting(const config::Run& run, const layout::StageBlocks& stage) {
  const Sequences s(run);
  const Sizes& z = s.tokens();
  std::int64_t bytes = 0;
  for (std::int64_t i = 0; i < stage.num_layers; ++i) bytes += layer_waiting(s, stage.first_layer + i);
  if (stage.final_norm) bytes += z.m.mtp_num_layers * prediction_waiting(z);
  if (stage.head) bytes += (1 + z.m.mtp_num_layers) * head_waiting(z);
  return bytes;
}

std::int64_t stage_weights_working(const config::Run& run, const layout::StageBlocks& stage,
                                   const std::vector<UnitBytes>& units) {
  const Sequences s(run);
  const Sizes& z = s.tokens();
  const std::int64_t h = z.m.hidden_size, depths = z.m.mtp_num_layers;
  const auto of_layer = [&](std::int64_t layer) {
    const std::int64_t attention = weight_gradient(z, attention_weight(z));
    if (!z.has_experts(layer)) return std::max(attention, weight_gradient(z, z.fc1 * h));
    return std::max({attention, weight_gradient(z, z.up * z.shared_ffn * h), z.up * expert_gradient(run, z)});
  };
  std::int64_t now = 0, most = 0;
  std::size_t left = units.size();
  const auto compute = [&](std::int64_t gradient, std::int64_t waiting) {
    const UnitBytes unit = left > 0 ? units[--left] : UnitBytes();
    most = std::max(most, now + gradient + unit.weights);
    now -= waiting;
    most = std::max(most, now + unit.landing_weights);
    now += unit.summed;
  };
  if (stage.final_norm || stage.head) {
    const std::int64_t of_head = stage.head ? weight_gradient(z, z.vocabulary * h) : 0;
    const bool predicts = stage.final_norm && depths > 0;
    const std::int64_t of_predictions =
        predicts ? std::max(weight_gradient(z, 2 * h * h), of_layer(z.m.num_layers)) : 0;
    compute(std::max(of_head, of_predictions), (stage.head ? (1 + depths) * head_waiting(z) : 0) +
                                                   (predicts ? depths * prediction_waiting(z) : 0));
  }
  std::int64_t layer = stage.first_layer + stage.num_layers;
  auto lengths = layout::stretches_made_again(run.recompute, stage.num_layers);
  for (std::int64_t kept =
           stage.num_layers - std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
       kept > 0; --kept)
    lengths.push_back(1);
  for (auto length = lengths.rbegin(); length != lengths.rend(); ++length) {
    std::int64_t waiting = 0, gradient = 0;
    for (std::int64_t i = 0; i < *length; ++i) {
      waiting += layer_waiting(s, --layer);
      gradient = std::max(gradient, of_layer(layer));
    }
    compute(gradient, waiting);
  }
  return most;
}

}  // namespace colonnade::cost
