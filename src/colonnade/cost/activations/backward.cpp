// What backward passes add to what is kept.
#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "colonnade/cost/activations.h"
#include "colonnade/cost/activations/kept.h"
#include "colonnade/cost/activations/waiting.h"
#include "colonnade/layout/params/gpt.h"
#include "colonnade/layout/recompute.h"

namespace colonnade::cost {
namespace {

std::int64_t head_working(const Sizes& z, bool waits) {
  const std::int64_t input_gradient = z.n * z.m.hidden_size * z.e;
  return input_gradient + (z.by_sequence ? z.gathered + z.hidden : 0) +
         (waits ? 0 : weight_gradient(z, z.vocabulary * z.m.hidden_size));
}

/// Bytes beside all that is kept while a layer goes backward, moment by moment; below 0 where more is gone
/// than was made.
class Moments {
 public:
  Moments(const Sizes& z, bool waits) : z_(z), waits_(waits) {}

  void see(std::int64_t bytes) { most_ = std::max(most_, now_ + bytes); }
  void keep(std::int64_t bytes) { now_ += bytes; }
  void drop(std::int64_t bytes) { now_ -= bytes; }

  /// From the residual stream to the output of the part before its sum: by dropout and by a norm behind it.
  void enter_part() {
    if (z_.m.hidden_dropout > 0) keep(z_.hidden);
    if (!z_.m.sandwich_norm) return;
    see(z_.hidden);
    if (z_.m.hidden_dropout == 0) keep(z_.hidden);
    drop(z_.hidden);  // what the norm read
  }
  /// The second product of a part, whose input has `input` bytes: gradients of it and of the weight beside
  /// the whole output's.
  void row_product(std::int64_t input, std::int64_t weight) {
    see(z_.gathered + input + (waits_ ? 0 : weight));
    keep(input);
    if (waits_)
      keep(z_.gathered);
    else
      drop(input);
  }
  /// The part's output has given its gradient on. `read`: by a product, whose weight may wait for it.
  void leave_output(bool read) {
    if (has_own_gradient() && !(read && stays())) drop(z_.hidden);
  }
  /// The first one, with `output` bytes. A whole sequence is gathered again, and the sum of the gradients of
  /// another cut.
  void column_product(std::int64_t output, std::int64_t weight) {
    const std::int64_t added = waits_ ? 0 : weight;
    if (z_.by_sequence) see(2 * z_.gathered + z_.hidden);
    see(z_.gathered + z_.hidden + added);
    keep(z_.hidden);
    if (!waits_) drop(output);
    if (waits_ && z_.by_sequence) keep(z_.gathered);
    if (!stays()) drop(z_.hidden);  // what was read
  }
  /// The norm before a part, whose gradient takes the place of the residual stream's; `read` as above.
  void norm(bool read) {
    see(z_.hidden);
    drop(2 * z_.hidden);
    if (read && stays() && !has_own_gradient()) keep(z_.hidden);
  }
  [[nodiscard]] std::int64_t most() const { return most_; }
  [[nodiscard]] std::int64_t now() const { return now_; }

 private:
  /// What a product reads, or its output's gradient, where no gathered copy of it waits.
  [[nodiscard]] bool stays() const { return waits_ && !z_.by_sequence; }
  [[nodiscard]] bool has_own_gradient() const { return z_.m.hidden_dropout > 0 || z_.m.sandwich_norm; }

