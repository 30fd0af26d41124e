// Lists the parameters of a GPT-class model.
#include "colonnade/plan/params/gpt.h"

#include <algorithm>
#include <cmath>

#include "colonnade/base/error.h"
#include "colonnade/config/layer_pattern.h"

namespace colonnade::plan {
namespace {

using config::Model;
using config::Parallel;

constexpr Init kZeros{.kind = InitKind::kZero, .std = 0};
constexpr Init kOnes{.kind = InitKind::kOne, .std = 0};

/// What the parts have in common.
class Builder {
 public:
  Builder(const Model& model, const Parallel& parallel)
      : m_(model),
        tp_(parallel.tensor_model_parallel_size),
        sequence_parallel_(parallel.sequence_parallel && tp_ > 1) {
    COL_CHECK(
        std::min({m_.num_layers, m_.hidden_size, m_.ffn_hidden_size, m_.num_attention_heads,
                  m_.num_query_groups, m_.kv_channels, m_.vocab_size, m_.make_vocab_size_divisible_by}) > 0,
        "model: every size must be known; got layers {} hidden {} ffn {} heads {} groups {} head size {} "
        "vocabulary {} vocabulary divisor {}; complete the settings with config::derive",
        m_.num_layers, m_.hidden_size, m_.ffn_hidden_size, m_.num_attention_heads, m_.num_query_groups,
        m_.kv_channels, m_.vocab_size, m_.make_vocab_size_divisible_by);
  }

  /// A norm of the residual stream.
  [[nodiscard]] NormParams norm(const std::string& name) const {
    return norm_of(name, m_.hidden_size, partial_by_sequence());
  }
  /// A norm of each head's queries or keys.
  [[nodiscard]] NormParams head_norm(const std::string& name) const {
    return norm_of(name, m_.kv_channels, tp_ > 1 ? AxisSet{Axis::kTp} : AxisSet{});
  }

  /// W [pieces, in], cut by rows.
  [[nodiscard]] LinearParams column(const std::string& name, const std::vector<Piece>& pieces,
                                    bool bias) const {
    std::int64_t rows = 0;
    for (const Piece& piece : pieces) rows += piece.size;
    LinearParams p{.weight = {.name = name + ".weight",
                              .shape = {rows, m_.hidden_size},
                              .cuts = {{.dim = 0, .pieces = pieces}},
                              .init = {.std = m_.init_method_std}},
                   .bias = std::nullopt};
    if (bias) {
      p.bias = ParamSpec{.name = name + ".bias",
                         .shape = {rows},
                         .cuts = {{.dim = 0, .pieces = pieces}},
                         .init = kZeros,
                         .weight_decay = false};
    }
    return p;
  }

  /// W [h, piece], cut by columns.
  [[nodiscard]] LinearParams row(const std::string& name, const Piece& piece) const {
    LinearParams p{.weight = {.name = name + ".weight",
                              .shape = {m_.hidden_size, piece.size},
                              .cuts = {{.dim = 1, .pieces = {piece}}},
                              .init = {.std = output_std()}},
                   .bias = std::nullopt};
    if (m_.add_bias_linear) {
      p.bias = ParamSpec{.name = name + ".bias",
                         .shape = {m_.hidden_size},
                         .partial = partial_by_sequence(),
                         .init = kZeros,
                         .weight_decay = false};
    }
    return p;
  }

  /// [vocabulary, h], cut by rows and filled up.
  [[nodiscard]] ParamSpec vocabulary(const std::string& name, double std) const {
    return {.name = name,
            .shape = {m_.vocab_size, m_.hidden_size},
            .cuts = {{.dim = 0,
                      .pieces = {{.size = m_.vocab_size, .pad_to = m_.make_vocab_size_divisible_by * tp_}}}},
            .init = {.std = std}};
  }

