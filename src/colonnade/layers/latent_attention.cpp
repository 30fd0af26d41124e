// See latent_attention.h.
#include "colonnade/layers/latent_attention.h"

#include <cmath>

#include "colonnade/layers/mappings.h"

namespace colonnade::layers {
namespace {

double mla_softmax_scale(const config::Model& model) {
  const double scale = ops::yarn_mscale(model.rotary_scaling_factor, model.mscale_all_dim);
  return scale * scale / std::sqrt(static_cast<double>(model.kv_channels));
}

}  // namespace

LatentAttention::LatentAttention(const layout::LatentAttentionParams& params, const config::Model& model,
                                 const Context& context, std::shared_ptr<const ops::RotaryTable> rotary,
                                 std::int64_t layer)
    : proj(params.proj.weight, params.proj.bias, context),
      q_norm_(make_norm(params.q_norm, model, context)),
      q_up_(params.q_up.weight, params.q_up.bias, context),
      kv_down_(params.kv_down, context),
      kv_norm_(make_norm(params.kv_norm, model, context)),
      kv_up_(params.kv_up.weight, params.kv_up.bias, context),
      rotary_(std::move(rotary)),
      core_(model, context,
            {.layer = layer,
             .scale = mla_softmax_scale(model),
             .name = params.q_up.weight.name,
             .is_self_attention = true}),
      recompute_heads_(context.recompute.recomputes("mla_up_proj")),
      heads_(model.num_attention_heads / context.tp.size()),
      rank_(model.latent.kv_lora_rank),
      head_{model.latent.qk_head_dim, model.latent.qk_pos_emb_head_dim, model.latent.v_head_dim} {
  if (params.q_down) q_down_.emplace(*params.q_down, context);
}

LatentAttention::Latents LatentAttention::latents_of(const at::Tensor& normed) const {
  const auto normalize = [](const std::optional<Norm>& norm, const at::Tensor& x) {
    return norm ? norm->forward(x) : x;
  };
  const at::Tensor queries = q_down_ ? normalize(q_norm_, q_down_->forward(normed)) : normed;
  const at::Tensor both = kv_down_.forward(normed);
  const at::Tensor key =
      enter_tp_region(both.narrow(-1, rank_, head_.rope).contiguous(), kv_up_.tp, kv_up_.sequence_parallel);
  return {queries, normalize(kv_norm_, both.narrow(-1, 0, rank_).contiguous()), key};
}

ops::Qkv LatentAttention::heads_of(const Latents& latents, const at::Tensor& positions) const {
  const at::Tensor q = core_.layer_scaled(q_up_.forward(latents.queries));
  const at::Tensor kv = kv_up_.forward(latents.kv);
  return ops::latent_heads(q, kv, latents.key, heads_, head_, *rotary_, positions);
}

at::Tensor LatentAttention::forward(const MixerInput& x, const tensor::Pass& pass) {
  const Latents latents = latents_of(x.normed);
  const at::Tensor positions = positions_sb(pass);
  CoreAttention::RecomputeHeads recompute_heads;
  if (recompute_heads_) {
    const Latents saved{latents.queries.detach(), latents.kv.detach(), latents.key.detach()};
    recompute_heads = [this, saved, positions] { return heads_of(saved, positions); };
  }
  return proj.forward(core_.forward(heads_of(latents, positions), pass, recompute_heads));
}

void LatentAttention::add_parameters(std::vector<tensor::Parameter*>& all) const {
  if (q_down_) collect(all, {q_down_->weight.get()});
  if (q_norm_) collect(all, {q_norm_->weight.get(), q_norm_->bias.get()});
  collect(all, {q_up_.weight.get(), kv_down_.weight.get()});
  if (kv_norm_) collect(all, {kv_norm_->weight.get(), kv_norm_->bias.get()});
  collect(all, {kv_up_.weight.get(), proj.weight.get(), proj.bias.get()});
}

}  // namespace colonnade::layers
