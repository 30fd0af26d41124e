// See activations.h. Letters: n tokens, r tokens between the parallel stretches, e element size.
#include "colonnade/plan/activations.h"

#include <algorithm>

#include "colonnade/plan/flops.h"
#include "colonnade/plan/params/gpt.h"
#include "colonnade/plan/recompute.h"

namespace colonnade::plan {
namespace {

constexpr std::int64_t kFp32 = 4;
constexpr std::int64_t kInt64 = 8;

/// Sizes of one micro-batch on one rank.
struct Sizes {
  explicit Sizes(const config::Run& run)
      : m(run.model),
        tp(run.parallel.tensor_model_parallel_size),
        by_sequence(run.parallel.sequence_parallel && tp > 1),
        b(run.training.micro_batch_size),
        s(run.training.seq_length / run.parallel.context_parallel_size),
        n(b * s),
        r(by_sequence ? n / tp : n),
        e(element_size(m)),
        heads(m.num_attention_heads / tp),
        groups(std::max<std::int64_t>(1, m.num_query_groups / tp)),
        q(heads * m.kv_channels),
        kv(groups * m.kv_channels),
        ffn(m.ffn_hidden_size / tp),
        fc1(m.gated() ? 2 * ffn : ffn),
        vocabulary(padded_vocab_size(m, static_cast<int>(tp)) / tp),
        hidden(r * m.hidden_size * e),
        gathered(by_sequence ? n * m.hidden_size * e : 0),
        ep(run.parallel.expert_model_parallel_size),
        etp(run.parallel.expert_tensor()),
        k(m.moe.router_topk),
        rows(r * k * etp),
        expert_ffn(m.moe.ffn_hidden_size / etp),
        shared_ffn(m.moe.shared_expert_intermediate_size / tp),
        up(m.gated() ? 2 : 1) {}

  /// Bytes of [n, h].
  [[nodiscard]] std::int64_t whole() const { return n * m.hidden_size * e; }

