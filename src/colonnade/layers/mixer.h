// Mixer: what a sublayer computes between its norm and its residual connection.
#pragma once

#include <vector>

#include "colonnade/tensor/block.h"

namespace colonnade::layers {

struct MixerInput {
  at::Tensor normed;   ///< [s, b, h], or [s / tp, b, h] with sequence parallelism
  at::Tensor encoded;  ///< output of the encoder [t, b, h], read by cross-attention; undefined without one
};

/// One of the mixers of layout::LayerKind.
class Mixer {
 public:
  virtual ~Mixer() = default;
  /// Output before bias and residual connection, of the shape of `normed`.
  virtual at::Tensor forward(const MixerInput& x, const tensor::Pass& pass) = 0;
  /// Bias of the output projection, which the residual connection adds; null: none.
  [[nodiscard]] virtual tensor::Parameter* output_bias() const { return nullptr; }
  /// Appends the parameters in order of use.
  virtual void add_parameters(std::vector<tensor::Parameter*>& all) const = 0;
  /// tensor::Block::finish_step().
  virtual void finish_step() {}
};

}  // namespace colonnade::layers
