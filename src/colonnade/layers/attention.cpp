// See attention.h.
#include "colonnade/layers/attention.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "colonnade/ops/clip.h"
#include "colonnade/ops/output_gate.h"

namespace colonnade::layers {

double softmax_scale(const config::Model& model) {
  const auto head_dim = static_cast<double>(model.kv_channels);
  if (model.use_mup && !model.query_pre_attn_scalar)
    return std::sqrt(model.mup_base_head_dim.value_or(1)) / std::pow(head_dim, model.mup_attn_scale_power);
  return 1.0 / std::sqrt(model.query_pre_attn_scalar.value_or(head_dim));
}

Attention::Attention(const layout::AttentionParams& params, const config::Model& model,
                     const Context& context, std::shared_ptr<const ops::RotaryTable> rotary,
                     std::int64_t layer, const MaskSpec& mask_spec)
    : qkv(params.qkv.weight, params.qkv.bias, context),
      proj(params.proj.weight, params.proj.bias, context),
      q_norm_(model.qk_norm_across_heads ? std::nullopt : make_norm(params.q_norm, model, context)),
      k_norm_(model.qk_norm_across_heads ? std::nullopt : make_norm(params.k_norm, model, context)),
      norms_after_rotary_(model.qk_norm_after_rope),
      clip_(model.clip_qkv),
      l2_norm_epsilon_(model.qk_l2_norm ? std::optional(model.norm_epsilon) : std::nullopt),
      rotary_(std::move(rotary)),
      core_(model, context,
            {layer, softmax_scale(model), params.qkv.weight.name, params.sinks, mask_spec.causal,
             mask_spec.padding, mask_spec.bias, /*is_self_attention=*/true}),
      heads_(model.num_attention_heads / context.tp.size()),
      groups_(std::max<std::int64_t>(1, model.num_query_groups / context.tp.size())),
      head_dim_(model.kv_channels),
      output_gate_(model.attention_output_gate) {
  if (model.qk_norm_across_heads && params.q_norm)
    heads_norm_.emplace(*params.q_norm, *params.k_norm, model, context);
}

at::Tensor Attention::normed(const at::Tensor& x, const std::optional<Norm>& norm) const {
  return norm ? norm->forward(x) : ops::rms_norm(x, *l2_norm_epsilon_);
}

ops::GatedQkv Attention::split_heads(const at::Tensor& fused, const tensor::Pass& pass) const {
  const at::Tensor positions = positions_sb(pass);
  const bool has_norms = q_norm_ || l2_norm_epsilon_;
  const bool rotates_later = has_norms && !norms_after_rotary_;
  const ops::RotaryTable* table = rotates_later ? nullptr : rotary_.get();
  ops::GatedQkv split =
      output_gate_
          ? ops::split_gated_rotary(fused, heads_, groups_, head_dim_, table, positions)
          : ops::GatedQkv{ops::split_rotary(fused, heads_, groups_, head_dim_, table, positions), {}};
  ops::Qkv& heads = split.heads;
  if (!has_norms) {
    heads.q = core_.layer_scaled(heads.q);
    return split;
  }
  const auto norm_and_rotate = [&](const at::Tensor& x_bnsd, const std::optional<Norm>& norm) {
    const at::Tensor y = normed(x_bnsd, norm);
    if (!rotary_ || !rotates_later) return y;
    return ops::rotary(y.permute({2, 0, 1, 3}).contiguous(), *rotary_, positions)
        .permute({1, 2, 0, 3})
        .contiguous();
  };
  heads.q = core_.layer_scaled(norm_and_rotate(heads.q, q_norm_));
  heads.k = norm_and_rotate(heads.k, k_norm_);
  return split;
}

at::Tensor Attention::forward(const MixerInput& x, const tensor::Pass& pass) {
  at::Tensor fused = qkv.forward(x.normed);
  if (heads_norm_) fused = heads_norm_->forward(fused);
  if (clip_ > 0) fused = ops::clip(fused, clip_);
  ops::GatedQkv split = split_heads(fused, pass);
  const at::Tensor y = core_.forward(std::move(split.heads), pass);
  return proj.forward(output_gate_ ? ops::output_gate(y, split.gate) : y);
}

void Attention::add_parameters(std::vector<tensor::Parameter*>& all) const {
  collect(all, {qkv.weight.get(), qkv.bias.get()});
  add_norm(all, q_norm_);
  add_norm(all, k_norm_);
  if (heads_norm_) collect(all, {heads_norm_->q_weight.get(), heads_norm_->k_weight.get()});
  collect(all, {core_.sinks.get(), proj.weight.get(), proj.bias.get()});
}

}  // namespace colonnade::layers
