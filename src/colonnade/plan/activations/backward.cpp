// What backward passes add to what is kept, and leave behind.
#include <algorithm>
#include <numeric>
#include <utility>

#include "colonnade/plan/activations.h"
#include "colonnade/plan/activations/kept.h"
#include "colonnade/plan/params/gpt.h"
#include "colonnade/plan/recompute.h"

namespace colonnade::plan {
namespace {

/// Of a weight with `elements`, before it is added in fp32.
std::int64_t weight_gradient(const Sizes& z, std::int64_t elements) {
  return z.e == kFp32 ? 0 : elements * z.e;
}

std::int64_t head_waiting(const Sizes& z) { return z.whole() + z.n * z.vocabulary * z.e; }

std::int64_t head_working(const Sizes& z, bool waits) {
  const std::int64_t input_gradient = z.n * z.m.hidden_size * z.e;
  return input_gradient + (z.by_sequence ? z.gathered + z.hidden : 0) +
         (waits ? 0 : weight_gradient(z, z.vocabulary * z.m.hidden_size));
}

/// Inputs and output gradients of the projections for queries, for keys and values, and of the result.
std::int64_t cross_waiting(const Sequences& s, std::int64_t layer) {
  if (!s.crosses(layer)) return 0;
  const Sizes &z = s.tokens(), &t = *s.encoder();
  return 2 * z.whole() + 2 * z.n * z.e * z.q + t.whole() + 2 * t.n * z.e * z.q;
}

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

/// Router and gate read the same input, where they need not convert it, and shared experts too, where they do
/// not gather it.
std::int64_t mlp_waiting(const Sizes& z, std::int64_t layer) {
  if (!z.has_experts(layer)) return 2 * z.whole() + z.n * z.e * (z.fc1 + z.ffn);
  const bool shared = z.shared_ffn > 0;
  const bool noisy = z.m.moe.input_jitter_eps > 0;
  const bool one_input = shared && !z.by_sequence && z.e == kFp32 && !noisy;
  const std::int64_t router = z.r * kFp32 * (z.m.moe.num_experts + (one_input ? 0 : z.m.hidden_size));
  const bool gate_apart = z.e != kFp32 || (noisy && z.by_sequence);
  const std::int64_t gate =
      z.m.moe.shared_expert_gate ? z.r * kFp32 * (1 + (gate_apart ? z.m.hidden_size : 0)) : 0;
  return router + gate + (shared ? 2 * z.whole() + z.n * z.e * (z.up + 1) * z.shared_ffn : 0);
}

/// Of a layer.
std::int64_t layer_waiting(const Sequences& s, std::int64_t layer) {
  return attention_waiting(s.of(layer)) + cross_waiting(s, layer) + mlp_waiting(s.of(layer), layer);
}

/// Of a further token: the projection of the token and of what is predicted so far, and a layer.
std::int64_t prediction_waiting(const Sizes& z) {
  return 3 * z.hidden + attention_waiting(z) + mlp_waiting(z, z.m.num_layers);
}

/// Of a layer's MLP: the gradient of fc2's input (with the gathered gradient and the weight's), then of the
/// activation's input too, when fc2 has let go of its own.
std::int64_t mlp_working(const Sizes& z, const Again& again) {
  const std::int64_t fc2 = z.gathered + z.n * z.e * z.ffn + weight_gradient(z, z.m.hidden_size * z.ffn);
  return std::max(fc2, z.n * z.e * z.fc1) + again.mlp + again.norm;
}

/// Of experts: the gradients of the gathered sums and of the rows; then those of the activation, when the
/// rows' sums are gone, with the weights' own. Shared experts go back before them.
std::int64_t expert_working(const Sizes& z, const Again& again) {
  const bool gathers = z.m.moe.token_dispatcher_type == config::TokenDispatcher::kAllGather;
  const std::int64_t ranks = z.ep * z.etp, row = z.m.hidden_size * z.e;
  const std::int64_t all = ranks == 1 ? 0 : gathers ? ranks * z.hidden : z.rows * row;
  const std::int64_t weights =
      weight_gradient(z, z.m.moe.num_experts / z.ep * z.m.hidden_size * z.expert_ffn);
  const std::int64_t routed =
      std::max(all + z.rows * row, z.rows * z.e * z.expert_ffn + weights + again.activation);
  const std::int64_t shared = again.shared + z.gathered + z.n * z.e * z.up * z.shared_ffn;
  return std::max(routed, again.shared > 0 ? shared : 0) + again.mlp + again.norm;
}

/// What the backward pass over blocks of keys makes: gradients of the output and of the queries, keys and
/// values that come by with their gradients in fp32, or those of all ranks with theirs in both orders.
std::int64_t blocks_working(const Sizes& z, const ContextLayer& context) {
  if (context.ring == 1) return 0;
  const std::int64_t keys = 2 * z.n * exchanged_keys(z, context);
  const std::int64_t queries = z.n * z.heads * z.wide;
  if (context.gathers) return queries * (z.e + kFp32) + (context.ring + 1) * keys * (z.e + 2 * kFp32);
  return queries * (2 * z.e + kFp32) + 3 * keys * (z.e + kFp32);
}

/// Gradients of queries, keys, values and of the result; with heads that are filled up, values, result and
/// its gradient filled. Beside them those of the scores, where these are kept.
std::int64_t core_working(const config::Run& run, const Sizes& z, std::int64_t layer) {
  const std::int64_t shared = shared_channels(z, across(run, layer)) + z.heads * z.wide;
  const std::int64_t gradients = z.cp > 1              ? shared
                                 : fills_heads(run, z) ? 6 * std::max(z.q, z.out) + z.out
                                                       : z.q + z.kv + z.v + z.out;
  const std::int64_t scored = keeps_scores(run) ? 2 * scores(z) : 0;
  return std::max(z.n * z.e * gradients + scored, blocks_working(z, across(run, layer)));
}

/// Of attention to an encoder: gradients of queries, keys, values and of the result, and those of the scores
/// where these are kept.
std::int64_t cross_working(const Sequences& s, const Again& again) {
  const Sizes &z = s.tokens(), &t = *s.encoder();
  const bool dense = z.m.attention_dropout > 0 || z.m.attn_logit_softcapping > 0;
  return z.n * z.e * (z.q + z.out) + t.n * z.e * 2 * z.q + (dense ? 2 * cross_scores(s) : 0) + again.norm;
}

/// Queries, keys and values that lie beside those which attention reads while it is made again: all that are
/// exchanged, else those that are filled up.
std::int64_t heads_beside(const Sizes& z, const ContextLayer& context) {
  if (context.heads > 1) return z.n * z.e * (z.q + z.kv + z.v);
  if (z.cp == 1) return 0;
  return z.n * z.e *
         ((z.m.kv_channels < z.wide ? z.q + z.kv : 0) + (z.m.value_channels() < z.wide ? z.v : 0));
}

/// On top of what is kept while a layer goes backward: the gradient of the residual stream, and inside it
/// what the MLP needs, then attention to an encoder and attention, when those behind have let go of what they
/// kept but for what waits.
std::int64_t layer_working(const Sequences& s, std::int64_t layer, bool waits) {
  const config::Run& run = s.run(layer);
  const Sizes& z = s.of(layer);
  const Again again(run, z, layer);
  const std::int64_t mlp = z.has_experts(layer) ? expert_working(z, again) : mlp_working(z, again);
  const std::int64_t freed = mlp_part(z, layer, again) + 2 * z.hidden - again.norm;
  // The gradient that a backward pass within the backward pass begins with, and what it reads.
  const std::int64_t beside = again.core > 0 ? z.n * z.e * z.out + heads_beside(z, across(run, layer)) : 0;
  const std::int64_t behind = (waits ? mlp_waiting(z, layer) : 0) - freed;
  std::int64_t cross = 0, behind_cross = behind;
  if (s.crosses(layer)) {
    cross = cross_working(s, again) + behind;
    behind_cross += s.encoder()->hidden + (waits ? cross_waiting(s, layer) : 0) - cross_activations(s, layer);
  }
  const std::int64_t attention =
      core_working(run, z, layer) + again.core + beside + again.heads + again.norm + behind_cross;
  return s.hidden() + std::max({mlp, attention, cross});
}

/// Elements of the largest weight of attention.
std::int64_t attention_weight(const Sizes& z) {
  const config::LatentAttention& latent = z.m.latent;
  if (!latent.enabled) return (z.q + 2 * z.kv) * z.m.hidden_size;
  const std::int64_t queries = latent.q_lora_rank > 0 ? latent.q_lora_rank : z.m.hidden_size;
  return std::max({queries * z.q, latent.q_lora_rank * z.m.hidden_size, z.out * z.m.hidden_size,
                   latent.kv_lora_rank * z.heads * (latent.qk_head_dim + latent.v_head_dim)});
}

/// The blocks of a stage as they go backward, the last one first; what is made again as a whole lies on top
/// of its inputs until it is through.
class Backward {
 public:
  Backward(const config::Run& run, bool waits, std::vector<UnitBytes> units)
      : run_(run),
        plain_run_(without_recomputation(run)),
        s_(run),
        plain_(plain_run_),
        z_(s_.tokens()),
        waits_(waits),
        units_(std::move(units)) {}

