// See activations.h. Letters: n tokens, r tokens between the parallel stretches, e element size.
#include "colonnade/plan/activations.h"

#include <algorithm>

#include "colonnade/plan/flops.h"

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
        gathered(by_sequence ? n * m.hidden_size * e : 0) {}

  const config::Model& m;
  std::int64_t tp;
  bool by_sequence;
  std::int64_t b, s, n, r, e;
  std::int64_t heads, groups, q, kv;  ///< of this rank
  std::int64_t ffn, fc1, vocabulary;  ///< columns of this rank
  std::int64_t hidden;                ///< bytes of [r, h]
  std::int64_t gathered;              ///< bytes of a whole sequence, where it is cut
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

std::int64_t layer_activations(const config::Run& run, const Sizes& z) {
  return 4 * z.hidden + 2 * norm_statistics(z.m, z.r) + attention_activations(run, z) +
         z.n * z.e * (z.fc1 + z.ffn);
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

std::int64_t head_working(const Sizes& z) {
  const std::int64_t input_gradient = z.n * z.m.hidden_size * z.e;
  return input_gradient + (z.by_sequence ? z.gathered + z.hidden : 0) +
         weight_gradient(z, z.vocabulary * z.m.hidden_size);
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

}  // namespace

std::int64_t element_size(const config::Model& model) {
  return model.params_dtype == config::ParamsDtype::kFloat32 ? 4 : 2;
}

std::int64_t stage_activations(const config::Run& run, const StageBlocks& stage) {
  const Sizes z(run);
  std::int64_t kept = stage.num_layers * layer_activations(run, z);
  if (stage.embedding) kept += embedding_activations(z);
  return kept + (stage.head ? head_activations(z) : z.hidden);
}

std::int64_t batch_bytes(const config::Run& run) {
  const Sizes z(run);
  return z.n * (2 * kInt64 + kFp32) + (run.data.reset_position_ids ? z.n * kInt64 : 0) +
         (run.data.reset_attention_mask ? z.n * z.s : 0);
}

std::int64_t stage_working(const config::Run& run, const StageBlocks& stage) {
  const Sizes z(run);
  const std::int64_t layer = stage.num_layers > 0 ? layer_working(z) : z.hidden;
  if (!stage.head) return layer;
  return std::max(head_working(z), layer - head_activations(z));
}

// A layer holds its input, the normed input, the attention's output and the sum of both to its end, and
// inside that what its two parts make; the projection's sum over the tensor ranks is whole before it is cut.
std::int64_t stage_evaluation(const config::Run& run, const StageBlocks& stage, int microbatches) {
  const Sizes z(run);
  const std::int64_t whole = z.n * z.m.hidden_size * z.e;
  const std::int64_t mlp = 4 * z.hidden + whole + z.n * z.e * (z.fc1 + z.ffn);
  const std::int64_t attention = 2 * z.hidden + whole + z.n * z.e * (3 * z.q + 2 * z.kv);
  const std::int64_t layer = stage.num_layers > 0 ? std::max(mlp, attention) : 0;
  if (stage.head) return std::max(layer, 2 * z.hidden + z.gathered + z.n * z.e * z.vocabulary);
  const bool sends = run.parallel.pipeline_model_parallel_size > 1;
  return std::max(layer, z.hidden + whole) + (sends ? (microbatches - 1) * z.hidden : 0);
}

}  // namespace colonnade::plan
