// See activations.h. Letters: n tokens, r tokens between the parallel stretches, e element size.
#include "colonnade/plan/activations.h"

#include <algorithm>

#include "colonnade/plan/context_parallel.h"
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
        cp(run.parallel.context_parallel_size),
        length(run.training.seq_length),
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
  std::int64_t b;
  std::int64_t cp, length;  ///< ranks that share a sequence, tokens of the whole
  std::int64_t s, n, r, e;
  std::int64_t heads, groups, q, kv, v, out;  ///< of this rank: channels of queries, keys, values and result
  std::int64_t ffn, fc1, vocabulary;          ///< columns of this rank
  std::int64_t hidden;                        ///< bytes of [r, h]
  std::int64_t gathered;                      ///< bytes of a whole sequence, where it is cut
  std::int64_t ep, etp, k;
  std::int64_t rows;                    ///< of this rank's experts, when all get equally many
  std::int64_t expert_ffn, shared_ffn;  ///< columns of this rank
  std::int64_t up;                      ///< columns of fc1 per column of the activation
};

/// Bytes kept of a norm over `rows`: its statistics.
std::int64_t norm_statistics(const config::Model& m, std::int64_t rows) {
  return rows * kFp32 * (m.normalization == config::Normalization::kLayerNorm ? 2 : 1);
}

/// Scores of all heads.
std::int64_t scores(const Sizes& z) { return z.n * z.length * z.heads * z.e; }

ContextLayer across(const config::Run& run, std::int64_t layer) {
  return run.parallel.context_parallel_size > 1 ? context_layer(run.parallel, layer) : ContextLayer{};
}

/// Whether a batch says the positions of its tokens.
bool has_positions(const config::Run& run) {
  return run.data.reset_position_ids || run.parallel.context_parallel_size > 1;
}

bool has_sinks(const config::Model& m) { return m.softmax_type != config::SoftmaxType::kVanilla; }

/// Whether attention takes the path that keeps them.
bool keeps_scores(const config::Run& run) {
  const config::Model& m = run.model;
  return m.attention_dropout > 0 || m.attn_logit_softcapping > 0 ||
         (has_sinks(m) && run.training.device == "cuda");
}

/// Shares of the scores, those that are left of them, and scores under their cap; a sink is one more of each
/// row, and one more value of each sequence.
std::int64_t kept_scores(const Sizes& z) {
  const std::int64_t cap = z.m.attn_logit_softcapping > 0 ? 1 : 0;
  const std::int64_t shares = z.m.attention_dropout > 0 ? 2 : 1;
  const std::int64_t sinks = has_sinks(z.m) ? z.e * (z.n * z.heads + z.b * z.v) : 0;
  return (cap + shares) * scores(z) + sinks;
}

/// The kernel of the CPU fills up heads of values that are not as wide as those of queries.
bool fills_heads(const config::Run& run, const Sizes& z) {
  return run.training.device != "cuda" && !keeps_scores(run) && z.m.value_channels() != z.m.kv_channels;
}

/// How often the attention output is kept: as the kernel wrote it, and in the order of the projection.
std::int64_t output_copies(const config::Run& run, const Sizes& z, const ContextLayer& context) {
  if (keeps_scores(run) || (fills_heads(run, z) && z.out < z.q)) return 1;
  if (context.heads > 1) return 2;
  return (run.training.device == "cuda" ? z.b : z.b * z.heads) > 1 ? 2 : 1;
}

/// Of blocks of keys the mask is made again.
std::int64_t mask_bytes(const config::Run& run, const Sizes& z, std::int64_t layer) {
  if (across(run, layer).ring > 1) return 0;
  const std::int64_t window = window_of(z.m, layer);
  const bool windowed = window > 0 && window < z.length - 1;
  if (run.data.reset_attention_mask) return z.b * z.length * z.length * z.e;
  return windowed ? z.length * z.length * z.e : 0;
}

/// Columns of keys, when heads are exchanged for positions: for each token of this rank as it was.
std::int64_t exchanged_keys(const Sizes& z, const ContextLayer& context) {
  return context.heads * std::max<std::int64_t>(1, z.groups / context.heads) * z.m.kv_channels;
}

/// A narrow vector between its projections: as it is, and normed.
std::int64_t narrow_activations(const Sizes& z, std::int64_t width) {
  if (width == 0) return 0;
  return z.r * z.e * width * (z.m.qk_layernorm ? 2 : 1) + (z.m.qk_layernorm ? norm_statistics(z.m, z.r) : 0);
}

