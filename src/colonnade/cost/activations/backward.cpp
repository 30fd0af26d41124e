// Peak workspace of backward passes on top of the saved activations.
#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "colonnade/cost/activations.h"
#include "colonnade/cost/activations/delayed_wgrad.h"
#include "colonnade/cost/activations/saved.h"
#include "colonnade/layout/params/gpt.h"
#include "colonnade/layout/recompute.h"

namespace colonnade::cost {
namespace {

using layout::BlockKind;

std::int64_t head_workspace(const Sizes& z, bool delay_wgrad) {
  const std::int64_t input_gradient = z.n * z.m.hidden_size * z.e;
  return input_gradient + (z.sequence_parallel ? z.gathered + z.hidden : 0) +
         (delay_wgrad ? 0 : weight_gradient_bytes(z, z.vocabulary * z.m.hidden_size));
}

/// Bytes alive during a layer's backward pass beyond the saved activations, with their peak. `now` is
/// negative once more was freed than allocated.
class PeakTracker {
 public:
  PeakTracker(const Sizes& z, bool delay_wgrad) : z_(z), delay_wgrad_(delay_wgrad) {}

  void transient(std::int64_t bytes) { peak_ = std::max(peak_, now_ + bytes); }
  void allocate(std::int64_t bytes) { now_ += bytes; }
  void release(std::int64_t bytes) { now_ -= bytes; }

  /// Gradient of the residual stream to that of the branch's output, through dropout and a sandwich norm.
  void enter_residual_branch() {
    if (z_.m.hidden_dropout > 0) allocate(z_.hidden);
    if (!z_.m.sandwich_norm) return;
    transient(z_.hidden);
    if (z_.m.hidden_dropout == 0) allocate(z_.hidden);
    release(z_.hidden);  // the norm's input
  }
  /// Row-parallel linear with `input` bytes of input: input and weight gradients alongside the unsharded
  /// output gradient.
  void row_parallel(std::int64_t input, std::int64_t weight) {
    transient(z_.gathered + input + (delay_wgrad_ ? 0 : weight));
    allocate(input);
    if (delay_wgrad_)
      allocate(z_.gathered);
    else
      release(input);
  }
  /// The output gradient of the branch was consumed. `read`: by a linear layer, whose weight gradient may be
  /// delayed.
  void release_output_gradient(bool read) {
    if (has_own_gradient() && !(read && saves_hidden())) release(z_.hidden);
  }
  /// Column-parallel linear with `output` bytes of output. With sequence parallelism its input is gathered
  /// again and its input gradient is reduce-scattered.
  void column_parallel(std::int64_t output, std::int64_t weight) {
    const std::int64_t added = delay_wgrad_ ? 0 : weight;
    if (z_.sequence_parallel) transient(2 * z_.gathered + z_.hidden);
    transient(z_.gathered + z_.hidden + added);
    allocate(z_.hidden);
    if (!delay_wgrad_) release(output);
    if (delay_wgrad_ && z_.sequence_parallel) allocate(z_.gathered);
    if (!saves_hidden()) release(z_.hidden);  // its input
  }
  /// The norm before a branch, whose gradient replaces that of the residual stream; `read` as above.
  void norm(bool read) {
    transient(z_.hidden);
    release(2 * z_.hidden);
    if (read && saves_hidden() && !has_own_gradient()) allocate(z_.hidden);
  }
  [[nodiscard]] std::int64_t peak() const { return peak_; }
  [[nodiscard]] std::int64_t now() const { return now_; }

 private:
  /// Whether a delayed weight gradient holds the linear's input or output gradient itself, not a gathered
  /// copy.
  [[nodiscard]] bool saves_hidden() const { return delay_wgrad_ && !z_.sequence_parallel; }
  [[nodiscard]] bool has_own_gradient() const { return z_.m.hidden_dropout > 0 || z_.m.sandwich_norm; }

