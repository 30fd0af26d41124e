// Builder of parameter specs with common shapes, sharding and initialization. Private to layout/params.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "colonnade/base/error.h"
#include "colonnade/config/model.h"
#include "colonnade/config/parallel.h"
#include "colonnade/layout/params/parts.h"

namespace colonnade::layout {

/// Initial values of a matrix [..., out, in]: normal with `std`, or with --init-method-xavier-uniform uniform
/// in
/// +-sqrt(6 / (in + out)) (Glorot and Bengio 2010), of global sizes without padding.
inline Init weight_init(const config::Model& model, const std::vector<std::int64_t>& shape, double std) {
  if (!model.init_method_xavier_uniform) return {.std = std};
  const std::int64_t fans = shape.back() + shape[shape.size() - 2];
  return {.kind = InitKind::kUniform, .std = std::sqrt(6.0 / static_cast<double>(fans))};
}

/// Builds parameter specs of one model.
class ParamBuilder {
 public:
  /// `layers`: depth of the residual stream, which scales the init of output projections; 0: the model's.
  ParamBuilder(const config::Model& model, const config::Parallel& parallel, std::int64_t layers = 0)
      : m_(model),
        layers_(layers > 0 ? layers : model.num_layers),
        tp_(parallel.tensor_model_parallel_size),
        sequence_parallel_(parallel.sequence_parallel && tp_ > 1) {
    COL_CHECK(
        std::min({m_.num_layers, m_.hidden_size, m_.ffn_hidden_size, m_.num_attention_heads,
                  m_.num_query_groups, m_.kv_channels, m_.vocab_size, m_.make_vocab_size_divisible_by}) > 0,
        "model sizes must be set; got layers {} hidden {} ffn {} heads {} groups {} head size {} "
        "vocabulary {} vocabulary divisor {}; complete the settings with config::derive",
        m_.num_layers, m_.hidden_size, m_.ffn_hidden_size, m_.num_attention_heads, m_.num_query_groups,
        m_.kv_channels, m_.vocab_size, m_.make_vocab_size_divisible_by);
  }

  /// Norm of the residual stream, or of vectors of `size` outside tensor-parallel regions.
  [[nodiscard]] NormParams norm(const std::string& name, std::int64_t size = 0) const {
    return norm_of(name, width(size), partial_by_sequence());
  }
  /// Norm of each head's queries or keys.
  [[nodiscard]] NormParams head_norm(const std::string& name) const {
    return norm_of(name, m_.kv_channels, tp_ > 1 ? AxisSet{Axis::kTp} : AxisSet{});
  }

  /// Norm of all queries or keys of a token, `size` channels sharded by heads.
  [[nodiscard]] NormParams heads_norm(const std::string& name, std::int64_t size) const {
    NormParams p = norm_of(name, size, {});
    p.weight.sharded_dims = {{.dim = 0, .segments = {{.size = size, .unit = m_.kv_channels}}}};
    return p;
  }

  /// Column-parallel W [pieces, in], sharded by rows; `in` 0: the hidden size.
  [[nodiscard]] LinearParams column(const std::string& name, const std::vector<DimSegment>& pieces, bool bias,
                                    std::int64_t in = 0) const {
    std::int64_t rows = 0;
    for (const DimSegment& piece : pieces) rows += piece.size;
    LinearParams p{.weight = {.name = name + ".weight",
                              .shape = {rows, width(in)},
                              .sharded_dims = {{.dim = 0, .segments = pieces}},
                              .init = weight_init(m_, {rows, width(in)}, m_.hidden_init_std())},
                   .bias = std::nullopt};
    if (bias) {
      p.bias = ParamSpec{.name = name + ".bias",
                         .shape = {rows},
                         .sharded_dims = {{.dim = 0, .segments = pieces}},
                         .init = Init::zeros(),
                         .weight_decay = false};
    }
    return p;
  }

  /// Row-parallel W [h, piece], sharded by columns.
  [[nodiscard]] LinearParams row(const std::string& name, const DimSegment& piece) const {
    LinearParams p{.weight = {.name = name + ".weight",
                              .shape = {m_.hidden_size, piece.size},
                              .sharded_dims = {{.dim = 1, .segments = {piece}}},
                              .init = weight_init(m_, {m_.hidden_size, piece.size}, output_std())},
                   .bias = std::nullopt};
    if (m_.add_bias_linear) {
      p.bias = ParamSpec{.name = name + ".bias",
                         .shape = {m_.hidden_size},
                         .partial = partial_by_sequence(),
                         .init = Init::zeros(),
                         .weight_decay = false};
    }
    return p;
  }

  /// [vocabulary, h], sharded by rows with padding.
  [[nodiscard]] ParamSpec vocabulary(const std::string& name, bool is_embedding) const {
    const std::vector<std::int64_t> shape{m_.vocab_size, m_.hidden_size};
    return {.name = name,
            .shape = shape,
            .sharded_dims = vocabulary_sharding(),
            // muP counts the output layer among the embeddings.
            .init = is_embedding || m_.use_mup ? embedding_init(shape)
                                               : weight_init(m_, shape, m_.init_method_std)};
  }
  /// [vocabulary], sharded with the same padding.
  [[nodiscard]] ParamSpec vocabulary_bias(const std::string& name) const {
    return {.name = name,
            .shape = {m_.vocab_size},
            .sharded_dims = vocabulary_sharding(),
            .init = Init::zeros(),
            .weight_decay = false};
  }

