// See attention.h. d and v are the head sizes of keys and values.
#include "colonnade/cost/blocks/attention.h"

#include <algorithm>

#include "colonnade/cost/window.h"

namespace colonnade::cost {
namespace {

bool has_sinks(const config::Model& m) { return m.softmax_type != config::SoftmaxType::kVanilla; }

bool has_relative_bias(const config::Model& m) {
  return m.position_embedding == config::PositionEmbedding::kRelative;
}

/// Whether attention is computed tile by tile (layout/attention_tiles.h) on one context rank, or on the ranks
/// of an all-to-all.
bool has_document_tiles(const Sizes& z, const LayerTraits& layer) {
  return z.run.data.attends_within_documents() && !layer.bidirectional && layer.context.ring == 1;
}

/// Whether attention without dropout takes the unfused path.
bool needs_scores(const Sizes& z) {
  return z.m.attn_logit_softcapping > 0 || has_relative_bias(z.m) || (has_sinks(z.m) && z.on_cuda());
}

}  // namespace

std::int64_t score_bytes(const Sizes& z) { return z.n * z.seq_length * z.heads * z.e; }

AttentionCost::AttentionCost(const Sizes& z, const LayerTraits& layer) : MixerCost(z), layer_(layer) {}

// Saved activations.

/// Key channels per local token in the all-to-all from sequence to head sharding.
std::int64_t AttentionCost::exchanged_kv_channels() const {
  const int heads = layer_.context.heads;
  return heads * std::max<std::int64_t>(1, z_.groups / heads) * z_.cp_head_dim;
}

/// Query, key and value channels per local token in context-parallel attention.
std::int64_t AttentionCost::exchanged_qkv_channels() const {
  return z_.heads * z_.cp_head_dim + 2 * exchanged_kv_channels();
}

std::int64_t AttentionCost::extra_exchanged_qkv() const {
  return z_.cp > 1 ? z_.n * z_.e * exchanged_qkv_channels() - qkv_bytes() : 0;
}

/// Whether the scores are saved; ring attention never saves them.
bool AttentionCost::saves_scores() const {
  return (z_.m.attention_dropout > 0 || needs_scores(z_)) && layer_.context.ring == 1 &&
         !has_document_tiles(z_, layer_);
}

bool AttentionCost::pads_value_heads() const {
  const bool unfused = z_.m.attention_dropout > 0 || needs_scores(z_);
  return !z_.on_cuda() && !unfused && z_.cp == 1 && z_.m.value_head_dim() != z_.m.kv_channels;
}

/// Softmax outputs, those after dropout, and capped scores; a sink adds one column to the scores and one
/// value row per sequence.
std::int64_t AttentionCost::saved_scores() const {
  const std::int64_t cap = z_.m.attn_logit_softcapping > 0 ? 1 : 0;
  const std::int64_t softmaxes = z_.m.attention_dropout > 0 ? 2 : 1;
  const int heads = layer_.context.heads;
  const std::int64_t values = heads > 1 ? exchanged_kv_channels() / heads : z_.v;
  const std::int64_t sinks = has_sinks(z_.m) ? z_.e * (z_.n * z_.heads + z_.b * values) : 0;
  return (cap + softmaxes) * score_bytes(z_) + sinks;
}

/// Saved copies of the attention output: in the kernel's layout, and in that of the projection.
std::int64_t AttentionCost::output_copies() const {
  if (saves_scores() || (pads_value_heads() && z_.out < z_.q)) return 1;
  if (has_document_tiles(z_, layer_) && !z_.on_cuda()) return layer_.context.heads > 1 ? 2 : 1;
  if (layer_.context.heads > 1) return 2;
  return (z_.on_cuda() ? z_.b : z_.b * z_.heads) > 1 ? 2 : 1;
}

/// Saved attention mask. Ring attention rebuilds its masks. Bidirectional layers mask padding.
std::int64_t AttentionCost::mask_bytes() const {
  const std::int64_t square = z_.seq_length * z_.seq_length * z_.e;
  if (layer_.bidirectional) return z_.b * square;
  if (layer_.context.ring > 1 || has_document_tiles(z_, layer_)) return 0;
  return layer_.window > 0 && layer_.window < z_.seq_length - 1 ? square : 0;
}

/// Core attention (scores, softmax, weighted sum) without queries, keys, values and the projection's input.
std::int64_t AttentionCost::core_saved() const {
  const bool unpadded = z_.cp > 1 && z_.out < z_.heads * z_.cp_head_dim;
  const std::int64_t copies = unpadded ? z_.heads * z_.cp_head_dim : (output_copies() - 1) * z_.out;
  const std::int64_t bytes = extra_exchanged_qkv() + z_.n * z_.e * copies;
  if (saves_scores()) return bytes + saved_scores();
  return bytes + z_.n * kFp32 * z_.heads + mask_bytes();
}

std::int64_t AttentionCost::projections_saved() const {
  const std::int64_t clipped = z_.m.clip_qkv > 0 ? qkv_bytes() : 0;
  if (z_.m.qk_norm_across_heads) return clipped + qkv_bytes() + gate_bytes() + 2 * z_.n * kFp32;
  const std::int64_t inputs = z_.n * z_.e * (z_.q + z_.kv), rows = z_.n * (z_.heads + z_.groups);
  if (z_.m.qk_l2_norm) return inputs + rows * kFp32;
  return clipped + (z_.m.qk_layernorm ? inputs + norm_statistics(z_.m, rows) : 0);
}

std::int64_t AttentionCost::saved() const {
  const std::int64_t positions =
      layer_.rope && has_position_ids(z_.run) && z_.b > 1 ? z_.n * kInt64 : 0;  // in [s, b] order
  return qkv_bytes() - recomputed_qkv() + z_.n * z_.e * z_.out + (recomputes_core() ? 0 : core_saved()) +
         projections_saved() + positions + 2 * gate_bytes();
}

// Backward pass.

/// Whether a fused kernel supports KV blocks. The CUDA kernel takes no masks, 16-bit types only, and some
/// head sizes.
bool AttentionCost::has_kv_block_kernel() const {
  if (!z_.on_cuda()) return true;
  return config::bytes(z_.dtypes.activation) == 2 && z_.cp_head_dim % 8 == 0 && z_.cp_head_dim <= 256 &&
         !window_masks(layer_.window, static_cast<double>(z_.seq_length));
}

/// Bytes of the scores of one KV block of ring attention and of its fp32 keys, alive together in an
/// evaluation's forward pass or in a backward pass; on the rank with the largest block. 0 where a fused
/// kernel runs.
std::int64_t AttentionCost::block_scores(bool backward) const {
  const layout::LayerContextParallel& context = layer_.context;
  const bool capped = z_.m.attn_logit_softcapping > 0, drops = z_.m.attention_dropout > 0 && backward;
  if (context.ring == 1 || (!capped && !drops && has_kv_block_kernel())) return 0;
  // In chunks: queries of the two own chunks (of one with dropout) meet keys of two chunks, or of all other
  // ranks.
  const std::int64_t chunk = z_.s * context.heads / 2, others = context.ring - 1;
  const std::int64_t own = drops ? 2 : 4, gathered = context.gathers ? 2 * others : 0;
  const std::int64_t pairs = z_.b * z_.heads / context.heads * chunk * chunk;
  const std::int64_t tensors =
      backward ? layout::backward_score_tensors(capped) : layout::kForwardScoreTensors;
  const auto bytes = [&](std::int64_t of, std::int64_t halves) {
    return (2 * tensors + halves) * std::min(of * pairs, layout::kMaxScoreElements) / 2 * kFp32;
  };
  const std::int64_t converted = z_.in_fp32() ? 0 : 2 * z_.n * exchanged_kv_channels() * kFp32;
  return std::max(bytes(own, drops ? 1 : 0), bytes(gathered, 0)) +
         (backward ? 2 : 1) * (context.gathers ? others : 1) * converted;
}

/// Backward pass of ring attention: gradients of output and queries, and the passing keys and values with
/// their fp32 gradients. With gathered keys: keys and values of all ranks with their gradients in both
/// orders, and the tensors of one KV block, which are freed before the reordering.
std::int64_t AttentionCost::ring_workspace() const {
  const layout::LayerContextParallel& context = layer_.context;
  if (context.ring == 1) return 0;
  const std::int64_t keys = 2 * z_.n * exchanged_kv_channels();
  const std::int64_t queries = z_.n * z_.heads * z_.cp_head_dim;
  const std::int64_t scored = block_scores(/*backward=*/true);
  if (!context.gathers) return queries * (2 * z_.e + kFp32) + 3 * keys * (z_.e + kFp32) + scored;
  const std::int64_t all = queries * (z_.e + kFp32) + (context.ring + 1) * keys * (z_.e + kFp32);
  const std::int64_t of_block = queries * z_.e + (context.ring - 1) * keys * z_.e + scored;
  return all + std::max((context.ring + 1) * keys * kFp32, scored > 0 ? of_block : 0);
}

/// Workspace of the largest document, a full row: gradients of its heads (with padded heads also their
/// copies), and with a soft cap or dropout its scores in fp32 with the gradients of keys and values.
std::int64_t AttentionCost::document_workspace(bool backward) const {
  const std::int64_t channels = pads_value_heads() ? 8 * std::max(z_.q, z_.out)
                                : z_.cp > 1        ? exchanged_qkv_channels()
                                                   : z_.q + z_.kv + z_.v;
  const std::int64_t row = z_.n / z_.b, gradients = backward ? row * z_.e * channels : 0;
  const bool capped = z_.m.attn_logit_softcapping > 0;
  const bool has_kernel = !z_.on_cuda() || !z_.in_fp32();
  if (!capped && has_kernel && (!backward || z_.m.attention_dropout == 0)) return gradients;
  const std::int64_t heads = z_.heads / layer_.context.heads;
  const std::int64_t scores = std::min(heads * z_.seq_length * z_.seq_length, layout::kMaxScoreElements);
  const std::int64_t tensors =
      backward ? layout::backward_score_tensors(capped) : layout::kForwardScoreTensors;
  const std::int64_t keys = row * (z_.kv + z_.v) * kFp32;
  return gradients + tensors * scores * kFp32 + (z_.in_fp32() ? 0 : keys) + (backward ? keys : 0);
}

/// Whether one call of the variable-length kernel on CUDA covers all documents (ops/attention_documents.cpp).
bool AttentionCost::has_variable_length_kernel() const {
  return z_.on_cuda() && !z_.in_fp32() && z_.m.attn_logit_softcapping == 0 && z_.m.attention_dropout == 0;
}

/// Gradients of queries, keys and values alongside the output's. With padded heads: these and the padded
/// values, and the output's gradient in its place. Unfused attention adds gradients of the scores, and
/// documents those of the largest.
std::int64_t AttentionCost::core_workspace() const {
  if (has_document_tiles(z_, layer_)) {
    const std::int64_t channels = z_.cp > 1 ? exchanged_qkv_channels() : z_.q + z_.kv + z_.v;
    // The kernel reads copies of queries, keys, values and the output's gradient with tokens first.
    const std::int64_t copies = z_.n * z_.e * (channels + z_.out);
    return z_.n * z_.e * channels +
           (has_variable_length_kernel() ? copies : document_workspace(/*backward=*/true));
  }
  const std::int64_t gradients = z_.cp > 1            ? exchanged_qkv_channels()
                                 : pads_value_heads() ? 5 * std::max(z_.q, z_.out) - z_.out
                                                      : z_.q + z_.kv + z_.v;
  const std::int64_t scored = saves_scores() ? 2 * score_bytes(z_) : 0;
  return std::max(z_.n * z_.e * gradients + scored, ring_workspace());
}

/// Second copies of queries, keys and values while attention is recomputed: all of them with an all-to-all,
/// else the padded ones.
std::int64_t AttentionCost::extra_qkv_copies() const {
  if (layer_.context.heads > 1) return qkv_bytes();
  if (z_.cp == 1) return 0;
  return z_.n * z_.e *
         ((z_.m.kv_channels < z_.cp_head_dim ? z_.q + z_.kv : 0) +
          (z_.m.value_head_dim() < z_.cp_head_dim ? z_.v : 0));
}

void AttentionCost::backward(LayerTracker& tracker) const {
  tracker.enter_mixer();
  tracker.row_parallel(z_.n * z_.e * z_.out, weight_gradient_bytes(z_, z_.m.hidden_size * z_.out));
  tracker.release_output_gradient(true);
  if (z_.m.attention_output_gate) gate_backward(tracker);
  tracker.allocate((recomputes_core() ? core_saved() : 0) + recomputed_qkv());
  const std::int64_t copies = recomputes_core() ? extra_qkv_copies() : 0;
  tracker.transient(core_workspace() + copies);
  projections_backward(tracker, copies);
}

/// From the gradient of the gated output to those of the attention output and of the gate, which replace it
/// and the gate; two intermediate tensors are fp32, one of them in place where activations are. The attention
/// output is freed.
void AttentionCost::gate_backward(LayerTracker& tracker) const {
  const std::int64_t wide = z_.n * z_.q * kFp32;
  tracker.transient(2 * gate_bytes() + (z_.in_fp32() ? wide : 2 * wide));
  tracker.release(gate_bytes());
}

void AttentionCost::projections_backward(LayerTracker& tracker, std::int64_t copies) const {
  tracker.release(core_saved() + z_.n * z_.e * z_.out);  // gradients of heads replace the heads
  // Gradients for the all-to-all: reordered, as one tensor, and received.
  if (layer_.context.heads > 1) tracker.transient(3 * z_.n * z_.e * exchanged_qkv_channels() + copies);
  tracker.transient(qkv_bytes() + gate_bytes());
  tracker.column_parallel(qkv_bytes() + gate_bytes(), largest_weight_gradient());
  tracker.leave_mixer(true);
}

std::int64_t AttentionCost::wgrad_saved() const {
  return 2 * z_.full_hidden() + 2 * z_.n * z_.e * (z_.q + z_.kv) + gate_bytes();
}

std::int64_t AttentionCost::largest_weight() const {
  return ((z_.m.attention_output_gate ? 2 : 1) * z_.q + 2 * z_.kv) * z_.m.hidden_size;
}

std::int64_t AttentionCost::largest_weight_gradient() const {
  return weight_gradient_bytes(z_, largest_weight());
}

// Evaluation.

std::int64_t AttentionCost::projections_evaluation() const {
  const std::int64_t heads = z_.n * z_.e * (3 * z_.q + 2 * z_.kv) + 3 * gate_bytes();
  const bool wide_gate = z_.m.attention_output_gate && !z_.in_fp32();
  return heads + std::max(z_.full_hidden(), wide_gate ? z_.n * z_.q * kFp32 : 0);
}

std::int64_t AttentionCost::evaluation() const {
  const std::int64_t unfused = has_document_tiles(z_, layer_) ? document_workspace(/*backward=*/false)
                               : needs_scores(z_) ? 2 * score_bytes(z_)
                                                              : 0;
  const std::int64_t scored = layer_.context.ring > 1 ? block_scores(/*backward=*/false) : unfused;
  return z_.stream + z_.hidden + projections_evaluation() + scored;
}

// Compute.

/// Relative-position biases of the local heads, shared by all samples; backward sums the score gradients over
/// samples in fp32, and by bucket.
void AttentionCost::add_relative_bias(BlockCompute& compute) const {
  if (!has_relative_bias(z_.m)) return;
  const RealSizes z(z_);
  const double biases = z.heads * z.seq_length * z.seq_length, scores = z.n * z.seq_length * z.heads;
  compute.add_elementwise(2 * biases * z.e, scores * z.e + biases * (2 * z.e + 2 * kFp32), 2, 3);
}

/// Unfused scores are written by QK^T, read and written by scale, cap or sink, mask and softmax, and read by
/// PV; backward does as many accesses. The matmuls then cover the full square, as does a kernel with a mask
/// of a window, but not within documents; those of KV blocks cover half of it, with fp32 scores. Ring
/// attention adds sinks after its last KV block; its kernel supports no masks.
void AttentionCost::add_scores(BlockCompute& compute, AttentionKernel kernel) const {
  const RealSizes z(z_);
  const bool blocks = layer_.context.ring > 1, fused = kernel == AttentionKernel::kFused;
  const bool masked =
      window_masks(layer_.window, z.seq_length) && (blocks || !has_document_tiles(z_, layer_));
  const bool unfused =
      !fused && (z.m.attn_logit_softcapping != 0 || z.m.attention_dropout > 0 || has_relative_bias(z.m) ||
                 (blocks ? masked : has_sinks(z.m) && !has_document_tiles(z_, layer_)));
  compute.attention.flops =
      z.n * (fused ? twice_attended_keys(layer_.window, z.seq_length) : z.seq_length) * (z.q + z.out);
  if (layer_.bidirectional || (!blocks && (unfused || (!fused && masked)))) compute.attention.flops *= 2;
  add_relative_bias(compute);
  if (z_.run.tracks_attention_logits()) {  // QK^T again, scale, mask and maximum in fp32, forward only
    const double scores = z.n * z.seq_length * z.heads;
    compute.add_elementwise(scores * 6 * kFp32, 0, 4, 0);
  }
  if (!unfused) return;
  const double accesses = 11 * z.n * z.seq_length * z.heads * (blocks ? kFp32 / 2.0 : z.e);
  compute.add_elementwise(accesses, accesses, 6, 6);
}

void AttentionCost::add_qkv_all_to_all(BlockCompute& compute) const {
  const double bytes = RealSizes::real(z_.n * z_.e * exchanged_qkv_channels());
  compute.collectives.push_back({GroupKind::kContextAllToAll, true, bytes, 1, 1});
  compute.add_elementwise(2 * bytes, 2 * bytes, 2, 2);
}

/// KV blocks, as if all queries attended to each. The first output is converted to fp32, the others are
/// merged into it; backward accumulates gradients of queries, keys and values in fp32. Gathered keys form up
/// to three blocks.
void AttentionCost::add_kv_blocks(BlockCompute& compute) const {
  const RealSizes z(z_);
  const layout::LayerContextParallel& context = layer_.context;
  const int hops = context.ring - 1, joins = context.gathers ? std::min(2, hops) : hops;
  const double queries = RealSizes::real(z_.n * z_.heads * z_.cp_head_dim), join = z.e + 2 * kFp32;
  const double kv = RealSizes::real(2 * z_.n * exchanged_kv_channels());
  compute.add_elementwise(queries * (joins * join + 2 * (z.e + kFp32)), (joins + 1) * (queries + kv) * join,
                          4 * joins + 2, 6 * joins + 6);
  if (context.gathers) {
    const double ranks = context.ring;
    compute.collectives.push_back({GroupKind::kContextRing, false, ranks * kv * z.e, 1, 1});
    compute.collectives.push_back({GroupKind::kContextRing, false, ranks * kv * kFp32, 0, 1});
    return;
  }
  compute.attention.ring = context.ring;
  compute.attention.kv_bytes = kv * z.e;
  compute.attention.kv_grad_bytes = kv * kFp32;
}

/// Heads shared by several ranks are sent to each of them; the output returns to sequence sharding.
void AttentionCost::add_context(BlockCompute& compute) const {
  if (z_.cp == 1) return;
  compute.context = layer_.context;
  if (layer_.context.heads > 1) {
    add_qkv_all_to_all(compute);
    const double bytes = RealSizes::real(z_.n * z_.e * z_.heads * z_.cp_head_dim);
    compute.collectives.push_back({GroupKind::kContextAllToAll, true, bytes, 1, 1});
    compute.add_elementwise(2 * bytes, 2 * bytes, 2, 2);
  }
  if (layer_.context.ring > 1) add_kv_blocks(compute);
}

BlockCompute AttentionCost::core(AttentionKernel kernel) const {
  BlockCompute compute;
  add_scores(compute, kernel);
  add_context(compute);
  return compute;
}

void AttentionCost::add_projections(BlockCompute& compute) const {
  const RealSizes z(z_);
  const double rotary = layer_.rope ? z.q + z.kv : 0;
  const double normed = z.m.qk_layernorm || z.m.qk_l2_norm ? z.q + z.kv : 0;
  compute.add_elementwise(2 * z.n * z.e * (rotary + normed), z.n * z.e * (2 * rotary + 3 * normed),
                          (rotary > 0 ? 2 : 0) + (normed > 0 ? 2 : 0),
                          (rotary > 0 ? 2 : 0) + (normed > 0 ? 4 : 0));
  if (z.m.qk_norm_across_heads)
    compute.collectives.push_back({GroupKind::kTensor, false, 2 * kFp32 * z.n, 2, 2});
  if (z.m.clip_qkv > 0) {
    const double heads = z.n * z.e * (z.q + 2 * z.kv);
    compute.add_elementwise(2 * heads, 3 * heads, 1, 1);
  }
  const double gate = z.m.attention_output_gate ? z.q : 0;
  if (gate > 0) {  // sigmoid and products in fp32, not fused
    const double gated = z.n * gate;
    compute.add_elementwise(gated * (4 * z.e + 5 * kFp32), gated * (5 * z.e + 11 * kFp32), 5, 8);
  }
  compute.matmuls.push_back(
      {"qkv", z.n, z.q + gate + 2 * z.kv, z.h, LinearSharding::kColumns, z.full_hidden});
}

BlockCompute AttentionCost::compute(AttentionKernel kernel) const {
  const RealSizes z(z_);
  BlockCompute compute = core(kernel);
  add_projections(compute);
  compute.matmuls.push_back({"proj", z.n, z.h, z.out, LinearSharding::kRows, z.full_hidden});
  return compute;
}

void AttentionCost::add_recomputed(AttentionKernel kernel, std::vector<BlockCompute>& parts) const {
  if (recomputes_core()) parts.push_back(core(kernel));
}

// Parameters and FLOPs.

double AttentionCost::parameters() const {
  const double h = RealSizes::real(z_.m.hidden_size), d = RealSizes::real(z_.m.kv_channels);
  const double heads = RealSizes::real(z_.m.num_attention_heads);
  const double groups = RealSizes::real(z_.m.num_query_groups);
  return 2 * h * h * (1 + groups / heads) * (d * heads / h);
}

double AttentionCost::projection_flops() const {
  const auto h = static_cast<double>(z_.m.hidden_size), d = static_cast<double>(z_.m.kv_channels);
  const double q = static_cast<double>(z_.m.num_attention_heads) * d;
  const double kv = static_cast<double>(z_.m.num_query_groups) * d;
  const double gate = z_.m.attention_output_gate ? q : 0;
  return 2 * (h * (q + gate + 2 * kv) + q * h);
}

double AttentionCost::score_flops() const {
  return 2 * static_cast<double>(z_.m.num_attention_heads) * static_cast<double>(z_.m.kv_channels);
}

ForwardFlops AttentionCost::flops() const {
  const auto tokens = static_cast<double>(z_.seq_length);
  const double attention = tokens * score_flops() * twice_attended_keys(layer_.window, tokens);
  // In a bidirectional layer every token attends to all of them.
  return {.linears = tokens * projection_flops(), .attention = attention * (layer_.bidirectional ? 2 : 1)};
}

ForwardFlops AttentionCost::recomputed_flops() const {
  return {.attention = recomputes_core() ? flops().attention : 0};
}

}  // namespace colonnade::cost