  /// Matrices of all experts [experts, piece, in] or [experts, h, piece], cut by experts and along `dim`.
  [[nodiscard]] ParamSpec experts(const std::string& name, int dim, const std::vector<Piece>& pieces,
                                  double std) const {
    std::int64_t length = 0;
    for (const Piece& piece : pieces) length += piece.size;
    const std::int64_t count = m_.moe.num_experts, h = m_.hidden_size;
    return {.name = name,
            .shape = dim == 1 ? std::vector{count, length, h} : std::vector{count, h, length},
            .cuts = {{.dim = 0, .axis = Axis::kEp, .pieces = {{.size = count}}},
                     {.dim = dim, .axis = Axis::kEtp, .pieces = pieces}},
            .family = Family::kExpert,
            .init = {.std = std}};
  }

  /// W [rows, h], the same on all ranks, for products with this rank's part of the sequence.
  [[nodiscard]] ParamSpec whole(const std::string& name, std::int64_t rows) const {
    return {.name = name,
            .shape = {rows, m_.hidden_size},
            .partial = partial_by_sequence(),
            .init = {.std = m_.init_method_std}};
  }

  [[nodiscard]] double output_std() const {
    return m_.init_method_std / std::sqrt(2.0 * static_cast<double>(m_.num_layers));
  }
  [[nodiscard]] double embedding_std() const {
    return m_.embedding_init_method_std.value_or(m_.init_method_std);
  }
  [[nodiscard]] AxisSet partial_by_sequence() const {
    return sequence_parallel_ ? AxisSet{Axis::kTp} : AxisSet{};
  }

 private:
  [[nodiscard]] NormParams norm_of(const std::string& name, std::int64_t size, AxisSet partial) const {
    NormParams p{.weight = {.name = name + ".weight",
                            .shape = {size},
                            .partial = partial,
                            .init = m_.apply_layernorm_1p ? kZeros : kOnes,
                            .weight_decay = false},
                 .bias = std::nullopt};
    if (m_.normalization == config::Normalization::kLayerNorm) {
      p.bias = ParamSpec{
          .name = name + ".bias", .shape = {size}, .partial = partial, .init = kZeros, .weight_decay = false};
    }
    return p;
  }

