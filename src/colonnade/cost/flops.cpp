// See flops.h.
#include "colonnade/cost/flops.h"

#include <algorithm>

#include "colonnade/cost/window.h"
#include "colonnade/layout/layer_kind.h"

namespace colonnade::cost {

std::int64_t padded_vocab_size(const config::Model& model, int tensor) {
  const std::int64_t multiple = model.make_vocab_size_divisible_by * tensor;
  return (model.vocab_size + multiple - 1) / multiple * multiple;
}

namespace {

/// FLOPs of a layer per token: projections, and scores per key; norms as in Megatron.
struct AttentionFlops {
  double projections = 0, up_projections = 0, norms = 0;
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
  const double up = (q > 0 ? q : h) * n * d + c * n * (plain + v);
  const double down = (q + c + static_cast<double>(m.latent.qk_pos_emb_head_dim)) * h;
  return {.projections = 2 * (up + down + n * v * h),
          .up_projections = 2 * up,
          .norms = 2 * (q + c),
          .scores = n * (d + v)};
}

/// FLOPs of each layer; shared terms are computed once.
class LayerFlopsCounter {
 public:
  LayerFlopsCounter(const config::Model& m, const SampleLength& length)
      : m_(m), length_(length), attention_(attention_flops(m)), layer_kinds_(layout::layer_kinds(m)) {}
  [[nodiscard]] LayerFlops of(std::int64_t layer) const;
  [[nodiscard]] double norms() const { return attention_.norms; }

 private:
  const config::Model& m_;
  SampleLength length_;
  AttentionFlops attention_;
  std::vector<layout::LayerKind> layer_kinds_;
};

LayerFlops LayerFlopsCounter::of(std::int64_t layer) const {
  const config::Model& m = m_;
  const bool experts =
      layer_kinds_[std::min(static_cast<std::size_t>(layer), layer_kinds_.size() - 1)].is_moe();
  const double column = 2 * static_cast<double>(m.hidden_size) * (m.is_gated() ? 3 : 2);
  const double shared = experts ? column * static_cast<double>(m.moe.shared_expert_intermediate_size) : 0;
  const double routed =
      column * static_cast<double>(experts ? m.moe.router_topk * m.moe.ffn_hidden_size : m.ffn_hidden_size);
  const auto tokens = static_cast<double>(length_.of_layer(m, layer));
  LayerFlops flops{.projections = tokens * attention_.projections,
                   .up_projections = tokens * attention_.up_projections,
                   .mlp = tokens * (routed + shared),
                   .shared = tokens * shared,
                   .attention = tokens * attention_.scores *
                                twice_attended_keys(layout::attention_window(m, layer), tokens)};
  if (layout::is_bidirectional(m, layer)) {
    flops.attention *= 2;  // every token attends to all of them
  } else if (m.has_encoder()) {
    // Query and output projections of the decoder's tokens, keys and values of the encoder's.
    const auto encoder = static_cast<double>(length_.encoder);
    flops.projections += attention_.projections / 2 * (tokens + encoder);
    flops.attention += tokens * attention_.scores * 2 * encoder;
  }
  return flops;
}

}  // namespace

SampleLength sample_length(const config::Run& run) {
  if (!run.model.has_encoder()) return run.training.seq_length;
  return {run.training.decoder_seq_length, run.training.seq_length};
}

LayerFlops layer_flops(const config::Model& m, std::int64_t layer, const SampleLength& length) {
  return LayerFlopsCounter(m, length).of(layer);
}

TrainingFlops training_flops_by_part(const config::Model& m, const SampleLength& length,
                                     std::int64_t sequences, int tensor) {
  const auto hidden = static_cast<double>(m.hidden_size);
  const auto depths = static_cast<double>(m.mtp_num_layers);
  const std::int64_t layers = m.total_layers() + m.mtp_num_layers;
  const auto vocabulary = static_cast<double>(padded_vocab_size(m, tensor));
  const auto tokens = static_cast<double>(length.tokens);
  double linears = tokens * (4 * hidden * hidden * depths + 2 * hidden * vocabulary * (1 + depths));
  if (m.lm_head_transform) linears += tokens * 2 * hidden * hidden;
  if (m.bert_binary_head) linears += 2 * hidden * (hidden + 2);  // first token only
  double attention = 0;
  const LayerFlopsCounter counter(m, length);
  for (std::int64_t i = 0; i < layers; ++i) {
    const LayerFlops layer = counter.of(i);
    linears += layer.projections + layer.mlp;
    attention += layer.attention;
  }
  const double norms = tokens * (static_cast<double>(layers) * counter.norms() + 6 * hidden * depths);
  const double passes = 3 * static_cast<double>(sequences);
  return {.linears = passes * linears, .attention = passes * attention, .norms = passes * norms};
}

double training_flops(const config::Model& model, const SampleLength& length, std::int64_t sequences,
                      int tensor) {
  return training_flops_by_part(model, length, sequences, tensor).total();
}

}  // namespace colonnade::cost
