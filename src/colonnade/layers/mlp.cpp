// See mlp.h.
#include "colonnade/layers/mlp.h"

namespace colonnade::layers {

Mlp::Mlp(const layout::LinearParams& up, const layout::LinearParams& down, const config::Model& model,
         const Context& context)
    : fc1(up.weight, up.bias, context), fc2(down.weight, down.bias, context), activation_(model) {
  fc1.add_bias = false;  // fused into the activation
}

at::Tensor Mlp::forward(const MixerInput& x, const tensor::Pass&) {
  return fc2.forward(ops::activate(fc1.forward(x.normed), fc1.bias.get(), activation_));
}

void Mlp::add_parameters(std::vector<tensor::Parameter*>& all) const {
  collect(all, {fc1.weight.get(), fc1.bias.get(), fc2.weight.get(), fc2.bias.get()});
}

}  // namespace colonnade::layers