  std::int64_t most(const StageBlocks& stage) {
    end(stage);
    layers(stage);
    if (stage.embedding) {
      const UnitBytes unit = take_unit();
      see(s_.hidden() + bytes_in(unit));
      land(unit);
    }
    if (stage.empty())
      see(2 * stage.states_in * s_.hidden());  // the gradient that came, and its copy that goes on
    return std::max(most_, s_.hidden());
  }

 private:
  static config::Run without_recomputation(config::Run run) {
    run.recompute = {};
    return run;
  }

  void end(const StageBlocks& stage) {
    if (!stage.final_norm && !stage.head) return;
    const UnitBytes unit = take_unit();
    if (stage.head) head(stage, unit);
    if (stage.final_norm) final_norm(stage, unit);
    land(unit);
  }

  /// The model's own logits, then those of the further tokens. Gradients of all states lie there in the end;
  /// those that came from another stage are put together.
  void head(const StageBlocks& stage, const UnitBytes& unit) {
    for (std::int64_t i = 0; i <= z_.m.mtp_num_layers; ++i) {
      see(i * z_.hidden + head_working(z_, waits_) + bytes_in(unit));
      leave(i == 0 ? logit_activations(s_) : further_logit_activations(s_), head_waiting(z_));
    }
    if (!ends_apart(z_.m, stage)) return;
    see(2 * stage.states_in * z_.hidden + bytes_in(unit));
    leave(stage.states_in * z_.hidden, 0);
  }

