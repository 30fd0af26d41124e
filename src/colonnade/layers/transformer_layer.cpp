// See transformer_layer.h.
#include "colonnade/layers/transformer_layer.h"

#include "colonnade/layers/cross_attention.h"
#include "colonnade/layers/latent_attention.h"
#include "colonnade/layers/mlp.h"
#include "colonnade/layers/moe/moe.h"
#include "colonnade/layers/recompute.h"

namespace colonnade::layers {
namespace {

/// Makes the mixer of each type of parameters.
struct MixerMaker {
  const config::Model& model;
  const Context& context;
  const std::shared_ptr<const ops::RotaryTable>& rotary;
  std::int64_t layer;
  const MaskSpec& mask_spec;

  std::unique_ptr<Mixer> operator()(const layout::AttentionParams& p) const {
    return std::make_unique<Attention>(p, model, context, rotary, layer, mask_spec);
  }
  std::unique_ptr<Mixer> operator()(const layout::LatentAttentionParams& p) const {
    return std::make_unique<LatentAttention>(p, model, context, rotary, layer);
  }
  std::unique_ptr<Mixer> operator()(const layout::CrossAttentionParams& p) const {
    return std::make_unique<CrossAttention>(p, model, context, layer);
  }
  std::unique_ptr<Mixer> operator()(const layout::MlpParams& p) const {
    return std::make_unique<Mlp>(p.fc1, p.fc2, model, context);
  }
  std::unique_ptr<Mixer> operator()(const layout::MoeParams& p) const {
    return std::make_unique<Moe>(p, model, context);
  }
};

}  // namespace

TransformerLayer::TransformerLayer(const layout::LayerParams& params, const config::Model& model,
                                   const Context& context, std::shared_ptr<const ops::RotaryTable> rotary,
                                   std::int64_t layer, const MaskSpec& mask_spec)
    : type_(context.options.dtype().toScalarType()),
      residual_factor_(model.residual_factor),
      recompute_norms_(context.recompute.recomputes("layernorm")),
      residual_after_norm_(model.apply_residual_connection_post_layernorm),
      final_norm_(make_norm(params.final_norm, model, context)) {
  const MixerMaker make{model, context, rotary, layer, mask_spec};
  for (const layout::SublayerParams& p : params.sublayers) {
    const std::string& dropout_name = layout::output_weight(p.mixers.back()).name;
    sublayers_.push_back({.norm = make_norm(p.norm, model, context),
                          .mixers = {},
                          .post_norm = make_norm(p.post_norm, model, context),
                          .residual = {dropout_name, model.hidden_dropout, context}});
    for (const layout::MixerParams& mixer : p.mixers)
      sublayers_.back().mixers.push_back(
          {std::visit(make, mixer), context.recompute.recomputes(layout::recompute_module(mixer))});
  }
}

at::Tensor TransformerLayer::forward(const at::Tensor& x, const at::Tensor& encoded,
                                     const tensor::Pass& pass) {
  ops::AddNormOutput in;
  in.sum = x;
  in.normed = normed(sublayers_.front().norm, x);
  for (std::size_t i = 0;; ++i) {
    const Sublayer& sublayer = sublayers_[i];
    at::Tensor y = mix(sublayer, in, encoded, pass);
    tensor::Parameter* bias = sublayer.mixers.back().mixer->output_bias();
    if (residual_factor_ != 1) {
      y = (bias != nullptr ? ops::bias_dropout_add(y, bias, at::zeros_like(y), 0, {}) : y) * residual_factor_;
      bias = nullptr;
    }
    const at::Tensor residual = residual_after_norm_ ? in.normed.to(x.scalar_type()) : in.sum;
    in = {};  // releases the norm's output before the next one
    if (i + 1 < sublayers_.size()) {
      in = add_and_norm(sublayer, sublayers_[i + 1].norm, y, bias, residual, pass);
      continue;
    }
    const at::Tensor sum = sublayer.residual.forward(y, bias, residual, pass);
    return final_norm_ ? final_norm_->forward(sum).to(x.scalar_type()) : sum;
  }
}

ops::AddNormOutput TransformerLayer::add_and_norm(const Sublayer& sublayer,
                                                  const std::optional<Norm>& next_norm, const at::Tensor& y,
                                                  tensor::Parameter* bias, const at::Tensor& residual,
                                                  const tensor::Pass& pass) const {
  if (next_norm && sublayer.residual.is_plain_add(bias, pass)) return next_norm->add_forward(y, residual);
  ops::AddNormOutput added;
  added.sum = sublayer.residual.forward(y, bias, residual, pass);
  added.normed = normed(next_norm, added.sum);
  return added;
}

at::Tensor TransformerLayer::normed(const std::optional<Norm>& norm, const at::Tensor& sum) const {
  return norm ? norm->forward(sum) : sum.to(type_);
}

at::Tensor TransformerLayer::mix(const Sublayer& sublayer, const ops::AddNormOutput& in,
                                 const at::Tensor& encoded, const tensor::Pass& pass) const {
  at::Tensor y;
  tensor::Parameter* bias = nullptr;  // of the mixers so far, added with the next one
  for (const auto& [mixer, recomputed] : sublayer.mixers) {
    const auto run = [&mixer = *mixer](const Tensors& x, const tensor::Pass& now) {
      return mixer.forward({.normed = x[0], .encoded = {}}, now);
    };
    at::Tensor out = recomputed ? recompute({in.normed}, pass, run)
                                : mixer->forward({.normed = in.normed, .encoded = encoded}, pass);
    if (y.defined()) out = bias == nullptr ? y + out : ops::bias_dropout_add(y, bias, out, 0, {});
    y = std::move(out);
    bias = mixer->output_bias();
  }
  if (recompute_norms_ && sublayer.norm)
    discard_and_recompute({in.normed}, y, [&norm = *sublayer.norm, sum = in.sum.detach()] {
      return Tensors{norm.forward(sum)};
    });
  return sublayer.post_norm ? sublayer.post_norm->forward(y) : y;
}

void TransformerLayer::finish_step() {
  for (const Sublayer& sublayer : sublayers_)
    for (const SublayerMixer& m : sublayer.mixers) m.mixer->finish_step();
}

std::vector<tensor::Parameter*> TransformerLayer::parameters() {
  std::vector<tensor::Parameter*> all;
  for (const Sublayer& sublayer : sublayers_) {
    add_norm(all, sublayer.norm);
    for (const SublayerMixer& m : sublayer.mixers) m.mixer->add_parameters(all);
    add_norm(all, sublayer.post_norm);
  }
  add_norm(all, final_norm_);
  return all;
}

}  // namespace colonnade::layers