  const Sizes& z_;
  bool delay_wgrad_;
  std::int64_t now_ = 0, peak_ = 0;
};

/// An MLP with `up` bytes of fc1 output and `down` bytes of activation output.
void mlp_backward(PeakTracker& tracker, const Sizes& z, std::int64_t up, std::int64_t down) {
  const auto weight = [&](std::int64_t bytes) {
    return weight_gradient_bytes(z, bytes / (z.n * z.e) * z.m.hidden_size);
  };
  tracker.row_parallel(down, weight(down));
  tracker.transient(up);
  tracker.release(down);  // the gradient of the activation's input replaces the input
  tracker.column_parallel(up, weight(up));
}

/// Shared experts; their input stays alive for router and routed experts.
void shared_experts_backward(PeakTracker& tracker, const Sizes& z, const RecomputedParts& recomputed) {
  if (z.shared_ffn == 0) return;
  if (recomputed.shared > 0) {
    tracker.allocate(recomputed.shared);
    tracker.transient(z.gathered + z.hidden);
  }
  const std::int64_t down = z.n * z.e * z.shared_ffn;
  mlp_backward(tracker, z, z.fc1_per_ffn * down, down);
  tracker.allocate(z.hidden);
}

/// Routed experts: from the gradients of the combined outputs to those of the router's input.
void routed_experts_backward(PeakTracker& tracker, const config::Run& run, const Sizes& z,
                             const RecomputedParts& recomputed, bool delay_wgrad) {
  const bool gathers = z.m.moe.token_dispatcher_type == config::TokenDispatcher::kAllGather;
  const std::int64_t ranks = z.ep * z.etp;
  const ExpertBytes x(z);
  const std::int64_t combined = z.combined_rows * z.m.hidden_size * z.e;
  const std::int64_t all = ranks > 1 && gathers ? ranks * z.hidden : 0;
  const std::int64_t weight = delay_wgrad ? 0 : expert_gradient_bytes(run, z);
  tracker.transient(all + combined);                           // row gradients replace the rows' outputs
  if (ranks > 1 && !gathers) tracker.transient(2 * x.hidden);  // received rows, and sorted by expert
  tracker.release(combined - x.hidden);
  tracker.allocate(recomputed.activation);
  tracker.transient(x.fc2_input + weight);
  tracker.allocate(x.fc2_input);
  if (!delay_wgrad) tracker.release(x.hidden + x.fc2_input);
  tracker.transient(x.fc1_output);
  tracker.release(x.fc2_input);
  tracker.transient(x.hidden + z.fc1_per_ffn * weight);
  tracker.allocate(x.hidden);
  if (!delay_wgrad) tracker.release(x.hidden + x.fc1_output);
  if (ranks > 1) tracker.transient(gathers ? all : x.hidden + combined);
  tracker.release(x.hidden);
  if (ranks > 1 && !gathers) tracker.transient(combined + z.hidden);
  tracker.allocate(z.hidden);
  if (all > 0) tracker.transient(all);
}

/// An MoE layer between its norm and the residual sum. The router reads tokens in fp32.
void moe_backward(PeakTracker& tracker, const config::Run& run, const Sizes& z,
                  const RecomputedParts& recomputed, bool delay_wgrad) {
  const bool shared = z.shared_ffn > 0, overlaps = z.m.moe.shared_expert_overlap;
  if (!overlaps) shared_experts_backward(tracker, z, recomputed);
  routed_experts_backward(tracker, run, z, recomputed, delay_wgrad);
  if (overlaps) shared_experts_backward(tracker, z, recomputed);
  if (shared) tracker.release(z.hidden);  // two gradients of one input are summed
  tracker.release_output_gradient(shared);
  tracker.release(routing_activations(z));
  tracker.transient(z.hidden + (z.in_fp32() ? 0 : z.r * z.m.hidden_size * kFp32));
  if (delay_wgrad) tracker.allocate(router_wgrad_saved(z));
}

/// Backward pass of ring attention: gradients of output and queries, and the passing keys and values with
/// their fp32 gradients. With gathered keys: keys and values of all ranks with their gradients in both
/// orders, and the tensors of one KV block, which are freed before the reordering.
std::int64_t ring_workspace(const config::Run& run, const Sizes& z, std::int64_t layer) {
  const layout::LayerContextParallel context = context_of_layer(run, layer);
  if (context.ring == 1) return 0;
  const std::int64_t keys = 2 * z.n * exchanged_kv_channels(z, context);
  const std::int64_t queries = z.n * z.heads * z.cp_head_dim;
  const std::int64_t scored = block_scores(run, z, layer, /*backward=*/true);
  if (!context.gathers) return queries * (2 * z.e + kFp32) + 3 * keys * (z.e + kFp32) + scored;
  const std::int64_t all = queries * (z.e + kFp32) + (context.ring + 1) * keys * (z.e + kFp32);
  const std::int64_t of_block = queries * z.e + (context.ring - 1) * keys * z.e + scored;
  return all + std::max((context.ring + 1) * keys * kFp32, scored > 0 ? of_block : 0);
}

/// Gradients of queries, keys and values alongside the output's. With padded heads: these and the padded
/// values, and the output's gradient in its place. Unfused attention adds gradients of the scores.
std::int64_t core_attention_workspace(const config::Run& run, const Sizes& z, std::int64_t layer) {
  const std::int64_t gradients = z.cp > 1 ? exchanged_qkv_channels(z, context_of_layer(run, layer))
                                 : pads_value_heads(run, z) ? 5 * std::max(z.q, z.out) - z.out
                                                            : z.q + z.kv + z.v;
  const std::int64_t scored = saves_scores(run, layer) ? 2 * score_bytes(z) : 0;
  return std::max(z.n * z.e * gradients + scored, ring_workspace(run, z, layer));
}

/// Cross-attention: gradients of queries, keys, values and output; of the scores if attention is unfused.
std::int64_t cross_attention_workspace(const Sequences& s, const RecomputedParts& recomputed) {
  const Sizes &z = s.tokens(), &t = *s.encoder();
  const bool dense = z.m.attention_dropout > 0 || z.m.attn_logit_softcapping > 0;
  return z.n * z.e * (z.q + z.out) + t.n * z.e * 2 * z.q + (dense ? 2 * cross_score_bytes(s) : 0) +
         recomputed.norm;
}

/// Second copies of queries, keys and values while attention is recomputed: all of them with an all-to-all,
/// else the padded ones.
std::int64_t extra_qkv_copies(const Sizes& z, const layout::LayerContextParallel& context) {
  if (context.heads > 1) return z.n * z.e * (z.q + z.kv + z.v);
  if (z.cp == 1) return 0;
  return z.n * z.e *
         ((z.m.kv_channels < z.cp_head_dim ? z.q + z.kv : 0) +
          (z.m.value_head_dim() < z.cp_head_dim ? z.v : 0));
}

/// Attention between its norm and the residual sum.
void attention_backward(PeakTracker& tracker, const Sequences& s, std::int64_t layer,
                        const RecomputedParts& recomputed) {
  const config::Run& run = s.run(layer);
  const Sizes& z = s.of(layer);
  const std::int64_t result = z.n * z.e * z.out, heads = z.n * z.e * (z.q + z.kv + z.v);
  tracker.row_parallel(result, weight_gradient_bytes(z, z.m.hidden_size * z.out));
  tracker.release_output_gradient(true);
  tracker.allocate(recomputed.core_attention + recomputed.qkv);
  const layout::LayerContextParallel context = context_of_layer(run, layer);
  const std::int64_t copies = recomputed.core_attention > 0 ? extra_qkv_copies(z, context) : 0;
  tracker.transient(core_attention_workspace(run, z, layer) + copies);
  if (z.m.latent.enabled) return;
  tracker.release(core_attention_activations(run, z, layer) +
                  result);  // gradients of heads replace the heads
  // Gradients for the all-to-all: reordered, as one tensor, and received.
  if (context.heads > 1) tracker.transient(3 * z.n * z.e * exchanged_qkv_channels(z, context) + copies);
  tracker.transient(heads);
  tracker.column_parallel(heads, weight_gradient_bytes(z, largest_attention_weight(z)));
  tracker.norm(true);
}

/// End of a recomputed forward pass of MLP or MoE: its output, which is unsharded before the reduce-scatter.
std::int64_t mlp_output_workspace(const Sizes& z, std::int64_t layer) {
  if (!z.has_experts(layer)) return z.gathered + z.hidden;
  const bool gathers = z.m.moe.token_dispatcher_type == config::TokenDispatcher::kAllGather;
  const std::int64_t ranks = z.ep * z.etp, rows = z.expert_rows * z.m.hidden_size * z.e;
  const std::int64_t routed = ranks == 1 ? 0
                              : gathers  ? ranks * z.hidden
                                         : std::max(2 * rows, z.hidden) - z.hidden;
  if (z.shared_ffn == 0) return routed + z.hidden;
  return z.hidden + std::max({routed, z.gathered + z.hidden, 2 * z.hidden});
}

/// Workspace of a layer's backward pass on top of the saved activations.
struct LayerWorkspace {
  std::int64_t peak = 0;
  std::int64_t after_experts = 0;  ///< once the expert gradients are complete
};

/// The gradient of the residual stream throughout, and MLP, cross-attention and attention in turn. Later
/// parts have freed their activations, except those saved for delayed weight gradients.
LayerWorkspace layer_workspace(const Sequences& s, std::int64_t layer, bool delay_wgrad) {
  const Sizes& z = s.of(layer);
  const RecomputedParts recomputed(s.run(layer), z, layer);
  PeakTracker tracker(z, delay_wgrad);
  if (s.ends_encoder(layer)) {
    tracker.transient(z.hidden);
    tracker.release(z.hidden);
  }
  tracker.allocate(recomputed.norm);
  tracker.enter_residual_branch();
  if (recomputed.mlp > 0) {
    tracker.allocate(recomputed.mlp);
    tracker.transient(mlp_output_workspace(z, layer));
  }
  std::int64_t after_experts = 0;
  if (z.has_experts(layer)) {
    moe_backward(tracker, s.run(layer), z, recomputed, delay_wgrad);
    after_experts = tracker.now();
  } else {
    mlp_backward(tracker, z, z.n * z.e * z.fc1, z.n * z.e * z.ffn);
    tracker.release_output_gradient(true);
  }
  tracker.norm(!z.has_experts(layer) || z.shared_ffn > 0);
  if (s.has_cross_attention(layer)) {
    tracker.transient(cross_attention_workspace(s, recomputed));
    tracker.allocate(s.encoder()->hidden + (delay_wgrad ? cross_attention_wgrad_saved(s, layer) : 0) -
                     cross_attention_activations(s, layer));
  }
  tracker.allocate(recomputed.norm);
  tracker.enter_residual_branch();
  attention_backward(tracker, s, layer, recomputed);
  return {s.hidden() + tracker.peak(), s.hidden() + after_experts};
}

/// The same for a whole layer, with the residual sum.
std::int64_t layer_output_workspace(const Sequences& s, std::int64_t layer) {
  const Sizes& z = s.of(layer);
  return std::max(mlp_output_workspace(z, layer), z.hidden + s.hidden());
}

/// Backward pass of a stage, last block first. A fully recomputed span holds its activations on top of its
/// inputs until its backward pass is done.
class StageBackward {
 public:
  StageBackward(const config::Run& run, bool delay_wgrad, std::vector<UnitBytes> units)
      : run_(run),
        s_(run),
        plain_run_(without_recomputation(run)),
        plain_(plain_run_ ? plain_sequences_.emplace(*plain_run_) : s_),
        z_(s_.tokens()),
        delay_wgrad_(delay_wgrad),
        units_(std::move(units)) {}

