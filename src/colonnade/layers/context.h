// What a layer is built with: the groups it talks to and where its tensors live.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>

#include "colonnade/comm/group.h"
#include "colonnade/config/recompute.h"
#include "colonnade/layout/context_parallel.h"
#include "colonnade/tensor/block.h"
#include "colonnade/tensor/parameter.h"

namespace colonnade::layers {

/// The ranks that share each sequence, as attention divides them.
struct ContextRanks {
  comm::Group all;
  comm::Group heads, rings;  ///< of layers with a2a+p2p: neighbours, and the same place in all their groups
  /// For batches that say how many ranks share them (tensor::Batch::share): a group of each number.
  std::map<int, comm::Group> by_size;
  config::Parallel exchange;  ///< says how each layer exchanges (layout::context_layer)
};

/// Shapes in layers: s sequence, b batch, h hidden, n heads, g query groups, d head, f ffn, v vocabulary.
struct Context {
  comm::Group tp;                  ///< ranks that share each layer's weights
  ContextRanks cp;                 ///< ranks that share each sequence
  bool sequence_parallel = false;  ///< activations between layers are [s / tp, b, h]
  at::TensorOptions options;       ///< dtype and device of parameters and activations
  std::uint64_t seed = 1234;       ///< of initial values and dropout
  config::Recompute recompute;     ///< what the backward pass makes again
  comm::Group experts;             ///< ranks that share the experts: etp x ep, etp fastest
  int expert_tensor = 1;           ///< ranks of it that share each expert (etp)
  comm::Group readers;             ///< ranks that read other tokens or other parts of them: tp, cp and dp
  bool draws = true;               ///< initial values are drawn; else zero until a checkpoint gives them
  bool puts_off = false;           ///< values are made when gradient buffers take the parameters over

  /// What the rows of an activation between layers are of their sequences.
  [[nodiscard]] layout::SequencePart sequence_part() const;
  /// Of this rank on the axes of its groups.
  [[nodiscard]] layout::Position position() const;
  /// The local part of `spec` for this rank.
  [[nodiscard]] std::unique_ptr<tensor::Parameter> make(const layout::ParamSpec& spec) const;
  [[nodiscard]] std::unique_ptr<tensor::Parameter> make(const std::optional<layout::ParamSpec>& spec) const;
};

/// What this rank has, between layers, of the sequences of a batch.
class SharedRows {
 public:
  explicit SharedRows(const Context& context);
  /// The ranks that have other chunks of them. Throws Error where the batch does not say how many these are
  /// and layers have groups of several sizes.
  [[nodiscard]] const comm::Group& others(const tensor::Batch& batch) const;
  [[nodiscard]] layout::SequencePart part(const tensor::Batch& batch) const;
  /// bool [rows], true where a row fills its sequence up; undefined where none does.
  [[nodiscard]] at::Tensor filling(const tensor::Batch& batch, std::int64_t rows, at::Device device) const;

 private:
  comm::Group all_;
  std::map<int, comm::Group> by_size_;
  layout::SequencePart of_layout_;
};

/// Appends the parameters that exist.
void collect(std::vector<tensor::Parameter*>& all, std::initializer_list<tensor::Parameter*> some);

}  // namespace colonnade::layers