  /// The last further token first. Gradients of the states before it lie beside; what came from another stage
  /// lies together and stays whole.
  void final_norm(const StageBlocks& stage, const UnitBytes& unit) {
    const bool apart = ends_apart(z_.m, stage), again = makes_predictions_again(run_.recompute);
    const std::int64_t depths = z_.m.mtp_num_layers;
    const std::int64_t layer = depths > 0 ? layer_activations(s_, z_.m.num_layers) : 0;
    for (std::int64_t i = depths; i > 0; --i) {
      if (again) now_ += layer;
      pass(again ? plain_ : s_, z_.m.num_layers, (apart ? depths + 1 : i) * z_.hidden + bytes_in(unit));
      leave(prediction_activations(s_) - (again ? 0 : layer), 3 * z_.hidden);
    }
    leave(final_norm_activations(z_) - (apart ? z_.hidden : 0), 0);
  }

  void layers(const StageBlocks& stage) {
    std::int64_t layer = stage.first_layer + stage.num_layers;
    const auto stretches = stretches_made_again(run_.recompute, stage.num_layers);
    std::int64_t kept = stage.num_layers;
    for (const std::int64_t length : stretches) kept -= length;
    for (; kept > 0; --kept) {
      const UnitBytes unit = take_unit();
      pass(s_, --layer, bytes_in(unit));
      land(unit);
    }
    for (auto length = stretches.rbegin(); length != stretches.rend(); ++length) {
      now_ -= s_.hidden();
      for (std::int64_t i = 1; i <= *length; ++i) now_ += layer_activations(plain_, layer - i);
      const UnitBytes unit = take_unit();
      for (std::int64_t i = 0; i < *length; ++i) pass(plain_, --layer, bytes_in(unit));
      land(unit);
    }
  }