  std::int64_t peak(const layout::StageBlocks& stage) {
    post_process(stage);
    layers(stage);
    if (stage.has(BlockKind::kEmbedding)) {
      const UnitBytes unit = take_unit();
      transient(s_.hidden() + bytes_of(unit));
      reduce_gradients(unit);
    }
    if (stage.empty()) transient(stage.states_in * s_.hidden());
    return std::max(peak_, s_.hidden());
  }

 private:
  /// The run without recomputation; nullopt if it is the same one.
  static std::optional<config::Run> without_recomputation(const config::Run& run) {
    if (!run.recompute.granularity) return std::nullopt;
    config::Run plain = run;
    plain.recompute = {};
    return plain;
  }

  void post_process(const layout::StageBlocks& stage) {
    if (!stage.has(BlockKind::kFinalNorm) && !stage.has(BlockKind::kHead)) return;
    const UnitBytes unit = take_unit();
    if (stage.has(BlockKind::kHead)) head(stage, unit);
    if (stage.has(BlockKind::kFinalNorm)) final_norm(stage, unit);
    reduce_gradients(unit);
  }

  /// The main logits, then those of the MTP depths. At the end the gradients of all states are alive; those
  /// of states received from another stage are concatenated. Delayed weight gradients hold the states as
  /// received, or gathered.
  void head(const layout::StageBlocks& stage, const UnitBytes& unit) {
    const bool apart = mtp_apart_from_head(z_.m, stage), as_received = apart && !z_.sequence_parallel;
    const std::int64_t wgrad_saved = head_wgrad_saved(z_) - (as_received ? z_.full_hidden() : 0);
    for (std::int64_t i = 0; i <= z_.m.mtp_num_layers; ++i) {
      transient(i * z_.hidden + head_workspace(z_, delay_wgrad_) + bytes_of(unit));
      release(i == 0 ? logit_activations(s_) + lm_head_transform_activations(z_) : mtp_logit_activations(s_),
              wgrad_saved);
    }
    if (!apart) return;
    const std::int64_t states = stage.states_in * z_.hidden;
    transient(2 * states + bytes_of(unit));
    release(states, as_received ? states : 0);
  }

