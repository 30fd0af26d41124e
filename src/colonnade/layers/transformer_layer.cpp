// See transformer_layer.h.
#include "colonnade/layers/transformer_layer.h"

namespace colonnade::layers {

TransformerLayer::TransformerLayer(const plan::LayerParams& params, const config::Model& model,
                                   const Context& context, std::shared_ptr<const ops::RotaryTable> rotary,
                                   std::int64_t layer)
    : input_norm_(params.attention.input_norm, model, context),
      attention_(params.attention, model, context, std::move(rotary), layer),
      mlp_norm_(params.mlp.norm, model, context),
      mlp_(params.mlp, model, context),
      after_attention_(params.attention.proj.weight.name, model.hidden_dropout, context),
      after_mlp_(params.mlp.fc2.weight.name, model.hidden_dropout, context) {}

at::Tensor TransformerLayer::forward(const at::Tensor& x, const tensor::Pass& pass) {
  const at::Tensor attended = attention_.forward(input_norm_.forward(x), pass);
  tensor::Parameter* bias = attention_.proj.bias.get();
  ops::Added added;
  if (after_attention_.only_adds(bias, pass)) {
    added = mlp_norm_.add_forward(attended, x);
  } else {
    added.sum = after_attention_.forward(attended, bias, x, pass);
    added.normed = mlp_norm_.forward(added.sum);
  }
  return after_mlp_.forward(mlp_.forward(added.normed), mlp_.fc2.bias.get(), added.sum, pass);
}

std::vector<tensor::Parameter*> TransformerLayer::parameters() {
  std::vector<tensor::Parameter*> all;
  collect(all, {input_norm_.weight.get(), input_norm_.bias.get()});
  attention_.add_parameters(all);
  collect(all, {mlp_norm_.weight.get(), mlp_norm_.bias.get()});
  mlp_.add_parameters(all);
  return all;
}

}  // namespace colonnade::layers