  void pass(const Sequences& s, std::int64_t layer, std::int64_t beside) {
    see(beside + layer_working(s, layer, waits_));
    leave(layer_activations(s, layer), layer_waiting(s, layer));
  }

  /// A moment with `bytes` on top of what is kept.
  void see(std::int64_t bytes) { most_ = std::max(most_, now_ + bytes); }
  /// Lets go of what was kept, but for what waits.
  void leave(std::int64_t kept, std::int64_t waiting) { now_ += (waits_ ? waiting : 0) - kept; }

  UnitBytes take_unit() {
    if (units_.empty()) return {};
    const UnitBytes bytes = units_.back();
    units_.pop_back();
    return bytes;
  }
  [[nodiscard]] std::int64_t bytes_in(const UnitBytes& unit) const {
    return waits_ ? unit.input : unit.backward;
  }
  /// The gradients of a block are complete and go to their owners.
  void land(const UnitBytes& unit) {
    see(s_.hidden() + unit.landing);
    if (!waits_) now_ += unit.summed;
  }

  const config::Run& run_;
  config::Run plain_run_;
  Sequences s_, plain_;
  const Sizes& z_;  ///< of the head
  bool waits_;
  std::vector<UnitBytes> units_;  ///< of the blocks that are still to come
  std::int64_t now_ = 0;          ///< beyond what is kept when the stage begins
  std::int64_t most_ = 0;
};

}  // namespace

std::int64_t stage_waiting(const config::Run& run, const StageBlocks& stage) {
  const Sequences s(run);
  const Sizes& z = s.tokens();
  std::int64_t bytes = 0;
  for (std::int64_t i = 0; i < stage.num_layers; ++i) bytes += layer_waiting(s, stage.first_layer + i);
  if (stage.final_norm) bytes += z.m.mtp_num_layers * prediction_waiting(z);
  if (stage.head) bytes += (1 + z.m.mtp_num_layers) * head_waiting(z);
  return bytes;
}

std::int64_t stage_working(const config::Run& run, const StageBlocks& stage, bool waits,
                           const std::vector<UnitBytes>& units) {
  return Backward(run, waits, units).most(stage);
}

std::int64_t stage_weights_working(const config::Run& run, const StageBlocks& stage,
                                   const std::vector<UnitBytes>& units) {
  const Sequences s(run);
  const Sizes& z = s.tokens();
  const std::int64_t h = z.m.hidden_size, depths = z.m.mtp_num_layers;
  const std::int64_t of_layer = weight_gradient(z, std::max(attention_weight(z), z.fc1 * h));
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
    const std::int64_t of_predictions = predicts ? std::max(weight_gradient(z, 2 * h * h), of_layer) : 0;
    compute(std::max(of_head, of_predictions), (stage.head ? (1 + depths) * head_waiting(z) : 0) +
                                                   (predicts ? depths * prediction_waiting(z) : 0));
  }
  std::int64_t layer = stage.first_layer + stage.num_layers;
  auto lengths = stretches_made_again(run.recompute, stage.num_layers);
  for (std::int64_t kept =
           stage.num_layers - std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
       kept > 0; --kept)
    lengths.push_back(1);
  for (auto length = lengths.rbegin(); length != lengths.rend(); ++length) {
    std::int64_t waiting = 0;
    for (std::int64_t i = 0; i < *length; ++i) waiting += layer_waiting(s, --layer);
    compute(of_layer, waiting);
  }
  return most;
}

}  // namespace colonnade::plan
