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
                                   std::int64_t layer, const Sight& sight)
    : norms_again_(context.recompute.selects("layernorm")),
      mlp_again_(
          context.recompute.selects(std::holds_alternative<layout::MlpParams>(params.mlp) ? "mlp" : "moe")),
      adds_to_normed_(model.apply_residual_connection_post_layernorm),
      input_norm_(input_norm_of(params), model, context),
      post_attention_norm_(make_norm(params.post_attention_norm, model, context)),
      mlp_norm_(norm_of(params), model, context),
      post_mlp_norm_(make_norm(params.post_mlp_norm, model, context)),
      final_norm_(make_norm(params.final_norm, model, context)),
      after_attention_(proj_of(params).weight.name, model.hidden_dropout, context),
      after_mlp_(output_name(params), model.hidden_dropout, context) {
  if (const auto* latent = std::get_if<layout::LatentAttentionParams>(&params.attention))
    latent_ = std::make_unique<LatentAttention>(*latent, model, context, std::move(rotary), layer);
  else
    attention_ = std::make_unique<Attention>(std::get<layout::AttentionParams>(params.attention), model,
                                             context, std::move(rotary), layer, sight);
  if (params.cross)
    cross_ = std::make_unique<Cross>(
        Cross{.norm = {params.cross->norm, model, context},
              .attention = {*params.cross, model, context, layer},
              .after = {params.cross->proj.weight.name, model.hidden_dropout, context}});
  if (const auto* mlp = std::get_if<layout::MlpParams>(&params.mlp))
    mlp_ = std::make_unique<Mlp>(mlp->fc1, mlp->fc2, model, context);
  else
    moe_ = std::make_unique<Moe>(std::get<layout::MoeParams>(params.mlp), model, context);
}

ops::Added TransformerLayer::join(const Residual& residual, const Norm& norm, const at::Tensor& y,
                                  tensor::Parameter* bias, const at::Tensor& x, const tensor::Pass& pass) {
  if (residual.only_adds(bias, pass)) return norm.add_forward(y, x);
  ops::Added added;
  added.sum = residual.forward(y, bias, x, pass);
  added.normed = norm.forward(added.sum);
  return added;
}

ops::Added TransformerLayer::cross(const at::Tensor& attended, const at::Tensor& x, const at::Tensor& encoded,
                                   const tensor::Pass& pass) const {
  tensor::Parameter* bias = attention_->proj.bias.get();
  const ops::Added before = join(after_attention_, cross_->norm, attended, bias, x, pass);
  const at::Tensor crossed = cross_->attention.forward(before.normed, encoded, pass);
  if (norms_again_)
    make_again({before.normed}, crossed,
               [this, sum = before.sum.detach()] { return Tensors{cross_->norm.forward(sum)}; });
  return join(cross_->after, mlp_norm_, crossed, cross_->attention.proj.bias.get(), before.sum, pass);
}

at::Tensor TransformerLayer::forward(const at::Tensor& x, const at::Tensor& encoded,
                                     const tensor::Pass& pass) {
  const ops::Added added = attend_and_add(x, encoded, pass);
  at::Tensor y = feed_forward(added.normed, pass);
  if (norms_again_)
    make_again({added.normed}, y,
               [this, sum = added.sum.detach()] { return Tensors{mlp_norm_.forward(sum)}; });
  if (post_mlp_norm_) y = post_mlp_norm_->forward(y);
  y = after_mlp_.forward(y, mlp_ ? mlp_->fc2.bias.get() : nullptr, adds_to_normed_ ? added.normed : added.sum,
                         pass);
  return final_norm_ ? final_norm_->forward(y) : y;
}

ops::Added TransformerLayer::attend_and_add(const at::Tensor& x, const at::Tensor& encoded,
                                            const tensor::Pass& pass) const {
  const Attended attended = attend(x, pass);
  const at::Tensor& stream = adds_to_normed_ ? attended.normed : x;
  if (cross_) return cross(attended.y, stream, encoded, pass);
  tensor::Parameter* bias = (latent_ ? latent_->proj : attention_->proj).bias.get();
  return join(after_attention_, mlp_norm_, attended.y, bias, stream, pass);
}

TransformerLayer::Attended TransformerLayer::attend(const at::Tensor& x, const tensor::Pass& pass) const {
  const at::Tensor normed = input_norm_.forward(x);
  const at::Tensor attended = latent_ ? latent_->forward(normed, pass) : attention_->forward(normed, pass);
  if (norms_again_)
    make_again({normed}, attended, [this, x = x.detach()] { return Tensors{input_norm_.forward(x)}; });
  return {.y = post_attention_norm_ ? post_attention_norm_->forward(attended) : attended,
          .normed = adds_to_normed_ ? normed : at::Tensor()};
}

at::Tensor TransformerLayer::feed_forward(const at::Tensor& normed, const tensor::Pass& pass) const {
  const auto run = [this](const Tensors& x, const tensor::Pass& now) {
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
