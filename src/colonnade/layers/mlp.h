// Dense MLP of a layer: up projection, activation, down projection.
#pragma once

#include "colonnade/layers/linear.h"
#include "colonnade/layers/mixer.h"
#include "colonnade/layout/params/gpt.h"
#include "colonnade/ops/activation.h"

namespace colonnade::layers {

/// x [s, b, h] -> fc2(act(fc1(x) + b1)), before fc2's bias. Gated activations hold [gate | up] in fc1.
class Mlp final : public Mixer {
 public:
  Mlp(const layout::LinearParams& up, const layout::LinearParams& down, const config::Model& model,
      const Context& context);
  at::Tensor forward(const MixerInput& x, const tensor::Pass& pass) override;
  [[nodiscard]] tensor::Parameter* output_bias() const override { return fc2.bias.get(); }
  void add_parameters(std::vector<tensor::Parameter*>& all) const override;

  ColumnLinear fc1;
  RowLinear fc2;

 private:
  ops::ActivationKind activation_;
};

}  // namespace colonnade::layers
