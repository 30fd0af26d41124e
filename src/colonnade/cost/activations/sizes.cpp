// See sizes.h.
#include "colonnade/cost/activations/sizes.h"

#include <algorithm>
#include <cmath>

#include "colonnade/cost/activations.h"
#include "colonnade/cost/flops.h"
#include "colonnade/cost/window.h"
#include "colonnade/layout/expert_capacity.h"
#include "colonnade/layout/params/gpt.h"

namespace colonnade::cost {

Sizes::Sizes(const config::Run& run)
    : m(run.model),
      tp(run.parallel.tensor_model_parallel_size),
      by_sequence(run.parallel.sequence_parallel && tp > 1),
      b(run.training.micro_batch_size),
      cp(run.parallel.context_parallel_size),
      length(run.training.seq_length),
      further_in_batch(cp > 1 || run.training.calculate_per_token_loss),
      s(length / cp),
      n(b * s),
      r(by_sequence ? n / tp : n),
      e(element_size(m)),
      heads(m.num_attention_heads / tp),
      groups(std::max<std::int64_t>(1, m.num_query_groups / tp)),
      q(heads * m.kv_channels),
      kv(groups * m.kv_channels),
      v(groups * m.value_channels()),
      out(heads * m.value_channels()),
      wide(cp > 1 ? std::max(m.kv_channels, m.value_channels()) : m.kv_channels),
      ffn(m.ffn_hidden_size / tp),
      fc1(m.gated() ? 2 * ffn : ffn),
      vocabulary(padded_vocab_size(m, static_cast<int>(tp)) / tp),
      hidden(r * m.hidden_size * e),
      gathered(by_sequence ? n * m.hidden_size * e : 0),
      ep(run.parallel.expert_model_parallel_size),
      etp(run.parallel.expert_tensor()),
      k(m.moe.router_topk),
      chosen(layout::expert_rows(m.moe, r) * etp),
      rows(std::llround(static_cast<double>(chosen) * layout::assumed_share(m.moe, 0, static_cast<int>(ep)))),
      weighed(m.moe.token_dispatcher_type == config::TokenDispatcher::kAllGather ? rows : chosen),
      expert_ffn(m.moe.ffn_hidden_size / etp),
      shared_ffn(m.moe.shared_expert_intermediate_size / tp),
      up(m.gated() ? 2 : 1),
      experts_(layout::layers_with_experts(m)) {}

std::int64_t norm_statistics(const config::Model& m, std::int64_t rows) {
  return rows * kFp32 * (m.normalization == config::Normalization::kLayerNorm ? 2 : 1);
}

std::int64_t scores(const Sizes& z) { return z.n * z.length * z.heads * z.e; }

layout::ContextLayer across(const config::Run& run, std::int64_t layer) {
  return run.parallel.context_parallel_size > 1 ? layout::context_layer(run.parallel, layer)
                                                : layout::ContextLayer{};
}

std::int64_t exchanged_keys(const Sizes& z, const layout::ContextLayer& context) {
  return context.heads * std::max<std::int64_t>(1, z.groups / context.heads) * z.wide;
}

std::int64_t shared_channels(const Sizes& z, const layout::ContextLayer& context) {
  return z.heads * z.wide + 2 * exchanged_keys(z, context);
}

bool has_positions(const config::Run& run) {
  return run.data.reset_position_ids || run.parallel.context_parallel_size > 1;
}

bool has_sinks(const config::Model& m) { return m.softmax_type != config::SoftmaxType::kVanilla; }

bool keeps_scores(const config::Run& run) {
  const config::Model& m = run.model;
  return m.attention_dropout > 0 || m.attn_logit_softcapping > 0 ||
         m.position_embedding == config::PositionEmbedding::kRelative ||
         (has_sinks(m) && run.training.device == "cuda");
}

bool keeps_scores(const config::Run& run, std::int64_t layer) {
  return keeps_scores(run) && across(run, layer).ring == 1;
}

namespace {

/// Whether a kernel takes blocks of keys: CUDA's has no masks, and heads of some widths in 16 bits.
bool has_block_kernel(const config::Run& run, const Sizes& z, std::int64_t layer) {
  if (run.training.device != "cuda") return true;
  return z.e == 2 && z.wide % 8 == 0 && z.wide <= 256 && !run.data.reset_attention_mask &&
         !hides(layout::window_of(z.m, layer), static_cast<double>(z.length));
}

}  // namespace

std::int64_t block_scores(const config::Run& run, const Sizes& z, std::int64_t layer, bool backward) {
  const layout::ContextLayer context = across(run, layer);
  const bool capped = z.m.attn_logit_softcapping > 0, drops = z.m.attention_dropout > 0 && backward;
  if (context.ring == 1 || (!capped && !drops && has_block_kernel(run, z, layer))) return 0;
  // In chunks: queries of the own two, of one where some are dropped, meet keys of two, or of all others.
  const std::int64_t chunk = z.s * context.heads / 2, others = context.ring - 1;
  const std::int64_t own = drops ? 2 : 4, gathered = context.gathers ? 2 * others : 0;
  const std::int64_t pairs = z.b * z.heads / context.heads * chunk * chunk;
  const std::int64_t tensors = backward ? layout::scores_backward(capped) : layout::kScoresForward;
  const auto bytes = [&](std::int64_t of, std::int64_t halves) {
    return (2 * tensors + halves) * std::min(of * pairs, layout::kPieceOfScores) / 2 * kFp32;
  };
  const std::int64_t converted = z.e == kFp32 ? 0 : 2 * z.n * exchanged_keys(z, context) * kFp32;
  return std::max(bytes(own, drops ? 1 : 0), bytes(gathered, 0)) +
         (backward ? 2 : 1) * (context.gathers ? others : 1) * converted;
}

bool fills_heads(const config::Run& run, const Sizes& z) {
  return run.training.device != "cuda" && !keeps_scores(run) && z.cp == 1 &&
         z.m.value_channels() != z.m.kv_channels;
}

}  // namespace colonnade::cost