  /// The last MTP depth first, with the gradients of the earlier states alive. Gradients received from
  /// another stage are one tensor, which stays alive as a whole.
  void final_norm(const layout::StageBlocks& stage, const UnitBytes& unit) {
    const bool apart = mtp_apart_from_head(z_.m, stage),
               recomputes = layout::recomputes_mtp_layers(run_.recompute);
    const std::int64_t depths = z_.m.mtp_num_layers;
    const std::int64_t layer = depths > 0 ? layer_activations(s_, z_.m.num_layers) : 0;
    for (std::int64_t i = depths; i > 0; --i) {
      if (recomputes) now_ += layer;
      layer_backward(recomputes ? plain_ : s_, z_.m.num_layers, unit, (apart ? depths + 1 : i) * z_.hidden);
      release(mtp_activations(s_) - (recomputes ? 0 : layer), 3 * z_.hidden);
    }
    release(final_norm_activations(z_) - (apart ? z_.hidden : 0), 0);
  }

  void layers(const layout::StageBlocks& stage) {
    std::int64_t layer = stage.layers().last;
    const auto spans = layout::recompute_spans(run_.recompute, stage.layers().size());
    std::int64_t layers_saved = stage.layers().size();
    for (const std::int64_t length : spans) layers_saved -= length;
    for (; layers_saved > 0; --layers_saved) {
      const UnitBytes unit = take_unit();
      layer_backward(s_, --layer, unit);
      reduce_gradients(unit);
    }
    for (auto length = spans.rbegin(); length != spans.rend(); ++length) {
      now_ -= s_.hidden();
      for (std::int64_t i = 1; i <= *length; ++i) now_ += layer_activations(plain_, layer - i);
      const UnitBytes unit = take_unit();
      transient(s_.hidden() + layer_output_workspace(plain_, layer - 1) + bytes_of(unit));
      for (std::int64_t i = 0; i < *length; ++i) layer_backward(plain_, --layer, unit);
      reduce_gradients(unit);
    }
  }

