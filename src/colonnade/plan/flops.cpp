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

/// Of the projections of a layer and a token, and of its scores for one key; norms as Megatron counts them.
struct AttentionFlops {
  double projections = 0, heads = 0, norms = 0;
  double scores = 0;
};

AttentionFlops attention_flops(const config::Model& m) {
  const auto h = static_cast<double>(m.hidden_size);
  const auto n = static_cast<double>(m.num_attention_heads);
  const auto d = static_cast<double>(m.kv_channels);
  if (!m.latent.enabled) {
    const double kv = static_cast<double>(m.num_query_groups) * d;
    return {.projections = 2 * (h * (n * d + 2 * kv) + n * d * h), .scores = 2 * n * d};
  }
  const auto q = static_cast<double>(m.latent.q_lora_rank), c = static_cast<double>(m.latent.kv_lora_rank);
  const auto plain = static_cast<double>(m.latent.qk_head_dim), v = static_cast<double>(m.latent.v_head_dim);
  const double heads = (q > 0 ? q : h) * n * d + c * n * (plain + v);
  const double narrow = (q + c + static_cast<double>(m.latent.qk_pos_emb_head_dim)) * h;
  return {.projections = 2 * (heads + narrow + n * v * h),
          .heads = 2 * heads,
          .norms = 2 * (q + c),
          .scores = n * (d + v)};
}

/// What all layers of a model share is counted once.
class LayerCounter {
 public:
  LayerCounter(const config::Model& m, std::int64_t seq_length)
      : m_(m),
        length_(static_cast<double>(seq_length)),
        attention_(attention_flops(m)),
        experts_(layers_with_experts(m)) {}
  [[nodiscard]] LayerFlops of(std::int64_t layer) const;
  [[nodiscard]] double norms() const { return attention_.norms; }

 private:
  const config::Model& m_;
  double length_;
  AttentionFlops attention_;
  std::vector<bool> experts_;
};

LayerFlops LayerCounter::of(std::int64_t layer) const {
  const config::Model& m = m_;
  const bool experts = experts_[static_cast<std::size_t>(std::min(layer, m.num_layers - 1))];
  const double column = 2 * static_cast<double>(m.hidden_size) * (m.gated() ? 3 : 2);
  const double shared = experts ? column * static_cast<double>(m.moe.shared_expert_intermediate_size) : 0;
  const double routed =
      column * static_cast<double>(experts ? m.moe.router_topk * m.moe.ffn_hidden_size : m.ffn_hidden_size);
  return {.projections = attention_.projections,
          .heads = attention_.heads,
          .mlp = routed + shared,
          .shared = shared,
          .attention = attention_.scores * twice_seen(window_of(m, layer), length_)};
}

}  // namespace

LayerFlops layer_flops(const config::Model& m, std::int64_t layer, std::int64_t seq_length) {
  return LayerCounter(m, seq_length).of(layer);
}

TrainingFlops training_flops_by_part(const config::Model& m, std::int64_t seq_length, std::int64_t sequences,
                                     int tensor) {
  const auto hidden = static_cast<double>(m.hidden_size);
  const auto depths = static_cast<double>(m.mtp_num_layers);
  const std::int64_t layers = m.num_layers + m.mtp_num_layers;
  const auto vocabulary = static_cast<double>(padded_vocab_size(m, tensor));
  const double tokens = static_cast<double>(seq_length * sequences);
  double linears = 4 * hidden * hidden * depths + 2 * hidden * vocabulary * (1 + depths);
  double attention = 0;
  const LayerCounter counter(m, seq_length);
  for (std::int64_t i = 0; i < layers; ++i) {
    const LayerFlops layer = counter.of(i);
    linears += layer.projections + layer.mlp;
    attention += layer.attention;
  }
  const double norms = static_cast<double>(layers) * counter.norms() + 6 * hidden * depths;
  return {.linears = 3 * tokens * linears, .attention = 3 * tokens * attention, .norms = 3 * tokens * norms};
}

double training_flops(const config::Model& model, std::int64_t seq_length, std::int64_t sequences,
                      int tensor) {
  return training_flops_by_part(model, seq_length, sequences, tensor).total();
}

}  // namespace colonnade::plan
