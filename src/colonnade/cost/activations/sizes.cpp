// See sizes.h.
#include "colonnade/cost/activations/sizes.h"

#include <algorithm>
#include <cmath>

#include "colonnade/cost/activations.h"
#include "colonnade/cost/flops.h"
#include "colonnade/cost/window.h"
#include "colonnade/layout/expert_capacity.h"
#include "colonnade/layout/layer_kind.h"

namespace colonnade::cost {

Sizes::Sizes(const config::Run& run)
    : m(run.model),
      dtypes(config::dtypes_of(run)),
      tp(run.parallel.tensor_model_parallel_size),
      sequence_parallel(run.parallel.sequence_parallel && tp > 1),
      b(run.training.micro_batch_size),
      cp(run.parallel.context_parallel_size),
      seq_length(run.training.seq_length),
      mtp_in_batch(cp > 1 || run.training.calculate_per_token_loss),
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
      ffn(m.ffn_hidden_size / tp),
      fc1(m.is_gated() ? 2 * ffn : ffn),
      vocabulary(padded_vocab_size(m, static_cast<int>(tp)) / tp),
      hidden(r * m.hidden_size * e),
      gathered(sequence_parallel ? n * m.hidden_size * e : 0),
      ep(run.parallel.expert_model_parallel_size),
      etp(run.parallel.expert_tensor_size()),
      topk(m.moe.router_topk),
      sent_rows(layout::expert_rows(m.moe, r) * etp),
      expert_rows(std::llround(static_cast<double>(sent_rows) *
                               layout::assumed_share(m.moe, 0, static_cast<int>(ep)))),
      combined_rows(m.moe.token_dispatcher_type == config::TokenDispatcher::kAllGather ? expert_rows
                                                                                       : sent_rows),
      expert_ffn(m.moe.ffn_hidden_size / etp),
      shared_ffn(m.moe.shared_expert_intermediate_size / tp),
      fc1_per_ffn(m.is_gated() ? 2 : 1),
      layer_kinds_(layout::layer_kinds(m)) {}

std::int64_t norm_statistics(const config::Model& m, std::int64_t rows) {
  return rows * kFp32 * (m.normalization == config::Normalization::kLayerNorm ? 2 : 1);
}

std::int64_t score_bytes(const Sizes& z) { return z.n * z.seq_length * z.heads * z.e; }

layout::LayerContextParallel context_of_layer(const config::Run& run, std::int64_t layer) {
  return run.parallel.context_parallel_size > 1 ? layout::context_layer(run.parallel, layer)
                                                : layout::LayerContextParallel{};
}

std::int64_t exchanged_kv_channels(const Sizes& z, const layout::LayerContextParallel& context) {
  return context.heads * std::max<std::int64_t>(1, z.groups / context.heads) * z.cp_head_dim;
}

std::int64_t exchanged_qkv_channels(const Sizes& z, const layout::LayerContextParallel& context) {
  return z.heads * z.cp_head_dim + 2 * exchanged_kv_channels(z, context);
}

bool has_position_ids(const config::Run& run) {
  return run.data.reset_position_ids || run.parallel.context_parallel_size > 1;
}

bool has_sinks(const config::Model& m) { return m.softmax_type != config::SoftmaxType::kVanilla; }

bool saves_scores(const config::Run& run) {
  const config::Model& m = run.model;
  return m.attention_dropout > 0 || m.attn_logit_softcapping > 0 ||
         m.position_embedding == config::PositionEmbedding::kRelative ||
         (has_sinks(m) && run.training.device == "cuda");
}

bool saves_scores(const config::Run& run, std::int64_t layer) {
  return saves_scores(run) && context_of_layer(run, layer).ring == 1;
}

namespace {

/// Whether a fused kernel supports KV blocks. The CUDA kernel takes no masks, 16-bit types only, and some
/// head sizes.
bool has_kv_block_kernel(const config::Run& run, const Sizes& z, std::int64_t layer) {
  if (run.training.device != "cuda") return true;
  return config::bytes(z.dtypes.activation) == 2 && z.cp_head_dim % 8 == 0 && z.cp_head_dim <= 256 &&
         !run.data.reset_attention_mask &&
         !window_masks(layout::attention_window(z.m, layer), static_cast<double>(z.seq_length));
}

}  // namespace

std::int64_t block_scores(const config::Run& run, const Sizes& z, std::int64_t layer, bool backward) {
  const layout::LayerContextParallel context = context_of_layer(run, layer);
  const bool capped = z.m.attn_logit_softcapping > 0, drops = z.m.attention_dropout > 0 && backward;
  if (context.ring == 1 || (!capped && !drops && has_kv_block_kernel(run, z, layer))) return 0;
  // In chunks: queries of the two own chunks (of one with dropout) meet keys of two chunks, or of all other
  // ranks.
  const std::int64_t chunk = z.s * context.heads / 2, others = context.ring - 1;
  const std::int64_t own = drops ? 2 : 4, gathered = context.gathers ? 2 * others : 0;
  const std::int64_t pairs = z.b * z.heads / context.heads * chunk * chunk;
  const std::int64_t tensors =
      backward ? layout::backward_score_tensors(capped) : layout::kForwardScoreTensors;
  const auto bytes = [&](std::int64_t of, std::int64_t halves) {
    return (2 * tensors + halves) * std::min(of * pairs, layout::kMaxScoreElements) / 2 * kFp32;
  };
  const std::int64_t converted = z.in_fp32() ? 0 : 2 * z.n * exchanged_kv_channels(z, context) * kFp32;
  return std::max(bytes(own, drops ? 1 : 0), bytes(gathered, 0)) +
         (backward ? 2 : 1) * (context.gathers ? others : 1) * converted;
}

bool pads_value_heads(const config::Run& run, const Sizes& z) {
  return run.training.device != "cuda" && !saves_scores(run) && z.cp == 1 &&
         z.m.value_head_dim() != z.m.kv_channels;
}

}  // namespace colonnade::cost
