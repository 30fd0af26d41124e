// See core_attention.h.
#include "colonnade/layers/core_attention.h"

#include "colonnade/layers/recompute.h"
#include "colonnade/layers/residual.h"
#include "colonnade/ops/attention.h"
#include "colonnade/tensor/kv_cache.h"

namespace colonnade::layers {

CoreAttention::CoreAttention(const config::Model& model, const Context& context, const Args& args)
    : again_(context.recompute.selects("core_attn")),
      layer_(args.layer),
      window_(model.window_size),
      first_head_(model.num_attention_heads / context.tp.size() * context.tp.rank()),
      all_heads_(model.num_attention_heads),
      scale_(args.scale),
      dropout_(model.attention_dropout),
      dropout_key_(dropout_stream(context.seed, args.name)) {}

at::Tensor CoreAttention::forward(ops::Qkv heads, const tensor::Pass& pass) const {
  if (!again_) return attend(std::move(heads), pass);
  return recompute({heads.q, heads.k, heads.v}, pass, [this](const Inputs& qkv, const tensor::Pass& now) {
    return attend({qkv[0], qkv[1], qkv[2]}, now);
  });
}

at::Tensor CoreAttention::attend(ops::Qkv heads, const tensor::Pass& pass) const {
  if (pass.cache != nullptr) std::tie(heads.k, heads.v) = pass.cache->append(layer_, heads.k, heads.v);
  ops::AttentionArgs args;
  args.scale = scale_;
  args.window = window_;
  args.mask = pass.batch.find("attention_mask");
  if (pass.training && dropout_ > 0) {
    args.dropout = dropout_;
    args.key.key = dropout_key_;
    args.key.samples = pass.batch.at("samples");
    args.key.sequence_length = heads.q.size(2);
    args.key.hidden_offset = first_head_;
    args.key.hidden_size = all_heads_;
  }
  return ops::attention(heads, args);
}

}  // namespace colonnade::layers
