// See activations.h. Letters: n tokens, r tokens between the parallel stretches, e element size.
#include "colonnade/plan/activations.h"

#include <algorithm>

#include "colonnade/plan/flops.h"
#include "colonnade/plan/params/gpt.h"

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

std::int64_t attention_activations(const config::Run& run, const Sizes& z) {
  std::int64_t bytes = z.n * z.e * (z.q + 2 * z.kv + output_copies(run, z) * z.q);
  if (z.m.qk_layernorm) bytes += z.n * z.e * (z.q + z.kv) + norm_statistics(z.m, z.n * (z.heads + z.groups));
  if (z.m.attention_dropout > 0) return bytes + 2 * scores(z);
  return bytes + z.n * kFp32 * z.heads + mask_bytes(run, z);
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

std::int64_t layer_activations(const config::Run& run, const Sizes& z, bool experts) {
  return 4 * z.hidden + 2 * norm_statistics(z.m, z.r) + attention_activations(run, z) +
         (experts ? expert_activations(z) : mlp_activations(z));
}

/// Layers of a stage without and with experts.
struct Layers {
  Layers(const config::Model& m, const StageBlocks& stage) {
    const std::vector<bool> experts = layers_with_experts(m);
    for (std::int64_t i = 0; i < stage.num_layers; ++i)
      ++(experts[static_cast<std::size_t>(stage.first_layer + i)] ? moe : dense);
  }
  std::int64_t dense = 0, moe = 0;
};

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

std::int64_t head_working(const Sizes& z) {
  const std::int64_t input_gradient = z.n * z.m.hidden_size * z.e;
  return input_gradient + (z.by_sequence ? z.gathered + z.hidden : 0) +
         weight_gradient(z, z.vocabulary * z.m.hidden_size);
}

/// Of experts: the gradients of the gathered sums and of the rows; then those of the activation, when the
/// rows' sums are gone, with the weights' own.
std::int64_t expert_working(const Sizes& z) {
  const bool gathers = z.m.moe.token_dispatcher_type == config::TokenDispatcher::kAllGather;
  const std::int64_t ranks = z.ep * z.etp, row = z.m.hidden_size * z.e;
  const std::int64_t all = ranks == 1 ? 0 : gathers ? ranks * z.hidden : z.rows * row;
  const std::int64_t weights =
      weight_gradient(z, z.m.moe.num_experts / z.ep * z.m.hidden_size * z.expert_ffn);
  return z.hidden + std::max(all + z.rows * row, z.rows * z.e * z.expert_ffn + weights);
}

/// The gradient of the residual stream, and inside it that of fc2's input (with the gathered gradient and
/// the weight's), then of the activation's input too, when fc2 has let go of its own.
std::int64_t layer_working(const Sizes& z) {
  const std::int64_t fc2 = z.gathered + z.n * z.e * z.ffn + weight_gradient(z, z.m.hidden_size * z.ffn);
  const std::int64_t fc1 = z.n * z.e * z.fc1;
  const std::int64_t kept_no_more = z.n * z.e * (z.fc1 + z.ffn) + 2 * z.hidden;
  const std::int64_t attention = z.m.attention_dropout > 0 ? 2 * scores(z) - kept_no_more : 0;
  return z.hidden + std::max({fc2, fc1, attention});
}

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
  const Layers layers(z.m, stage);
  std::int64_t kept = layers.dense * layer_activations(run, z, /*experts=*/false) +
                      layers.moe * layer_activations(run, z, /*experts=*/true);
  if (stage.embedding) kept += embedding_activations(z);
  return kept + (stage.head ? head_activations(z) : z.hidden);
}

std::int64_t stage_waiting(const config::Run& run, const StageBlocks& stage) {
  const Sizes z(run);
  const Layers layers(run.model, stage);
  const std::int64_t whole = z.n * z.m.hidden_size * z.e;
  const std::int64_t attention = 2 * whole + 2 * z.n * z.e * (z.q + z.kv);
  const std::int64_t mlp = 2 * whole + z.n * z.e * (z.fc1 + z.ffn);
  // Router and gate read the same input, where they need not convert it, and shared experts too, where they
  // do not gather it.
  const bool shared = z.shared_ffn > 0;
  const bool one_input = shared && !z.by_sequence && z.e == kFp32;
  const std::int64_t router = z.r * kFp32 * (z.m.moe.num_experts + (one_input ? 0 : z.m.hidden_size));
  const std::int64_t gate =
      z.m.moe.shared_expert_gate ? z.r * kFp32 * (1 + (z.e == kFp32 ? 0 : z.m.hidden_size)) : 0;
  const std::int64_t experts =
      router + gate + (shared ? 2 * whole + z.n * z.e * (z.up + 1) * z.shared_ffn : 0);
  return layers.dense * (attention + mlp) + layers.moe * (attention + experts) +
         (stage.head ? whole + z.n * z.vocabulary * z.e : 0);
}

std::int64_t batch_bytes(const config::Run& run) {
  const Sizes z(run);
  return z.n * (2 * kInt64 + kFp32) + (run.data.reset_position_ids ? z.n * kInt64 : 0) +
         (run.data.reset_attention_mask ? z.n * z.s : 0);
}

std::int64_t stage_working(const config::Run& run, const StageBlocks& stage) {
  const Sizes z(run);
  const Layers layers(z.m, stage);
  std::int64_t layer = z.hidden;
  if (layers.dense > 0) layer = std::max(layer, layer_working(z));
  if (layers.moe > 0) layer = std::max(layer, expert_working(z));
  if (!stage.head) return layer;
  return std::max(head_working(z), layer - head_activations(z));
}

// A layer holds its input, the normed input, the attention's output and the sum of both to its end, and
// inside that what its two parts make; the projection's sum over the tensor ranks is whole before it is cut.
std::int64_t stage_evaluation(const config::Run& run, const StageBlocks& stage) {
  const Sizes z(run);
  const std::int64_t whole = z.n * z.m.hidden_size * z.e;
  const Layers layers(z.m, stage);
  const std::int64_t parts =
      std::max(layers.dense > 0 ? whole + mlp_activations(z) : 0, layers.moe > 0 ? expert_evaluation(z) : 0);
  const std::int64_t mlp = 4 * z.hidden + parts;
  const std::int64_t attention = 2 * z.hidden + whole + z.n * z.e * (3 * z.q + 2 * z.kv);
  const std::int64_t layer = stage.num_layers > 0 ? std::max(mlp, attention) : 0;
  if (stage.head) return std::max(layer, 2 * z.hidden + z.gathered + z.n * z.e * z.vocabulary);
  return std::max(layer, z.hidden + whole);
}

std::int64_t message_bytes(const config::Run& run) { return Sizes(run).hidden; }

}  // namespace colonnade::plan
