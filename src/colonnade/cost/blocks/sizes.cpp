// See sizes.h.
#include "colonnade/cost/blocks/sizes.h"

#include <algorithm>

#include "colonnade/cost/flops.h"

namespace colonnade::cost {

Sizes::Sizes(const config::Run& run, std::int64_t seq_length)
    : run(run),
      m(run.model),
      dtypes(config::dtypes_of(run)),
      tp(run.parallel.tensor_model_parallel_size),
      sequence_parallel(run.parallel.sequence_parallel && tp > 1),
      b(run.training.micro_batch_size),
      cp(run.parallel.context_parallel_size),
      seq_length(seq_length),
      s(seq_length / cp),
      n(b * s),
      r(sequence_parallel ? n / tp : n),
      e(config::bytes(dtypes.activation)),
      heads(m.num_attention_heads / tp),
      groups(std::max<std::int64_t>(1, m.num_query_groups / tp)),
      q(heads * m.kv_channels),
      kv(groups * m.kv_channels),
      v(groups * m.value_head_dim()),
      out(heads * m.value_head_dim()),
      cp_head_dim(cp > 1 ? std::max(m.kv_channels, m.value_head_dim()) : m.kv_channels),
      fc1_per_ffn(m.is_gated() ? 2 : 1),
      vocabulary(padded_vocab_size(m, static_cast<int>(tp)) / tp),
      hidden(r * m.hidden_size * e),
      stream(r * m.hidden_size * config::bytes(dtypes.residual)),
      converted(dtypes.residual == dtypes.activation ? 0 : hidden),
      gathered(sequence_parallel ? n * m.hidden_size * e : 0) {}

std::int64_t norm_statistics(const config::Model& m, std::int64_t rows) {
  return rows * kFp32 * (m.normalization == config::Normalization::kLayerNorm ? 2 : 1);
}

std::int64_t norm_saved(const Sizes& z) {
  return z.stream + z.hidden + norm_statistics(z.m, z.r) - z.recomputed("layernorm", z.hidden);
}

std::int64_t weight_gradient_bytes(const Sizes& z, std::int64_t elements) {
  return z.dtypes.activation == z.dtypes.main_gradient ? 0 : elements * z.e;
}

bool has_position_ids(const config::Run& run) {
  return run.data.restarts_positions() || run.parallel.context_parallel_size > 1;
}

}  // namespace colonnade::cost