std::int64_t attention_activations(const config::Run& run, const Sizes& z, std::int64_t layer) {
  const ContextLayer context = across(run, layer);
  const std::int64_t keys = exchanged_keys(z, context);
  const std::int64_t values = z.m.latent.enabled ? z.v : keys;
  std::int64_t bytes = z.n * z.e * (z.q + keys + values + output_copies(run, z, context) * z.out);
  if (z.m.latent.enabled)
    bytes += narrow_activations(z, z.m.latent.q_lora_rank) + narrow_activations(z, z.m.latent.kv_lora_rank);
  else if (z.m.qk_layernorm)
    bytes += z.n * z.e * (z.q + z.kv) + norm_statistics(z.m, z.n * (z.heads + z.groups));
  if (z.m.rotary() && has_positions(run) && z.b > 1) bytes += z.n * kInt64;  // in the order (s, b)
  if (keeps_scores(run)) return bytes + kept_scores(z);
  return bytes + z.n * kFp32 * z.heads + mask_bytes(run, z, layer);
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

/// Of the layer with a number; those behind the last one are of its kind.
std::int64_t layer_activations(const config::Run& run, const Sizes& z, std::int64_t layer, bool experts) {
  const std::int64_t norms = z.m.sandwich_norm ? 4 : 2;
  return (2 + norms) * z.hidden + norms * norm_statistics(z.m, z.r) + attention_activations(run, z, layer) +
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

/// Final norm, logits and their statistics; combined ones are longer.
std::int64_t logit_activations(const Sizes& z) {
  return 2 * z.hidden + norm_statistics(z.m, z.r) + z.n * z.vocabulary * z.e +
         z.n * kFp32 * (z.tp > 1 ? 3 : 2);
}

/// Of one further token: its tokens, labels and mask, moved by their distance; the embedded tokens, what is
/// projected, and norms of both; a layer and what the head keeps.
std::int64_t prediction_activations(const config::Run& run, const Sizes& z, bool experts) {
  return z.n * (2 * kInt64 + kFp32) + 3 * z.hidden + 2 * norm_statistics(z.m, z.r) +
         layer_activations(run, z, z.m.num_layers, experts) + logit_activations(z);
}

std::int64_t head_activations(const config::Run& run, const Sizes& z) {
  const std::int64_t labels = z.b > 1 ? z.n * kInt64 : 0;  // in the order (s, b)
  std::int64_t predictions = 0;
  if (z.m.mtp_num_layers > 0)
    predictions = z.m.mtp_num_layers * prediction_activations(run, z, layers_with_experts(z.m).back());
  return logit_activations(z) + labels + predictions;
}

/// Positions of one sequence lie where they were made; those of several, or of a cut one, are copied. Those
/// of the batch are copied where the part of a tensor rank does not lie together.
std::int64_t embedding_activations(const config::Run& run, const Sizes& z) {
  if (z.m.position_embedding != config::PositionEmbedding::kLearnedAbsolute) return 0;
  if (has_positions(run)) return z.by_sequence && z.b > 1 ? z.r * kInt64 : 0;
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

/// What the backward pass over blocks of keys makes: gradients of the output and of the queries, keys and
/// values that come by with their gradients in fp32, or those of all ranks.
std::int64_t blocks_working(const config::Run& run, const Sizes& z, const StageBlocks& stage) {
  std::int64_t most = 0;
  for (std::int64_t i = stage.first_layer; i < stage.first_layer + stage.num_layers; ++i) {
    const ContextLayer context = across(run, i);
    if (context.ring == 1) continue;
    const std::int64_t keys = 2 * z.n * exchanged_keys(z, context);
    const std::int64_t others = context.gathers ? context.ring * keys * (z.e + 10) : 2 * keys * (z.e + kFp32);
    most = std::max(most, z.n * z.q * (2 * z.e + kFp32) + keys * (z.e + kFp32) + others);
  }
  return most;
}

/// The gradient of the residual stream, and inside it that of fc2's input (with the gathered gradient and
/// the weight's), then of the activation's input too, when fc2 has let go of its own.
std::int64_t mlp_working(const Sizes& z) {
  const std::int64_t fc2 = z.gathered + z.n * z.e * z.ffn + weight_gradient(z, z.m.hidden_size * z.ffn);
  return z.hidden + std::max(fc2, z.n * z.e * z.fc1);
}

/// Of multi-latent attention: gradients of queries, keys and values, and of the result; with heads that are
/// filled up, values, result and its gradient filled.
std::int64_t latent_working(const config::Run& run, const Sizes& z) {
  if (!z.m.latent.enabled) return 0;
  const std::int64_t wide = std::max(z.q, z.out);
  const std::int64_t grads = fills_heads(run, z) ? 6 * wide : 2 * z.q + z.out;
  return z.n * z.e * (grads + z.out);
}

/// Inside the gradient of the residual stream what attention needs, when what the layer's `mlp` kept is gone.
std::int64_t attention_working(const config::Run& run, const Sizes& z, const StageBlocks& stage,
                               std::int64_t mlp) {
  const std::int64_t scored = keeps_scores(run) ? 2 * scores(z) : 0;
  return z.hidden + std::max({scored, blocks_working(run, z, stage), latent_working(run, z)}) - mlp -
         2 * z.hidden;
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
  const std::vector<bool> experts = layers_with_experts(z.m);
  std::int64_t kept = 0;
  for (std::int64_t i = stage.first_layer; i < stage.first_layer + stage.num_layers; ++i)
    kept += layer_activations(run, z, i, experts[static_cast<std::size_t>(i)]);
  if (stage.embedding) kept += embedding_activations(run, z);
  return kept + (stage.head ? head_activations(run, z) : z.hidden);
}

namespace {

std::int64_t attention_waiting(const Sizes& z) {
  const std::int64_t whole = z.n * z.m.hidden_size * z.e;
  if (!z.m.latent.enabled) return 2 * whole + 2 * z.n * z.e * (z.q + z.kv);
  const config::LatentAttention& latent = z.m.latent;
  const std::int64_t queries = latent.q_lora_rank, vector = latent.kv_lora_rank;
  // Both down projections read the same; queries without one read all of it, where it is cut.
  const std::int64_t inputs = queries > 0 || !z.by_sequence ? z.hidden : z.hidden + whole;
  const std::int64_t down = z.r * z.e * (queries + vector + latent.qk_pos_emb_head_dim);
  const std::int64_t up =
      z.n * z.e * (queries + z.q + vector + z.heads * (latent.qk_head_dim + latent.v_head_dim));
  return inputs + down + up + z.n * z.e * z.out + whole;
}

}  // namespace

std::int64_t stage_waiting(const config::Run& run, const StageBlocks& stage) {
  const Sizes z(run);
  const Layers layers(run.model, stage);
  const std::int64_t whole = z.n * z.m.hidden_size * z.e;
  const std::int64_t attention = attention_waiting(z);
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
  const std::int64_t logits = whole + z.n * z.vocabulary * z.e;
  const std::int64_t prediction =
      3 * z.hidden + attention + (layers_with_experts(z.m).back() ? experts : mlp) + logits;
  return layers.dense * (attention + mlp) + layers.moe * (attention + experts) +
         (stage.head ? logits + z.m.mtp_num_layers * prediction : 0);
}

std::int64_t batch_bytes(const config::Run& run) {
  const Sizes z(run);
  return z.n * (2 * kInt64 + kFp32) + (has_positions(run) ? z.n * kInt64 : 0) +
         (run.data.reset_attention_mask ? z.b * z.length * z.length : 0);
}

std::int64_t stage_working(const config::Run& run, const StageBlocks& stage) {
  const Sizes z(run);
  const Layers layers(z.m, stage);
  std::int64_t layer = z.hidden;
  if (layers.dense > 0)
    layer = std::max({layer, mlp_working(z), attention_working(run, z, stage, mlp_activations(z))});
  if (layers.moe > 0)
    layer = std::max({layer, expert_working(z), attention_working(run, z, stage, expert_activations(z))});
  if (!stage.head) return layer;
  return std::max(head_working(z), layer - head_activations(run, z));
}

namespace {

/// Fused queries, keys and values beside those apart, or the result on its way through the projection.
std::int64_t attention_evaluation(const config::Run& run, const Sizes& z, std::int64_t whole) {
  if (!z.m.latent.enabled) return whole + z.n * z.e * (3 * z.q + 2 * z.kv);
  const config::LatentAttention& latent = z.m.latent;
  const std::int64_t narrow = z.r * z.e * (2 * latent.kv_lora_rank + 2 * latent.qk_pos_emb_head_dim) +
                              z.n * z.e * latent.kv_lora_rank;
  const std::int64_t fused = z.q + z.heads * (latent.qk_head_dim + latent.v_head_dim);
  const std::int64_t wide = std::max(z.q, z.out);
  const std::int64_t core = fills_heads(run, z) ? 2 * wide + z.out : z.out;
  return z.n * z.e * (z.q + z.kv + z.v) + std::max(narrow + z.n * z.e * fused, z.n * z.e * core);
}

}  // namespace

// A layer holds its input, the normed input, the attention's output and the sum of both to its end, and
// inside that what its two parts make; the projection's sum over the tensor ranks is whole before it is cut.
std::int64_t stage_evaluation(const config::Run& run, const StageBlocks& stage) {
  const Sizes z(run);
  const std::int64_t whole = z.n * z.m.hidden_size * z.e;
  const Layers layers(z.m, stage);
  const std::int64_t parts =
      std::max(layers.dense > 0 ? whole + mlp_activations(z) : 0, layers.moe > 0 ? expert_evaluation(z) : 0);
  const std::int64_t mlp = 4 * z.hidden + parts;
  const bool dense = z.m.attn_logit_softcapping > 0 || (has_sinks(z.m) && run.training.device == "cuda");
  const std::int64_t attention =
      2 * z.hidden + attention_evaluation(run, z, whole) + (dense ? 2 * scores(z) : 0);
  const std::int64_t layer = stage.num_layers > 0 ? std::max(mlp, attention) : 0;
  if (stage.head) return std::max(layer, 2 * z.hidden + z.gathered + z.n * z.e * z.vocabulary);
  return std::max(layer, z.hidden + whole);
}

std::int64_t message_bytes(const config::Run& run) { return Sizes(run).hidden; }

}  // namespace colonnade::plan