  const Sizes& z_;
  bool waits_;
  std::int64_t now_ = 0, most_ = 0;
};

/// Of an MLP with `up` bytes between its product and its activation, and `down` behind that.
void mlp_backward(Moments& moments, const Sizes& z, std::int64_t up, std::int64_t down) {
  const auto weight = [&](std::int64_t bytes) {
    return weight_gradient(z, bytes / (z.n * z.e) * z.m.hidden_size);
  };
  moments.row_product(down, weight(down));
  moments.see(up);
  moments.drop(down);  // for the gradient of what the activation read that itself goes
  moments.column_product(up, weight(up));
}

/// Shared experts, of whose input others have need too.
void shared_backward(Moments& moments, const Sizes& z, const Again& again) {
  if (z.shared_ffn == 0) return;
  if (again.shared > 0) {
    moments.keep(again.shared);
    moments.see(z.gathered + z.hidden);
  }
  const std::int64_t down = z.n * z.e * z.shared_ffn;
  mlp_backward(moments, z, z.up * down, down);
  moments.keep(z.hidden);
}

/// Experts that tokens choose: from the gradients of their sums to those of what the router reads.
void routed_backward(Moments& moments, const config::Run& run, const Sizes& z, const Again& again,
                     bool waits) {
  const bool gathers = z.m.moe.token_dispatcher_type == config::TokenDispatcher::kAllGather;
  const std::int64_t ranks = z.ep * z.etp;
  const ExpertBytes x(z);
  const std::int64_t home = z.weighed * z.m.hidden_size * z.e;
  const std::int64_t all = ranks > 1 && gathers ? ranks * z.hidden : 0;
  const std::int64_t weight = waits ? 0 : expert_gradient(run, z);
  moments.see(all + home);                             // gradients of rows take the place of their outputs
  if (ranks > 1 && !gathers) moments.see(2 * x.rows);  // those that arrive, and in order
  moments.drop(home - x.rows);
  moments.keep(again.activation);
  moments.see(x.down + weight);
  moments.keep(x.down);
  if (!waits) moments.drop(x.rows + x.down);
  moments.see(x.up);
  moments.drop(x.down);
  moments.see(x.rows + z.up * weight);
  moments.keep(x.rows);
  if (!waits) moments.drop(x.rows + x.up);
  if (ranks > 1) moments.see(gathers ? all : x.rows + home);
  moments.drop(x.rows);
  if (ranks > 1 && !gathers) moments.see(home + z.hidden);
  moments.keep(z.hidden);
  if (all > 0) moments.see(all);
}

/// Of a mixture between its norm and the residual sum. Tokens are converted to fp32 for the router.
void mixture_backward(Moments& moments, const config::Run& run, const Sizes& z, const Again& again,
                      bool waits) {
  const bool shared = z.shared_ffn > 0, beside = z.m.moe.shared_expert_overlap;
  if (!beside) shared_backward(moments, z, again);
  routed_backward(moments, run, z, again, waits);
  if (beside) shared_backward(moments, z, again);
  if (shared) moments.drop(z.hidden);  // two gradients of one input
  moments.leave_output(shared);
  moments.drop(routing_activations(z));
  moments.see(z.hidden + (z.e == kFp32 ? 0 : z.r * z.m.hidden_size * kFp32));
  if (waits) moments.keep(router_waiting(z));
}

/// What the backward pass over blocks of keys makes: gradients of the output and of the queries, keys and
/// values that come by with their gradients in fp32, or those of all ranks with theirs in both orders; and
/// what a block makes, which is gone before the orders change.
std::int64_t blocks_working(const config::Run& run, const Sizes& z, std::int64_t layer) {
  const layout::ContextLayer context = across(run, layer);
  if (context.ring == 1) return 0;
  const std::int64_t keys = 2 * z.n * exchanged_keys(z, context);
  const std::int64_t queries = z.n * z.heads * z.wide;
  const std::int64_t scored = block_scores(run, z, layer, /*backward=*/true);
  if (!context.gathers) return queries * (2 * z.e + kFp32) + 3 * keys * (z.e + kFp32) + scored;
  const std::int64_t all = queries * (z.e + kFp32) + (context.ring + 1) * keys * (z.e + kFp32);
  const std::int64_t of_block = queries * z.e + (context.ring - 1) * keys * z.e + scored;
  return all + std::max((context.ring + 1) * keys * kFp32, scored > 0 ? of_block : 0);
}

/// Gradients of queries, keys and values, beside the result's; with heads that are filled up, these and
/// values filled, and the result's gradient in place of itself. Beside them those of the scores, where these
/// are kept.
std::int64_t core_working(const config::Run& run, const Sizes& z, std::int64_t layer) {
  const std::int64_t gradients = z.cp > 1              ? shared_channels(z, across(run, layer))
                                 : fills_heads(run, z) ? 5 * std::max(z.q, z.out) - z.out
                                                       : z.q + z.kv + z.v;
  const std::int64_t scored = keeps_scores(run, layer) ? 2 * scores(z) : 0;
  return std::max(z.n * z.e * gradients + scored, blocks_working(run, z, layer));
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
std::int64_t heads_beside(const Sizes& z, const layout::ContextLayer& context) {
  if (context.heads > 1) return z.n * z.e * (z.q + z.kv + z.v);
  if (z.cp == 1) return 0;
  return z.n * z.e *
         ((z.m.kv_channels < z.wide ? z.q + z.kv : 0) + (z.m.value_channels() < z.wide ? z.v : 0));
}

/// Of attention between its norm and the residual sum.
void attention_backward(Moments& moments, const Sequences& s, std::int64_t layer, const Again& again) {
  const config::Run& run = s.run(layer);
  const Sizes& z = s.of(layer);
  const std::int64_t result = z.n * z.e * z.out, heads = z.n * z.e * (z.q + z.kv + z.v);
  moments.row_product(result, weight_gradient(z, z.m.hidden_size * z.out));
  moments.leave_output(true);
  moments.keep(again.core + again.heads);
  const layout::ContextLayer context = across(run, layer);
  const std::int64_t beside = again.core > 0 ? heads_beside(z, context) : 0;
  moments.see(core_working(run, z, layer) + beside);
  if (z.m.latent.enabled) return;
  moments.drop(core_activations(run, z, layer) + result);  // the gradients of heads in place of themselves
  // Gradients of exchanged heads in another order, as one tensor, and as they arrive.
  if (context.heads > 1) moments.see(3 * z.n * z.e * shared_channels(z, context) + beside);
  moments.see(heads);
  moments.column_product(heads, weight_gradient(z, attention_weight(z)));
  moments.norm(true);
}

/// What the end of a forward pass over an MLP or mixture adds to what is kept of it: its output, which is
/// whole before it is cut.
std::int64_t part_ending(const Sizes& z, std::int64_t layer) {
  if (!z.has_experts(layer)) return z.gathered + z.hidden;
  const bool gathers = z.m.moe.token_dispatcher_type == config::TokenDispatcher::kAllGather;
  const std::int64_t ranks = z.ep * z.etp, rows = z.rows * z.m.hidden_size * z.e;
  const std::int64_t routed = ranks == 1 ? 0
                              : gathers  ? ranks * z.hidden
                                         : std::max(2 * rows, z.hidden) - z.hidden;
  if (z.shared_ffn == 0) return routed + z.hidden;
  return z.hidden + std::max({routed, z.gathered + z.hidden, 2 * z.hidden});
}

/// On top of what is kept while a layer goes backward.
struct LayerWorking {
  std::int64_t most = 0;
  std::int64_t behind_experts = 0;  ///< when their gradients are complete
};

/// The gradient of the residual stream, and inside it what the MLP needs, then attention to an encoder and
/// attention, when those behind have let go of what they kept but for what waits.
LayerWorking layer_working(const Sequences& s, std::int64_t layer, bool waits) {
  const Sizes& z = s.of(layer);
  const Again again(s.run(layer), z, layer);
  Moments moments(z, waits);
  if (s.ends_encoder(layer)) {
    moments.see(z.hidden);
    moments.drop(z.hidden);
  }
  moments.keep(again.norm);
  moments.enter_part();
  if (again.mlp > 0) {
    moments.keep(again.mlp);
    moments.see(part_ending(z, layer));
  }
  std::int64_t behind_experts = 0;
  if (z.has_experts(layer)) {
    mixture_backward(moments, s.run(layer), z, again, waits);
    behind_experts = moments.now();
  } else {
    mlp_backward(moments, z, z.n * z.e * z.fc1, z.n * z.e * z.ffn);
    moments.leave_output(true);
  }
  moments.norm(!z.has_experts(layer) || z.shared_ffn > 0);
  if (s.crosses(layer)) {
    moments.see(cross_working(s, again));
    moments.keep(s.encoder()->hidden + (waits ? cross_waiting(s, layer) : 0) - cross_activations(s, layer));
  }
  moments.keep(again.norm);
  moments.enter_part();
  attention_backward(moments, s, layer, again);
  return {s.hidden() + moments.most(), s.hidden() + behind_experts};
}

/// The same of a layer, with the sum with the residual stream.
std::int64_t layer_ending(const Sequences& s, std::int64_t layer) {
  const Sizes& z = s.of(layer);
  return std::max(part_ending(z, layer), z.hidden + s.hidden());
}

/// The blocks of a stage as they go backward, the last one first; what is made again as a whole lies on top
/// of its inputs until it is through.
class Backward {
 public:
  Backward(const config::Run& run, bool waits, std::vector<UnitBytes> units)
      : run_(run),
        s_(run),
        plain_run_(without_recomputation(run)),
        plain_(plain_run_ ? plain_sequences_.emplace(*plain_run_) : s_),
        z_(s_.tokens()),
        waits_(waits),
        units_(std::move(units)) {}

  std::int64_t most(const layout::StageBlocks& stage) {
    end(stage);
    layers(stage);
    if (stage.embedding) {
      const UnitBytes unit = take_unit();
      see(s_.hidden() + bytes_in(unit));
      land(unit);
    }
    if (stage.empty()) see(stage.states_in * s_.hidden());
    return std::max(most_, s_.hidden());
  }

 private:
  /// The run whose layers keep everything, where it is another one.
  static std::optional<config::Run> without_recomputation(const config::Run& run) {
    if (!run.recompute.granularity) return std::nullopt;
    config::Run plain = run;
    plain.recompute = {};
    return plain;
  }

  void end(const layout::StageBlocks& stage) {
    if (!stage.final_norm && !stage.head) return;
    const UnitBytes unit = take_unit();
    if (stage.head) head(stage, unit);
    if (stage.final_norm) final_norm(stage, unit);
    land(unit);
  }

  /// The model's own logits, then those of the further tokens. Gradients of all states lie there in the end;
  /// those of states that came from another stage are put together. Where products wait for these, they wait
  /// as they came, or gathered.
  void head(const layout::StageBlocks& stage, const UnitBytes& unit) {
    const bool apart = ends_apart(z_.m, stage), as_they_came = apart && !z_.by_sequence;
    const std::int64_t waiting = head_waiting(z_) - (as_they_came ? z_.whole() : 0);
    for (std::int64_t i = 0; i <= z_.m.mtp_num_layers; ++i) {
      see(i * z_.hidden + head_working(z_, waits_) + bytes_in(unit));
      leave(i == 0 ? logit_activations(s_) + transform_activations(z_) : further_logit_activations(s_),
            waiting);
    }
    if (!apart) return;
    const std::int64_t states = stage.states_in * z_.hidden;
    see(2 * states + bytes_in(unit));
    leave(states, as_they_came ? states : 0);
  }

  /// The last further token first. Gradients of the states before it lie beside; what came from another stage
  /// lies together and stays whole.
  void final_norm(const layout::StageBlocks& stage, const UnitBytes& unit) {
    const bool apart = ends_apart(z_.m, stage), again = layout::makes_predictions_again(run_.recompute);
    const std::int64_t depths = z_.m.mtp_num_layers;
    const std::int64_t layer = depths > 0 ? layer_activations(s_, z_.m.num_layers) : 0;
    for (std::int64_t i = depths; i > 0; --i) {
      if (again) now_ += layer;
      pass(again ? plain_ : s_, z_.m.num_layers, unit, (apart ? depths + 1 : i) * z_.hidden);
      leave(prediction_activations(s_) - (again ? 0 : layer), 3 * z_.hidden);
    }
    leave(final_norm_activations(z_) - (apart ? z_.hidden : 0), 0);
  }

  void layers(const layout::StageBlocks& stage) {
    std::int64_t layer = stage.first_layer + stage.num_layers;
    const auto stretches = layout::stretches_made_again(run_.recompute, stage.num_layers);
    std::int64_t kept = stage.num_layers;
    for (const std::int64_t length : stretches) kept -= length;
    for (; kept > 0; --kept) {
      const UnitBytes unit = take_unit();
      pass(s_, --layer, unit);
      land(unit);
    }
    for (auto length = stretches.rbegin(); length != stretches.rend(); ++length) {
      now_ -= s_.hidden();
      for (std::int64_t i = 1; i <= *length; ++i) now_ += layer_activations(plain_, layer - i);
      const UnitBytes unit = take_unit();
      see(s_.hidden() + layer_ending(plain_, layer - 1) + bytes_in(unit));
      for (std::int64_t i = 0; i < *length; ++i) pass(plain_, --layer, unit);
      land(unit);
    }
  }

  void pass(const Sequences& s, std::int64_t layer, const UnitBytes& unit, std::int64_t beside = 0) {
    const LayerWorking working = layer_working(s, layer, waits_);
    see(beside + bytes_in(unit) + working.most);
    if (!waits_ && unit.landing_experts > 0) see(beside + unit.landing_experts + working.behind_experts);
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
    now_ -= unit.stays;
    see(s_.hidden() + (waits_ ? unit.landing_input : unit.landing));
    if (!waits_) now_ += unit.summed;
  }

  const config::Run& run_;
  Sequences s_;
  std::optional<config::Run> plain_run_;
  std::optional<Sequences> plain_sequences_;
  const Sequences& plain_;  ///< of layers that keep everything
  const Sizes& z_;          ///< of the head
  bool waits_;
  std::vector<UnitBytes> units_;  ///< of the blocks that are still to come
  std::int64_t now_ = 0;          ///< beyond what is kept when the stage begins
  std::int64_t most_ = 0;
};

}  // namespace

std::int64_t stage_working(const config::Run& run, const layout::StageBlocks& stage, bool waits,
                           const std::vector<UnitBytes>& units) {
  return Backward(run, waits, units).most(stage);
}

}  // namespace colonnade::cost
