// See cross_attention.h.
#include "colonnade/layers/cross_attention.h"

#include "colonnade/layers/attention.h"

namespace colonnade::layers {
namespace {

/// [s, b, n d] -> [b, n, s, d].
at::Tensor heads_of(const at::Tensor& x, std::int64_t head_dim) {
  return x.unflatten(-1, {x.size(-1) / head_dim, head_dim}).permute({1, 2, 0, 3}).contiguous();
}

}  // namespace

CrossAttention::CrossAttention(const layout::CrossAttentionParams& params, const config::Model& model,
                               const Context& context, std::int64_t layer)
    : q(params.q.weight, params.q.bias, context),
      kv(params.kv.weight, params.kv.bias, context),
      proj(params.proj.weight, params.proj.bias, context),
      core_(model, context,
            {.layer = layer,
             .scale = softmax_scale(model),
             .name = params.q.weight.name,
             .causal = false,
             .padding = tensor::Field::kEncoderPadding}),
      head_dim_(model.kv_channels) {}

at::Tensor CrossAttention::forward(const MixerInput& x, const tensor::Pass& pass) {
  const at::Tensor queries = core_.layer_scaled(heads_of(q.forward(x.normed), head_dim_));
  const auto both = kv.forward(x.encoded.to(x.normed.scalar_type())).chunk(2, -1);
  return proj.forward(
      core_.forward({queries, heads_of(both[0], head_dim_), heads_of(both[1], head_dim_)}, pass));
}

void CrossAttention::add_parameters(std::vector<tensor::Parameter*>& all) const {
  collect(all,
          {q.weight.get(), q.bias.get(), kv.weight.get(), kv.bias.get(), proj.weight.get(), proj.bias.get()});
}

}  // namespace colonnade::layers
