// See transformer_layer.h.
#include "colonnade/layers/transformer_layer.h"

namespace colonnade::layers {
namespace {

const plan::NormParams& norm_of(const plan::LayerParams& params) {
  return std::visit([](const auto& mlp) -> const plan::NormParams& { return mlp.norm; }, params.mlp);
}

/// The weight whose name keys the dropout after the MLP.
const std::string& output_name(const plan::LayerParams& params) {
  if (const auto* mlp = std::get_if<plan::MlpParams>(&params.mlp)) return mlp->fc2.weight.name;
  return std::get<plan::MoeParams>(params.mlp).fc2.name;
}

}  // namespace

TransformerLayer::TransformerLayer(const plan::LayerParams& params, const config::Model& model,
                                   const Context& context, std::shared_ptr<const ops::RotaryTable> rotary,
                                   std::int64_t layer)
    : input_norm_(params.attention.input_norm, model, context),
      attention_(params.attention, model, context, std::move(rotary), layer),
      mlp_norm_(norm_of(params), model, context),
      after_attention_(params.attention.proj.weight.name, model.hidden_dropout, context),
      after_mlp_(output_name(params), model.hidden_dropout, context) {
  if (const auto* mlp = std::get_if<plan::MlpParams>(&params.mlp))
    mlp_ = std::make_unique<Mlp>(mlp->fc1, mlp->fc2, model, context);
  else
    moe_ = std::make_unique<Moe>(std::get<plan::MoeParams>(params.mlp), model, context);
}

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
  if (moe_) return after_mlp_.forward(moe_->forward(added.normed, pass), nullptr, added.sum, pass);
  return after_mlp_.forward(mlp_->forward(added.normed), mlp_->fc2.bias.get(), added.sum, pass);
}

void TransformerLayer::finish_step() {
  if (moe_) moe_->finish_step();
}

std::vector<tensor::Parameter*> TransformerLayer::parameters() {
  std::vector<tensor::Parameter*> all;
  collect(all, {input_norm_.weight.get(), input_norm_.bias.get()});
  attention_.add_parameters(all);
  collect(all, {mlp_norm_.weight.get(), mlp_norm_.bias.get()});
  if (moe_)
    moe_->add_parameters(all);
  else
    mlp_->add_parameters(all);
  return all;
}

}  // namespace colonnade::layers