  const config::Model& m;
  std::int64_t tp;
  bool by_sequence;
  std::int64_t b, s, n, r, e;
  std::int64_t heads, groups, q, kv;  ///< of this rank
  std::int64_t ffn, fc1, vocabulary;  ///< columns of this rank
  std::int64_t hidden;                ///< bytes of [r, h]
  std::int64_t gathered;              ///< bytes of a whole sequence, where it is cut
  std::int64_t ep, etp, k;
  std::int64_t rows;                    ///< of this rank's experts, when all get equally many
  std::int64_t expert_ffn, shared_ffn;  ///< columns of this rank
  std::int64_t up;                      ///< columns of fc1 per column of the activation
};

/// Bytes kept of a norm over `rows`: its statistics.
std::int64_t norm_statistics(const config::Model& m, std::int64_t rows) {
  return rows * kFp32 * (m.normalization == config::Normalization::kLayerNorm ? 2 : 1);
}

/// Scores of all heads, as attention dropout keeps them.
std::int64_t scores(const Sizes& z) { return z.n * z.s * z.heads * z.e; }

/// How often the attention output is kept: as the kernel wrote it, and in the order of the projection.
std::int64_t output_copies(const config::Run& run, const Sizes& z) {
  if (z.m.attention_dropout > 0) return 1;
  return (run.training.device == "cuda" ? z.b : z.b * z.heads) > 1 ? 2 : 1;
}

std::int64_t mask_bytes(const config::Run& run, const Sizes& z) {
  const bool windowed = z.m.window_size > 0 && z.m.window_size < z.s - 1;
  if (run.data.reset_attention_mask) return z.b * z.s * z.s * z.e;
  return windowed ? z.s * z.s * z.e : 0;
}

/// Of scores, softmax and weighted sum, besides queries, keys, values and the projection's input.
std::int64_t core_activations(const config::Run& run, const Sizes& z) {
  const std::int64_t copies = (output_copies(run, z) - 1) * z.n * z.e * z.q;
  if (z.m.attention_dropout > 0) return copies + 2 * scores(z);
  return copies + z.n * kFp32 * z.heads + mask_bytes(run, z);
}

std::int64_t attention_activations(const config::Run& run, const Sizes& z) {
  const std::int64_t bytes = z.n * z.e * 2 * (z.q + z.kv) + core_activations(run, z);
  if (!z.m.qk_layernorm) return bytes;
  return bytes + z.n * z.e * (z.q + z.kv) + norm_statistics(z.m, z.n * (z.heads + z.groups));
}

std::int64_t mlp_activations(const Sizes& z) { return z.n * z.e * (z.fc1 + z.ffn); }

/// Numbers that say which row is whose token's and where it lies, and the weights.
std::int64_t routing_activations(const Sizes& z) {
  const config::Moe& moe = z.m.moe;
  const std::int64_t ranks = z.ep * z.etp, pairs = z.r * z.k;
  const std::int64_t router = z.r * moe.num_experts * kFp32 + pairs * kInt64;
  const std::int64_t z_loss = moe.z_loss_coeff > 0 ? z.r * kFp32 * (moe.num_experts + 2) : 0;
  if (ranks > 1 && moe.token_dispatcher_type == config::TokenDispatcher::kAllGather)
    return router + z_loss + 2 * z.rows * kInt64 + ranks * pairs * (kInt64 + kFp32) +
           moe.num_experts / z.ep * kInt64;
  const std::int64_t exchange = ranks > 1 ? 2 * z.rows * kInt64 : 0;
  return router + z_loss + exchange + z.rows * (3 * kInt64 + kFp32) + moe.num_experts * z.etp * kInt64;
}

/// The gate in fp32 and in the type of layers, and what it weighs.
std::int64_t shared_gate_activations(const Sizes& z) {
  return z.m.moe.shared_expert_gate ? z.hidden + z.r * (kFp32 + (z.e == kFp32 ? 0 : z.e)) : 0;
}

/// Rows come in, and their sums out, beside what an MLP keeps.
std::int64_t expert_activations(const Sizes& z) {
  return routing_activations(z) + z.rows * z.e * (2 * z.m.hidden_size + (z.up + 1) * z.expert_ffn) +
         z.n * z.e * (z.up + 1) * z.shared_ffn + shared_gate_activations(z);
}

/// What selective recomputation makes again of the parts of a layer.
struct Again {
  Again(const config::Run& run, const Sizes& z, bool experts) {
    const auto of = [&](const char* module, std::int64_t bytes) {
      return run.recompute.selects(module) ? bytes : 0;
    };
    norm = of("layernorm", z.hidden);
    core = of("core_attn", core_activations(run, z));
    if (!experts) {
      mlp = of("mlp", mlp_activations(z));
      return;
    }
    activation = of("moe_act", z.rows * z.e * z.expert_ffn);
    shared = of("shared_experts", z.n * z.e * (z.up + 1) * z.shared_ffn);
    mlp = of("moe", expert_activations(z));
  }
  std::int64_t norm = 0;                    ///< of each of the two
  std::int64_t core = 0;                    ///< of attention
  std::int64_t mlp = 0;                     ///< of the whole MLP or mixture
  std::int64_t activation = 0, shared = 0;  ///< of experts
};

/// Kept of a layer's MLP or mixture, between its norm and the residual sum.
std::int64_t mlp_part(const Sizes& z, bool experts, const Again& again) {
  return (experts ? expert_activations(z) : mlp_activations(z)) - again.mlp - again.activation - again.shared;
}

std::int64_t layer_activations(const config::Run& run, const Sizes& z, bool experts) {
  const Again again(run, z, experts);
  return 4 * z.hidden + 2 * norm_statistics(z.m, z.r) + attention_activations(run, z) +
         mlp_part(z, experts, again) - again.core - 2 * again.norm;
}

std::int64_t head_activations(const Sizes& z) {
  const std::int64_t statistics =
      z.n * kFp32 * (z.tp > 1 ? 3 : 2);                    // of the logits; combined ones are longer
  const std::int64_t labels = z.b > 1 ? z.n * kInt64 : 0;  // in the order (s, b)
  return 2 * z.hidden + norm_statistics(z.m, z.r) + z.n * z.vocabulary * z.e + statistics + labels;
}

/// Positions of one sequence lie where they were made; those of several, or of a cut one, are copied.
std::int64_t embedding_activations(const Sizes& z) {
  if (z.m.position_embedding != config::PositionEmbedding::kLearnedAbsolute) return 0;
  return (z.b == 1 ? z.n : z.r) * kInt64;
}

/// Of a weight with `elements`, before it is added in fp32.
std::int64_t weight_gradient(const Sizes& z, std::int64_t elements) {
  return z.e == kFp32 ? 0 : elements * z.e;
}

std::int64_t head_waiting(const Sizes& z) { return z.whole() + z.n * z.vocabulary * z.e; }

std::int64_t head_working(const Sizes& z) {
  const std::int64_t input_gradient = z.n * z.m.hidden_size * z.e;
  return input_gradient + (z.by_sequence ? z.gathered + z.hidden : 0) +
         weight_gradient(z, z.vocabulary * z.m.hidden_size);
}

/// Bytes of the products of a layer's attention, and of its MLP, that wait for weight gradients. Router and
/// gate read the same input, where they need not convert it, and shared experts too, where they do not gather
/// it.
std::int64_t attention_waiting(const Sizes& z) { return 2 * z.whole() + 2 * z.n * z.e * (z.q + z.kv); }

std::int64_t mlp_waiting(const Sizes& z, bool experts) {
  if (!experts) return 2 * z.whole() + z.n * z.e * (z.fc1 + z.ffn);
  const bool shared = z.shared_ffn > 0;
  const bool one_input = shared && !z.by_sequence && z.e == kFp32;
  const std::int64_t router = z.r * kFp32 * (z.m.moe.num_experts + (one_input ? 0 : z.m.hidden_size));
  const std::int64_t gate =
      z.m.moe.shared_expert_gate ? z.r * kFp32 * (1 + (z.e == kFp32 ? 0 : z.m.hidden_size)) : 0;
  return router + gate + (shared ? 2 * z.whole() + z.n * z.e * (z.up + 1) * z.shared_ffn : 0);
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

/// On top of what is kept while a layer goes backward: the gradient of the residual stream, and inside it
/// what the MLP needs, then attention, when the MLP has let go of what it kept but for what waits.
std::int64_t layer_working(const Sizes& z, bool experts, const Again& again, bool waits) {
  const std::int64_t mlp = experts ? expert_working(z, again) : mlp_working(z, again);
  const std::int64_t freed = mlp_part(z, experts, again) + 2 * z.hidden - again.norm;
  const std::int64_t gradients =
      z.n * z.e * 2 * (z.q + z.kv) + (z.m.attention_dropout > 0 ? 2 * scores(z) : 0);
  const std::int64_t attention =
      gradients + again.core + again.norm - freed + (waits ? mlp_waiting(z, experts) : 0);
  return z.hidden + std::max(mlp, attention);
}

/// The layers of a stage as they go backward, the last one first; what is made again as a whole lies on top
/// of its inputs until it is through.
class Backward {
 public:
  Backward(const config::Run& run, const Sizes& z, bool waits, std::vector<std::int64_t> units)
      : run_(run), plain_(run), z_(z), waits_(waits), units_(std::move(units)) {
    plain_.recompute = {};
  }

  std::int64_t most(const StageBlocks& stage) {
    if (stage.head) {
      const std::int64_t unit = take_unit();
      most_ = head_working(z_) + unit;
      now_ = (waits_ ? head_waiting(z_) : 0) - head_activations(z_);
    }
    layers(stage);
    if (stage.embedding) most_ = std::max(most_, now_ + z_.hidden + take_unit());
    return std::max(most_, z_.hidden);
  }

 private:
  void layers(const StageBlocks& stage) {
    const std::vector<bool> kinds = layers_with_experts(z_.m);
    auto layer = static_cast<std::size_t>(stage.first_layer + stage.num_layers);
    const auto stretches = stretches_made_again(run_.recompute, stage.num_layers);
    std::int64_t kept = stage.num_layers;
    for (const std::int64_t length : stretches) kept -= length;
    for (; kept > 0; --kept) pass(run_, kinds[--layer], take_unit());
    for (auto length = stretches.rbegin(); length != stretches.rend(); ++length) {
      std::int64_t again = -z_.hidden;
      for (std::int64_t i = 1; i <= *length; ++i)
        again += layer_activations(plain_, z_, kinds[layer - static_cast<std::size_t>(i)]);
      now_ += again;
      const std::int64_t unit = take_unit();
      for (std::int64_t i = 0; i < *length; ++i) pass(plain_, kinds[--layer], unit);
    }
  }

  std::int64_t take_unit() {
    if (units_.empty()) return 0;
    const std::int64_t bytes = units_.back();
    units_.pop_back();
    return bytes;
  }

  void pass(const config::Run& run, bool experts, std::int64_t unit) {
    most_ = std::max(most_, now_ + unit + layer_working(z_, experts, Again(run, z_, experts), waits_));
    now_ -= layer_activations(run, z_, experts);
    if (waits_) now_ += attention_waiting(z_) + mlp_waiting(z_, experts);
  }

  const config::Run& run_;
  config::Run plain_;
  const Sizes& z_;
  bool waits_;
  std::vector<std::int64_t> units_;  ///< of the blocks that are still to come
  std::int64_t now_ = 0;             ///< beyond what is kept when the stage begins
  std::int64_t most_ = 0;
};

/// Of the rows and what is next made of them, the gathered tokens beside the first and the last.
std::int64_t expert_evaluation(const Sizes& z) {
  const std::int64_t rows = z.rows * z.e * z.m.hidden_size, ffn = z.rows * z.e * z.expert_ffn;
  const std::int64_t ranks = z.ep * z.etp;
  const bool gathers = ranks > 1 && z.m.moe.token_dispatcher_type == config::TokenDispatcher::kAllGather;
  const std::int64_t border = gathers ? rows + ranks * z.hidden : ranks > 1 ? 2 * rows : rows + z.hidden;
  return routing_activations(z) + std::max({border, rows + z.up * ffn, (z.up + 1) * ffn});
}

}  // namespace

std::int64_t element_size(const config::Model& model) {
  return model.params_dtype == config::ParamsDtype::kFloat32 ? 4 : 2;
}

std::int64_t stage_activations(const config::Run& run, const StageBlocks& stage) {
  const Sizes z(run);
  const LayerCounts all = layers_of(z.m, stage), again = layers_made_again(run, stage);
  const auto stretches = stretches_made_again(run.recompute, stage.num_layers);
  std::int64_t kept = (all.dense - again.dense) * layer_activations(run, z, /*experts=*/false) +
                      (all.experts - again.experts) * layer_activations(run, z, /*experts=*/true) +
                      std::ssize(stretches) * z.hidden;
  if (stage.embedding) kept += embedding_activations(z);
  return kept + (stage.head ? head_activations(z) : z.hidden);
}

std::int64_t stage_waiting(const config::Run& run, const StageBlocks& stage) {
  const Sizes z(run);
  const LayerCounts layers = layers_of(z.m, stage);
  return stage.num_layers * attention_waiting(z) + layers.dense * mlp_waiting(z, /*experts=*/false) +
         layers.experts * mlp_waiting(z, /*experts=*/true) + (stage.head ? head_waiting(z) : 0);
}

std::int64_t batch_bytes(const config::Run& run) {
  const Sizes z(run);
  return z.n * (2 * kInt64 + kFp32) + (run.data.reset_position_ids ? z.n * kInt64 : 0) +
         (run.data.reset_attention_mask ? z.n * z.s : 0);
}

std::int64_t stage_working(const config::Run& run, const StageBlocks& stage, bool waits,
                           const std::vector<std::int64_t>& units) {
  const Sizes z(run);
  return Backward(run, z, waits, units).most(stage);
}

std::int64_t stage_weights_working(const config::Run& run, const StageBlocks& stage) {
  const Sizes z(run);
  std::int64_t columns = stage.head ? z.vocabulary : 0;
  if (stage.num_layers > 0) columns = std::max({columns, z.q + 2 * z.kv, z.fc1});
  return weight_gradient(z, columns * z.m.hidden_size);
}

// A layer holds its input, the normed input, the attention's output and the sum of both to its end, and
// inside that what its two parts make; the projection's sum over the tensor ranks is whole before it is cut.
std::int64_t stage_evaluation(const config::Run& run, const StageBlocks& stage) {
  const Sizes z(run);
  const std::int64_t whole = z.whole();
  const LayerCounts layers = layers_of(z.m, stage);
  const std::int64_t parts = std::max(layers.dense > 0 ? whole + mlp_activations(z) : 0,
                                      layers.experts > 0 ? expert_evaluation(z) : 0);
  const std::int64_t mlp = 4 * z.hidden + parts;
  const std::int64_t attention = 2 * z.hidden + whole + z.n * z.e * (3 * z.q + 2 * z.kv);
  const std::int64_t layer = stage.num_layers > 0 ? std::max(mlp, attention) : 0;
  if (stage.head) return std::max(layer, 2 * z.hidden + z.gathered + z.n * z.e * z.vocabulary);
  return std::max(layer, z.hidden + whole);
}

std::int64_t message_bytes(const config::Run& run) { return Sizes(run).hidden; }

}  // namespace colonnade::plan
