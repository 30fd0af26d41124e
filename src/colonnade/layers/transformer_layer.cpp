// See transformer_layer.h.
#include "colonnade/layers/transformer_layer.h"

namespace colonnade::layers {
namespace {

const plan::NormParams& input_norm_of(const plan::LayerParams& params) {
  return std::visit([](const auto& p) -> const plan::NormParams& { return p.input_norm; }, params.attention);
}

const plan::LinearParams& proj_of(const plan::LayerParams& params) {
  return std::visit([](const auto& p) -> const plan::LinearParams& { return p.proj; }, params.attention);
}

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
    : input_norm_(input_norm_of(params), model, context),
      post_attention_norm_(make_norm(params.post_attention_norm, model, context)),
      mlp_norm_(norm_of(params), model, context),
      post_mlp_norm_(make_norm(params.post_mlp_norm, model, context)),
      after_attention_(proj_of(params).weight.name, model.hidden_dropout, context),
      after_mlp_(output_name(params), model.hidden_dropout, context) {
  if (const auto* latent = std::get_if<plan::LatentAttentionParams>(&params.attention))
    latent_ = std::make_unique<LatentAttention>(*latent, model, context, std::move(rotary), layer);
  else
    attention_ = std::make_unique<Attention>(std::get<plan::AttentionParams>(params.attention), model,
                                             context, std::move(rotary), layer);
  if (const auto* mlp = std::get_if<plan::MlpParams>(&params.mlp))
    mlp_ = std::make_unique<Mlp>(mlp->fc1, mlp->fc2, model, context);
  else
    moe_ = std::make_unique<Moe>(std::get<plan::MoeParams>(params.mlp), model, context);
}

at::Tensor TransformerLayer::forward(const at::Tensor& x, const tensor::Pass& pass) {
  at::Tensor attended = latent_ ? latent_->forward(input_norm_.forward(x), pass)
                                : attention_->forward(input_norm_.forward(x), pass);
  if (post_attention_norm_) attended = post_attention_norm_->forward(attended);
  tensor::Parameter* bias = (latent_ ? latent_->proj : attention_->proj).bias.get();
  ops::Added added;
  if (after_attention_.only_adds(bias, pass)) {
    added = mlp_norm_.add_forward(attended, x);
  } else {
    added.sum = after_attention_.forward(attended, bias, x, pass);
    added.normed = mlp_norm_.forward(added.sum);
  }
  at::Tensor y = moe_ ? moe_->forward(added.normed, pass) : mlp_->forward(added.normed);
  if (post_mlp_norm_) y = post_mlp_norm_->forward(y);
  return after_mlp_.forward(y, moe_ ? nullptr : mlp_->fc2.bias.get(), added.sum, pass);
}

void TransformerLayer::finish_step() {
  if (moe_) moe_->finish_step();
}

std::vector<tensor::Parameter*> TransformerLayer::parameters() {
  std::vector<tensor::Parameter*> all;
  collect(all, {input_norm_.weight.get(), input_norm_.bias.get()});
  if (latent_)
    latent_->add_parameters(all);
  else
    attention_->add_parameters(all);
  add_norm(all, post_attention_norm_);
  collect(all, {mlp_norm_.weight.get(), mlp_norm_.bias.get()});
  if (moe_)
    moe_->add_parameters(all);
  else
    mlp_->add_parameters(all);
  add_norm(all, post_mlp_norm_);
  return all;
}

}  // namespace colonnade::layers
