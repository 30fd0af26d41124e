// The FLOP formula.
#include "colonnade/plan/flops.h"

#include <algorithm>

#include "colonnade/plan/params/gpt.h"

namespace colonnade::plan {

namespace {

/// Twice the number of keys that a token of a sequence sees on average: all of them without a window.
double twice_seen(std::int64_t window, double length) {
  const double width = static_cast<double>(window + 1);
  return window == 0 || width >= length ? length : 2 * width - width * width / length;
}

}  // namespace

std::int64_t padded_vocab_size(const config::Model& model, int tensor) {
  const std::int64_t multiple = model.make_vocab_size_divisible_by * tensor;
  return (model.vocab_size + multiple - 1) / multiple * multiple;
}

namespace {

/// Of one layer: for a token, and for a token and another one.
struct AttentionFlops {
  double projections = 0, norms = 0;
  double scores = 0;
};

AttentionFlops attention_flops(const config::Model& m) {
  const auto h = static_cast<double>(m.hidden_size);
  const auto n = static_cast<double>(m.num_attention_heads);
  const auto d = static_cast<double>(m.kv_channels);
  if (!m.latent.enabled) {
    const double kv = static_cast<double>(m.num_query_groups) * d;
    return {.projections = 6 * (h * (n * d + 2 * kv) + n * d * h), .norms = 0, .scores = 6 * n * d};
  }
  const auto q = static_cast<double>(m.latent.q_lora_rank), c = static_cast<double>(m.latent.kv_lora_rank);
  const auto plain = static_cast<double>(m.latent.qk_head_dim), v = static_cast<double>(m.latent.v_head_dim);
  const double queries = q > 0 ? q * (h + n * d) : h * n * d;
  const double keys = c * (h + n * (plain + v)) + h * static_cast<double>(m.latent.qk_pos_emb_head_dim);
  return {.projections = 6 * (queries + keys + n * v * h), .norms = 6 * (q + c), .scores = 3 * n * (d + v)};
}

}  // namespace

TrainingFlops training_flops_by_part(const config::Model& m, std::int64_t seq_length, std::int64_t sequences,
                                     int tensor) {
  const auto hidden = static_cast<double>(m.hidden_size);
  const auto depths = static_cast<double>(m.mtp_num_layers);
  const double layers = static_cast<double>(m.num_layers) + depths;
  const auto ffn = static_cast<double>(m.ffn_hidden_size);
  const auto vocabulary = static_cast<double>(padded_vocab_size(m, tensor));
  const auto length = static_cast<double>(seq_length);
  const double tokens = length * static_cast<double>(sequences);
  const std::vector<bool> kinds = layers_with_experts(m);
  const double moe = static_cast<double>(std::ranges::count(kinds, true)) + (kinds.back() ? depths : 0);
  const auto expert_ffn =
      static_cast<double>(m.moe.router_topk * m.moe.ffn_hidden_size + m.moe.shared_expert_intermediate_size);
  const double mlps = 6 * hidden * (m.gated() ? 3 : 2) * ((layers - moe) * ffn + moe * expert_ffn);
  const AttentionFlops attention = attention_flops(m);
  double seen = 0;  // twice the keys that a token sees on average, over all layers
  for (std::int64_t i = 0; i < m.num_layers; ++i) seen += twice_seen(window_of(m, i), length);
  seen += depths * twice_seen(window_of(m, m.num_layers), length);
  return {.linears = tokens * (mlps + layers * attention.projections + 12 * hidden * hidden * depths +
                               6 * hidden * vocabulary * (1 + depths)),
          .attention = tokens * seen * attention.scores,
          .norms = tokens * (layers * attention.norms + 18 * hidden * depths)};
}

double training_flops(const config::Model& model, std::int64_t seq_length, std::int64_t sequences,
                      int tensor) {
  return training_flops_by_part(model, seq_length, sequences, tensor).total();
}

}  // namespace colonnade::plan