  const Model& m_;
  int tp_;
  bool sequence_parallel_;
};

AttentionParams attention_params(const Model& m, const Builder& build, const std::string& layer) {
  const std::int64_t d = m.kv_channels;
  const std::int64_t q = m.num_attention_heads * d;
  const std::int64_t kv = m.num_query_groups * d;
  const std::string name = layer + ".self_attention.";
  AttentionParams p{
      .input_norm = build.norm(layer + ".input_layernorm"),
      .qkv = build.column(name + "linear_qkv",
                          {{.role = "q", .size = q, .unit = d},
                           {.role = "k", .size = kv, .unit = d},
                           {.role = "v", .size = kv, .unit = d}},
                          m.qkv_bias()),
      .q_norm = std::nullopt,
      .k_norm = std::nullopt,
      .proj = build.row(name + "linear_proj", {.size = q, .unit = d}),
  };
  if (m.qk_layernorm) {
    p.q_norm = build.head_norm(name + "q_layernorm");
    p.k_norm = build.head_norm(name + "k_layernorm");
  }
  return p;
}

/// The rows of fc1 of an MLP of width f.
std::vector<Piece> up_pieces(const Model& m, std::int64_t f) {
  if (!m.gated()) return {{.size = f}};
  return {{.role = "gate", .size = f}, {.role = "up", .size = f}};
}

MlpParams mlp_params(const Model& m, const Builder& build, const std::string& layer) {
  const std::int64_t f = m.ffn_hidden_size;
  return {.norm = build.norm(layer + ".pre_mlp_layernorm"),
          .fc1 = build.column(layer + ".mlp.linear_fc1", up_pieces(m, f), m.add_bias_linear),
          .fc2 = build.row(layer + ".mlp.linear_fc2", {.size = f})};
}

MoeParams moe_params(const Model& m, const Builder& build, const std::string& layer) {
  const std::int64_t f = m.moe.ffn_hidden_size, shared = m.moe.shared_expert_intermediate_size;
  COL_CHECK(f > 0,
            "model: --moe-ffn-hidden-size must be known; got {}; complete the settings with config::derive",
            f);
  const std::string name = layer + ".mlp.";
  MoeParams p{.norm = build.norm(layer + ".pre_mlp_layernorm"),
              .router = build.whole(name + "router.weight", m.moe.num_experts),
              .expert_bias = std::nullopt,
              .fc1 = build.experts(name + "experts.linear_fc1.weight", 1, up_pieces(m, f), m.init_method_std),
              .fc2 = build.experts(name + "experts.linear_fc2.weight", 2, {{.size = f}}, build.output_std()),
              .shared_fc1 = std::nullopt,
              .shared_fc2 = std::nullopt,
              .shared_gate = std::nullopt};
  if (m.moe.router_enable_expert_bias)
    p.expert_bias = ParamSpec{.name = name + "router.expert_bias",
                              .shape = {m.moe.num_experts},
                              .init = kZeros,
                              .weight_decay = false,
                              .trained = false};
  if (shared > 0) {
    p.shared_fc1 = build.column(name + "shared_experts.linear_fc1", up_pieces(m, shared), false);
    p.shared_fc2 = build.row(name + "shared_experts.linear_fc2", {.size = shared});
    if (m.moe.shared_expert_gate) p.shared_gate = build.whole(name + "shared_experts.gate_weight", 1);
  }
  return p;
}

}  // namespace

std::vector<bool> layers_with_experts(const Model& model) {
  if (model.moe.num_experts == 0) return std::vector<bool>(static_cast<std::size_t>(model.num_layers));
  auto kinds = config::layers_of_kind(model.moe.layer_freq, model.num_layers);
  COL_CHECK(kinds, "--moe-layer-freq: must say which of {} layers have experts; got {}", model.num_layers,
            model.moe.layer_freq);
  return *std::move(kinds);
}

EmbeddingParams embedding_params(const Model& model, const Parallel& parallel) {
  const Builder build(model, parallel);
  EmbeddingParams p{.word = build.vocabulary("embedding.word_embeddings.weight", build.embedding_std()),
                    .position = std::nullopt};
  if (model.position_embedding == config::PositionEmbedding::kLearnedAbsolute) {
    p.position = ParamSpec{.name = "embedding.position_embeddings.weight",
                           .shape = {model.max_position_embeddings, model.hidden_size},
                           .partial = build.partial_by_sequence(),
                           .init = {.std = build.embedding_std()}};
  }
  return p;
}

LayerParams layer_params(const Model& model, const Parallel& parallel, std::int64_t layer) {
  const Builder build(model, parallel);
  const std::string name = fmt::format("decoder.layers.{}", layer);
  LayerParams p{.attention = attention_params(model, build, name), .mlp = {}};
  if (layers_with_experts(model)[static_cast<std::size_t>(layer)])
    p.mlp = moe_params(model, build, name);
  else
    p.mlp = mlp_params(model, build, name);
  return p;
}

HeadParams head_params(const Model& model, const Parallel& parallel) {
  const Builder build(model, parallel);
  HeadParams p{.final_norm = build.norm("decoder.final_layernorm"), .output = std::nullopt};
  if (model.untie_embeddings_and_output_weights) {
    p.output = build.vocabulary("output_layer.weight", model.init_method_std);
  }
  return p;
}

std::vector<ParamSpec> gpt_params(const Model& model, const Parallel& parallel) {
  std::vector<ParamSpec> all;
  const auto add = [&all](const ParamSpec& spec) { all.push_back(spec); };
  for_each(embedding_params(model, parallel), add);
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer) {
    for_each(layer_params(model, parallel, layer), add);
  }
  for_each(head_params(model, parallel), add);
  return all;
}

}  // namespace colonnade::plan
