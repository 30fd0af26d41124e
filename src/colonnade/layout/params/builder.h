// How the parts of a model make their parameters: shapes, cuts and starts that they have in common. Private
// to plan/params.
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

/// What the parts have in common.
class ParamBuilder {
 public:
  /// `layers` of the residual stream, which the start of output layers depends on; 0: the model's.
  ParamBuilder(const config::Model& model, const config::Parallel& parallel, std::int64_t layers = 0)
      : m_(model),
        layers_(layers > 0 ? layers : model.num_layers),
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

  /// A norm of the residual stream, or of other vectors of `size` between the parallel stretches.
  [[nodiscard]] NormParams norm(const std::string& name, std::int64_t size = 0) const {
    return norm_of(name, width(size), partial_by_sequence());
  }
  /// A norm of each head's queries or keys.
  [[nodiscard]] NormParams head_norm(const std::string& name) const {
    return norm_of(name, m_.kv_channels, tp_ > 1 ? AxisSet{Axis::kTp} : AxisSet{});
  }

  /// W [pieces, in], cut by rows; `in` 0: the hidden size.
  [[nodiscard]] LinearParams column(const std::string& name, const std::vector<Piece>& pieces, bool bias,
                                    std::int64_t in = 0) const {
    std::int64_t rows = 0;
    for (const Piece& piece : pieces) rows += piece.size;
    LinearParams p{.weight = {.name = name + ".weight",
                              .shape = {rows, width(in)},
                              .cuts = {{.dim = 0, .pieces = pieces}},
                              .init = {.std = m_.init_method_std}},
                   .bias = std::nullopt};
    if (bias) {
      p.bias = ParamSpec{.name = name + ".bias",
                         .shape = {rows},
                         .cuts = {{.dim = 0, .pieces = pieces}},
                         .init = Init::zeros(),
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
                         .init = Init::zeros(),
                         .weight_decay = false};
    }
    return p;
  }

  /// [vocabulary, h], cut by rows and filled up.
  [[nodiscard]] ParamSpec vocabulary(const std::string& name, double std) const {
    return {.name = name,
            .shape = {m_.vocab_size, m_.hidden_size},
            .cuts = vocabulary_cut(),
            .init = {.std = std}};
  }
  /// [vocabulary], cut and filled up alike.
  [[nodiscard]] ParamSpec vocabulary_bias(const std::string& name) const {
    return {.name = name,
            .shape = {m_.vocab_size},
            .cuts = vocabulary_cut(),
            .init = Init::zeros(),
            .weight_decay = false};
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

  /// Biases of all experts [experts, piece], cut by experts; over etp too, or whole where a sum is beneath.
  [[nodiscard]] ParamSpec expert_bias(const std::string& name, const std::vector<Piece>& pieces,
                                      bool whole) const {
    std::int64_t length = 0;
    for (const Piece& piece : pieces) length += piece.size;
    ParamSpec spec{.name = name,
                   .shape = {m_.moe.num_experts, length},
                   .cuts = {{.dim = 0, .axis = Axis::kEp, .pieces = {{.size = m_.moe.num_experts}}}},
                   .family = Family::kExpert,
                   .init = Init::zeros(),
                   .weight_decay = false};
    if (!whole) spec.cuts.push_back({.dim = 1, .axis = Axis::kEtp, .pieces = pieces});
    return spec;
  }

  /// W [rows, in], the same on all ranks, for products with this rank's part of the sequence.
  [[nodiscard]] ParamSpec whole(const std::string& name, std::int64_t rows, std::int64_t in = 0) const {
    return {.name = name,
            .shape = {rows, width(in)},
            .partial = partial_by_sequence(),
            .init = {.std = m_.init_method_std}};
  }

  /// A linear layer with a bias, the same on all ranks; `by_sequence`: as `whole`, else for all that each
  /// rank has of something small.
  [[nodiscard]] LinearParams whole_linear(const std::string& name, std::int64_t rows,
                                          bool by_sequence) const {
    LinearParams p{
        .weight = whole(name + ".weight", rows),
        .bias =
            ParamSpec{.name = name + ".bias", .shape = {rows}, .init = Init::zeros(), .weight_decay = false}};
    if (!by_sequence) p.weight.partial = {};
    p.bias->partial = p.weight.partial;
    return p;
  }

  [[nodiscard]] const config::Model& model() const { return m_; }
  [[nodiscard]] double output_std() const {
    return m_.init_method_std / std::sqrt(2.0 * static_cast<double>(layers_));
  }
  [[nodiscard]] double embedding_std() const {
    return m_.embedding_init_method_std.value_or(m_.init_method_std);
  }
  [[nodiscard]] AxisSet partial_by_sequence() const {
    return sequence_parallel_ ? AxisSet{Axis::kTp} : AxisSet{};
  }

 private:
  [[nodiscard]] std::vector<Cut> vocabulary_cut() const {
    return {{.dim = 0, .pieces = {{.size = m_.vocab_size, .pad_to = m_.make_vocab_size_divisible_by * tp_}}}};
  }
  [[nodiscard]] std::int64_t width(std::int64_t given) const { return given > 0 ? given : m_.hidden_size; }
  [[nodiscard]] NormParams norm_of(const std::string& name, std::int64_t size, AxisSet partial) const {
    NormParams p{.weight = {.name = name + ".weight",
                            .shape = {size},
                            .partial = partial,
                            .init = m_.apply_layernorm_1p ? Init::zeros() : Init::ones(),
                            .weight_decay = false},
                 .bias = std::nullopt};
    if (m_.normalization == config::Normalization::kLayerNorm) {
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
