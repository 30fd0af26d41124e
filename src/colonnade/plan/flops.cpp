// The FLOP formula.
#include "colonnade/plan/flops.h"

#include <algorithm>

#include "colonnade/plan/params/gpt.h"

namespace colonnade::plan {

std::int64_t padded_vocab_size(const config::Model& model, int tensor) {
  const std::int64_t multiple = model.make_vocab_size_divisible_by * tensor;
  return (model.vocab_size + multiple - 1) / multiple * multiple;
}

TrainingFlops training_flops_by_part(const config::Model& m, std::int64_t seq_length, std::int64_t sequences,
                                     int tensor) {
  const auto hidden = static_cast<double>(m.hidden_size);
  const auto layers = static_cast<double>(m.num_layers);
  const auto ffn = static_cast<double>(m.ffn_hidden_size);
  const auto q = static_cast<double>(m.num_attention_heads * m.kv_channels);
  const auto kv = static_cast<double>(m.num_query_groups * m.kv_channels);
  const auto vocabulary = static_cast<double>(padded_vocab_size(m, tensor));
  const auto length = static_cast<double>(seq_length);
  const double tokens = length * static_cast<double>(sequences);
  const std::vector<bool> kinds = layers_with_experts(m);
  const auto moe = static_cast<double>(std::ranges::count(kinds, true));
  const auto expert_ffn =
      static_cast<double>(m.moe.router_topk * m.moe.ffn_hidden_size + m.moe.shared_expert_intermediate_size);
  const double mlps = 6 * hidden * (m.gated() ? 3 : 2) * ((layers - moe) * ffn + moe * expert_ffn);
  const double projections = 6 * (hidden * (q + 2 * kv) + q * hidden);
  const double scores = 6 * q;
  return {.linears = tokens * (mlps + layers * projections + 6 * hidden * vocabulary),
          .attention = tokens * length * layers * scores};
}

double training_flops(const config::Model& model, std::int64_t seq_length, std::int64_t sequences,
                      int tensor) {
  return training_flops_by_part(model, seq_length, sequences, tensor).total();
}

}  // namespace colonnade::plan
