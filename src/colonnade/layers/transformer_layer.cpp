// See transformer_layer.h.
#include "colonnade/layers/transformer_layer.h"

#include "colonnade/layers/recompute.h"

namespace colonnade::layers {
namespace {

const layout::NormParams& input_norm_of(const layout::LayerParams& params) {
  return std::visit([](const auto& p) -> const layout::NormParams& { return p.input_norm; },
                    params.attention);
}

const layout::LinearParams& proj_of(const layout::LayerParams& params) {
  return std::visit([](const auto& p) -> const layout::LinearParams& { return p.proj; }, params.attention);
}

const layout::NormParams& norm_of(const layout::LayerParams& params) {
  return std::visit([](const auto& mlp) -> const layout::NormParams& { return mlp.norm; }, params.mlp);
}

/// The weight whose name keys the dropout after the MLP.
const std::string& output_name(const layout::LayerParams& params) {
  if (const auto* mlp = std::get_if<layout::MlpParams>(&params.mlp)) return mlp->fc2.weight.name;
  return std::get<layout::MoeParams>(params.mlp).fc2.name;
}

}  // namespace

TransformerLayer::TransformerLayer(const layout::LayerParams& params, const config::Model& model,
                                   const Context& context, std::shared_ptr<const ops::RotaryTable> rotary,
                                   std::int64_t layer, const MaskSpec& mask_spec)
    : recompute_norms_(context.recompute.recomputes("layernorm")),
      recompute_mlp_(context.recompute.recomputes(
          std::holds_alternative<layout::MlpParams>(params.mlp) ? "mlp" : "moe")),
      residual_after_norm_(model.apply_residual_connection_post_layernorm),
      input_norm_(input_norm_of(params), model, context),
      post_attention_norm_(make_norm(params.post_attention_norm, model, context)),
      mlp_norm_(norm_of(params), model, context),
      post_mlp_norm_(make_norm(params.post_mlp_norm, model, context)),
      final_norm_(make_norm(params.final_norm, model, context)),
      attention_residual_(proj_of(params).weight.name, model.hidden_dropout, context),
      mlp_residual_(output_name(params), model.hidden_dropout, context) {
  if (const auto* latent = std::get_if<layout::LatentAttentionParams>(&params.attention))
    latent_ = std::make_unique<LatentAttention>(*latent, model, context, std::move(rotary), layer);
  else
    attention_ = std::make_unique<Attention>(std::get<layout::AttentionParams>(params.attention), model,
                                             context, std::move(rotary), layer, mask_spec);
  if (params.cross)
    cross_ = std::make_unique<Cross>(
        Cross{.norm = {params.cross->norm, model, context},
              .attention = {*params.cross, model, context, layer},
              .residual = {params.cross->proj.weight.name, model.hidden_dropout, context}});
  if (const auto* mlp = std::get_if<layout::MlpParams>(&params.mlp))
    mlp_ = std::make_unique<Mlp>(mlp->fc1, mlp->fc2, model, context);
  else
    moe_ = std::make_unique<Moe>(std::get<layout::MoeParams>(params.mlp), model, context);
}

ops::AddNormOutput TransformerLayer::add_and_norm(const Residual& residual, const Norm& norm,
                                                  const at::Tensor& y, tensor::Parameter* bias,
                                                  const at::Tensor& x, const tensor::Pass& pass) {
  if (residual.is_plain_add(bias, pass)) return norm.add_forward(y, x);
  ops::AddNormOutput added;
  added.sum = residual.forward(y, bias, x, pass);
  added.normed = norm.forward(added.sum);
  return added;
}

ops::AddNormOutput TransformerLayer::cross(const at::Tensor& attended, const at::Tensor& x,
                                           const at::Tensor& encoded, const tensor::Pass& pass) const {
  tensor::Parameter* bias = attention_->proj.bias.get();
  const ops::AddNormOutput before = add_and_norm(attention_residual_, cross_->norm, attended, bias, x, pass);
  const at::Tensor crossed = cross_->attention.forward(before.normed, encoded, pass);
  if (recompute_norms_)
    discard_and_recompute({before.normed}, crossed,
                          [this, sum = before.sum.detach()] { return Tensors{cross_->norm.forward(sum)}; });
  return add_and_norm(cross_->residual, mlp_norm_, crossed, cross_->attention.proj.bias.get(), before.sum,
                      pass);
}

at::Tensor TransformerLayer::forward(const at::Tensor& x, const at::Tensor& encoded,
                                     const tensor::Pass& pass) {
  const ops::AddNormOutput added = attention_sublayer(x, encoded, pass);
  at::Tensor y = mlp_forward(added.normed, pass);
  if (recompute_norms_)
    discard_and_recompute({added.normed}, y,
                          [this, sum = added.sum.detach()] { return Tensors{mlp_norm_.forward(sum)}; });
  if (post_mlp_norm_) y = post_mlp_norm_->forward(y);
  y = mlp_residual_.forward(y, mlp_ ? mlp_->fc2.bias.get() : nullptr,
                            residual_after_norm_ ? added.normed : added.sum, pass);
  return final_norm_ ? final_norm_->forward(y) : y;
}

ops::AddNormOutput TransformerLayer::attention_sublayer(const at::Tensor& x, const at::Tensor& encoded,
                                                        const tensor::Pass& pass) const {
  const AttentionOutput attended = attend(x, pass);
  const at::Tensor& stream = residual_after_norm_ ? attended.normed : x;
  if (cross_) return cross(attended.y, stream, encoded, pass);
  tensor::Parameter* bias = (latent_ ? latent_->proj : attention_->proj).bias.get();
  return add_and_norm(attention_residual_, mlp_norm_, attended.y, bias, stream, pass);
}

TransformerLayer::AttentionOutput TransformerLayer::attend(const at::Tensor& x,
                                                           const tensor::Pass& pass) const {
  const at::Tensor normed = input_norm_.forward(x);
  const at::Tensor attended = latent_ ? latent_->forward(normed, pass) : attention_->forward(normed, pass);
  if (recompute_norms_)
    discard_and_recompute({normed}, attended,
                          [this, x = x.detach()] { return Tensors{input_norm_.forward(x)}; });
  return {.y = post_attention_norm_ ? post_attention_norm_->forward(attended) : attended,
          .normed = residual_after_norm_ ? normed : at::Tensor()};
}

at::Tensor TransformerLayer::mlp_forward(const at::Tensor& normed, const tensor::Pass& pass) const {
  const auto run = [this](const Tensors& x, const tensor::Pass& now) {
    return moe_ ? moe_->forward(x[0], now) : mlp_->forward(x[0]);
  };
  return recompute_mlp_ ? recompute({normed}, pass, run) : run({normed}, pass);
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
  if (cross_) {
    collect(all, {cross_->norm.weight.get(), cross_->norm.bias.get()});
    cross_->attention.add_parameters(all);
  }
  collect(all, {mlp_norm_.weight.get(), mlp_norm_.bias.get()});
  if (moe_)
    moe_->add_parameters(all);
  else
    mlp_->add_parameters(all);
  add_norm(all, post_mlp_norm_);
  add_norm(all, final_norm_);
  return all;
}

}  // namespace colonnade::layers
