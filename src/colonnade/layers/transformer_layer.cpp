// See transformer_layer.h.
#include "colonnade/layers/transformer_layer.h"

#include "colonnade/layers/recompute.h"

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
    : norms_again_(context.recompute.selects("layernorm")),
      mlp_again_(
          context.recompute.selects(std::holds_alternative<plan::MlpParams>(params.mlp) ? "mlp" : "moe")),
      input_norm_(params.attention.input_norm, model, context),
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
  const at::Tensor attended = attend(x, pass);
  tensor::Parameter* bias = attention_.proj.bias.get();
  ops::Added added;
  if (after_attention_.only_adds(bias, pass)) {
    added = mlp_norm_.add_forward(attended, x);
  } else {
    added.sum = after_attention_.forward(attended, bias, x, pass);
    added.normed = mlp_norm_.forward(added.sum);
  }
  const at::Tensor y = feed_forward(added.normed, pass);
  if (norms_again_)
    make_again(added.normed, y, [this, sum = added.sum.detach()] { return mlp_norm_.forward(sum); });
  return after_mlp_.forward(y, mlp_ ? mlp_->fc2.bias.get() : nullptr, added.sum, pass);
}

at::Tensor TransformerLayer::attend(const at::Tensor& x, const tensor::Pass& pass) const {
  const at::Tensor normed = input_norm_.forward(x);
  at::Tensor attended = attention_.forward(normed, pass);
  if (norms_again_) make_again(normed, attended, [this, x = x.detach()] { return input_norm_.forward(x); });
  return attended;
}

at::Tensor TransformerLayer::feed_forward(const at::Tensor& normed, const tensor::Pass& pass) const {
  const auto run = [this](const Inputs& x, const tensor::Pass& now) {
    return moe_ ? moe_->forward(x[0], now) : mlp_->forward(x[0]);
  };
  return mlp_again_ ? recompute({normed}, pass, run) : run({normed}, pass);
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