  void layer_backward(const Sequences& s, std::int64_t layer, const UnitBytes& unit,
                      std::int64_t other_states = 0) {
    const LayerWorkspace workspace = layer_workspace(s, layer, delay_wgrad_);
    transient(other_states + bytes_of(unit) + workspace.peak);
    if (!delay_wgrad_ && unit.reduce_experts > 0)
      transient(other_states + unit.reduce_experts + workspace.after_experts);
    release(layer_activations(s, layer), layer_wgrad_saved(s, layer));
  }

  /// `bytes` alive for a moment on top of the current ones.
  void transient(std::int64_t bytes) { peak_ = std::max(peak_, now_ + bytes); }
  /// Frees `saved` activations, except `wgrad_saved` with delayed weight gradients.
  void release(std::int64_t saved, std::int64_t wgrad_saved) {
    now_ += (delay_wgrad_ ? wgrad_saved : 0) - saved;
  }

  UnitBytes take_unit() {
    if (units_.empty()) return {};
    const UnitBytes bytes = units_.back();
    units_.pop_back();
    return bytes;
  }
  [[nodiscard]] std::int64_t bytes_of(const UnitBytes& unit) const {
    return delay_wgrad_ ? unit.backward_input : unit.backward;
  }
  /// The gradients of a unit are complete and are reduce-scattered.
  void reduce_gradients(const UnitBytes& unit) {
    now_ -= unit.kept_params;
    transient(s_.hidden() + (delay_wgrad_ ? unit.reduce_input : unit.reduce));
    if (!delay_wgrad_) now_ += unit.pending_sum;
  }

  const config::Run& run_;
  Sequences s_;
  std::optional<config::Run> plain_run_;
  std::optional<Sequences> plain_sequences_;
  const Sequences& plain_;  ///< without recomputation
  const Sizes& z_;          ///< sizes of the head's sequence
  bool delay_wgrad_;
  std::vector<UnitBytes> units_;  ///< units not yet processed
  std::int64_t now_ = 0;          ///< relative to the saved activations at the start of the stage
  std::int64_t peak_ = 0;
};

}  // namespace

std::int64_t stage_workspace(const config::Run& run, const layout::StageBlocks& stage, bool delay_wgrad,
                             const std::vector<UnitBytes>& units) {
  return StageBackward(run, delay_wgrad, units).peak(stage);
}

}  // namespace colonnade::cost
