// See latent_attention.h.
#include "colonnade/layers/latent_attention.h"

#include <cmath>

#include "colonnade/layers/regions.h"

namespace colonnade::layers {
namespace {

double score_scale(const config::Model& model) {
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
      core_(model, context, {layer, score_scale(model), params.q_up.weight.name}),
      heads_again_(context.recompute.selects("mla_up_proj")),
      heads_(model.num_attention_heads / context.tp.size()),
      rank_(model.latent.kv_lora_rank),
      head_{model.latent.qk_head_dim, model.latent.qk_pos_emb_head_dim, model.latent.v_head_dim} {
  if (params.q_down) q_down_.emplace(*params.q_down, context);
}

LatentAttention::Narrow LatentAttention::narrow_of(const at::Tensor& normed) const {
  const auto through = [](const std::optional<Norm>& norm, const at::Tensor& x) {
    return norm ? norm->forward(x) : x;
  };
  const at::Tensor queries = q_down_ ? through(q_norm_, q_down_->forward(normed)) : normed;
  const at::Tensor both = kv_down_.forward(normed);
  const at::Tensor key =
      for_all_heads(both.narrow(-1, rank_, head_.turned).contiguous(), kv_up_.tp, kv_up_.sequence_parallel);
  return {queries, through(kv_norm_, both.narrow(-1, 0, rank_).contiguous()), key};
}

ops::Qkv LatentAttention::heads_of(const Narrow& narrow, const at::Tensor& positions) const {
  const at::Tensor q = core_.divided(q_up_.forward(narrow.queries));
  const at::Tensor kv = kv_up_.forward(narrow.vectors);
  return ops::latent_heads(q, kv, narrow.key, heads_, head_, *rotary_, positions);
}

at::Tensor LatentAttention::forward(const at::Tensor& normed, const tensor::Pass& pass) const {
  const Narrow narrow = narrow_of(normed);
  const at::Tensor positions = positions_sb(pass);
  CoreAttention::HeadsAgain again;
  if (heads_again_) {
    const Narrow kept{narrow.queries.detach(), narrow.vectors.detach(), narrow.key.detach()};
    again = [this, kept, positions] { return heads_of(kept, positions); };
  }
  return proj.forward(core_.forward(heads_of(narrow, positions), pass, again));
}

void LatentAttention::add_parameters(std::vector<tensor::Parameter*>& all) const {
  if (q_down_) collect(all, {q_down_->weight.get()});
  if (q_norm_) collect(all, {q_norm_->weight.get(), q_norm_->bias.get()});
  collect(all, {q_up_.weight.get(), kv_down_.weight.get()});
  if (kv_norm_) collect(all, {kv_norm_->weight.get(), kv_norm_->bias.get()});
  collect(all, {kv_up_.weight.get(), proj.weight.get(), proj.bias.get()});
}

}  // namespace colonnade::layers