  /// Matrices of all experts [experts, piece, l] or [experts, l, piece] of their width l, sharded by experts
  /// and along `dim`.
  [[nodiscard]] ParamSpec experts(const std::string& name, int dim, const std::vector<DimSegment>& pieces,
                                  double std) const {
    std::int64_t length = 0;
    for (const DimSegment& piece : pieces) length += piece.size;
    const std::int64_t count = m_.moe.num_experts, h = m_.expert_width();
    return {.name = name,
            .shape = dim == 1 ? std::vector{count, length, h} : std::vector{count, h, length},
            .sharded_dims = {{.dim = 0, .axis = Axis::kEp, .segments = {{.size = count}}},
                             {.dim = dim, .axis = Axis::kEtp, .segments = pieces}},
            .param_group = ParamGroup::kExpert,
            .init = weight_init(m_, {length, h}, std)};
  }

  /// Biases of all experts [experts, piece], sharded by experts and over etp; `replicated`: not over etp, for
  /// biases after an etp reduction.
  [[nodiscard]] ParamSpec expert_bias(const std::string& name, const std::vector<DimSegment>& pieces,
                                      bool replicated) const {
    std::int64_t length = 0;
    for (const DimSegment& piece : pieces) length += piece.size;
    ParamSpec spec{
        .name = name,
        .shape = {m_.moe.num_experts, length},
        .sharded_dims = {{.dim = 0, .axis = Axis::kEp, .segments = {{.size = m_.moe.num_experts}}}},
        .param_group = ParamGroup::kExpert,
        .init = Init::zeros(),
        .weight_decay = false};
    if (!replicated) spec.sharded_dims.push_back({.dim = 1, .axis = Axis::kEtp, .segments = pieces});
    return spec;
  }

  /// W [rows, in], replicated on tensor ranks and applied to this rank's sequence shard.
  [[nodiscard]] ParamSpec replicated(const std::string& name, std::int64_t rows, std::int64_t in = 0) const {
    return {.name = name,
            .shape = {rows, width(in)},
            .partial = partial_by_sequence(),
            .init = weight_init(m_, {rows, width(in)}, m_.hidden_init_std())};
  }

  /// Replicated linear layer with bias; `by_sequence`: applied to the sequence shard, else to the same small
  /// input on every rank.
  [[nodiscard]] LinearParams replicated_linear(const std::string& name, std::int64_t rows,
                                               bool by_sequence) const {
    LinearParams p{
        .weight = replicated(name + ".weight", rows),
        .bias =
            ParamSpec{.name = name + ".bias", .shape = {rows}, .init = Init::zeros(), .weight_decay = false}};
    if (!by_sequence) p.weight.partial = {};
    p.bias->partial = p.weight.partial;
    return p;
  }

  /// Replicated linear layer [out, in] of each token of the sequence shard, with a bias if linear layers have
  /// them.
  [[nodiscard]] LinearParams token_projection(const std::string& name, std::int64_t out, std::int64_t in,
                                              double std) const {
    LinearParams p{.weight = replicated(name + ".weight", out, in), .bias = std::nullopt};
    p.weight.init = weight_init(m_, {out, in}, std);
    if (m_.add_bias_linear)
      p.bias = ParamSpec{.name = name + ".bias",
                         .shape = {out},
                         .partial = partial_by_sequence(),
                         .init = Init::zeros(),
                         .weight_decay = false};
    return p;
  }

  /// Embeddings are normal if they have a standard deviation of their own, as in Megatron.
  [[nodiscard]] Init embedding_init(const std::vector<std::int64_t>& shape) const {
    const bool own = embedding_std() != m_.init_method_std;
    return own ? Init{.std = embedding_std()} : weight_init(m_, shape, m_.init_method_std);
  }

  [[nodiscard]] const config::Model& model() const { return m_; }
  [[nodiscard]] double output_std() const {
    return m_.hidden_init_std() / std::sqrt(2.0 * static_cast<double>(layers_));
  }
  [[nodiscard]] double embedding_std() const {
    return m_.embedding_init_method_std.value_or(m_.init_method_std);
  }
  [[nodiscard]] AxisSet partial_by_sequence() const {
    return sequence_parallel_ ? AxisSet{Axis::kTp} : AxisSet{};
  }

 private:
  [[nodiscard]] std::vector<ShardedDim> vocabulary_sharding() const {
    return {
        {.dim = 0, .segments = {{.size = m_.vocab_size, .pad_to = m_.make_vocab_size_divisible_by * tp_}}}};
  }
  [[nodiscard]] std::int64_t width(std::int64_t given) const { return given > 0 ? given : m_.hidden_size; }
  [[nodiscard]] NormParams norm_of(const std::string& name, std::int64_t size, AxisSet partial) const {
    NormParams p{.weight = {.name = name + ".weight",
                            .shape = {size},
                            .partial = partial,
                            .init = m_.apply_layernorm_1p ? Init::zeros() : Init::ones(),
                            .weight_decay = false},
                 .bias = std::nullopt};
    if (m_.normalization == config::Normalization::kLayerNorm && m_.layernorm_bias) {
      p.bias = ParamSpec{.name = name + ".bias",
                         .shape = {size},
                         .partial = partial,
                         .init = Init::zeros(),
                         .weight_decay = false};
    }
    return p;
  }

  const config::Model& m_;
  std::int64_t layers_;
  int tp_;
  bool sequence_parallel_;
};

}  // namespace colonnade::layout
