// See core_attention.h.
#include "colonnade/layers/core_attention.h"

#include <ATen/ops/constant_pad_nd.h>

#include <algorithm>

#include "colonnade/base/error.h"
#include "colonnade/layers/context_parallel/blocks.h"
#include "colonnade/layers/context_parallel/heads.h"
#include "colonnade/layers/recompute.h"
#include "colonnade/layers/residual.h"
#include "colonnade/layout/params/gpt.h"
#include "colonnade/ops/attention.h"
#include "colonnade/tensor/kv_cache.h"

namespace colonnade::layers {
namespace {

/// Of keys that no query sees, the same for all of them.
at::Tensor for_each_query(const at::Tensor& mask, std::int64_t queries) {
  if (!mask.defined() || mask.dim() == 4) return mask;
  return mask.view({mask.size(0), 1, 1, mask.size(1)}).expand({mask.size(0), 1, queries, mask.size(1)});
}

/// The last dimension filled up with zeros, which no sum of products sees.
at::Tensor filled(const at::Tensor& x, std::int64_t to) {
  return x.size(-1) == to ? x : at::constant_pad_nd(x, {0, to - x.size(-1)});
}

Tensors all_of(const ops::Qkv& heads) { return {heads.q, heads.k, heads.v}; }

}  // namespace

CoreAttention::CoreAttention(const config::Model& model, const Context& context, const Args& args)
    : sinks(context.make(args.sinks)),
      again_(context.recompute.selects("core_attn")),
      causal_(args.causal),
      mask_(args.mask),
      bias_(args.bias),
      across_(across(context.cp, args.layer)),
      name_(args.name),
      layer_(args.layer),
      window_(layout::window_of(model, args.layer)),
      first_head_(model.num_attention_heads / context.tp.size() * context.tp.rank()),
      all_heads_(model.num_attention_heads),
      scale_(args.scale),
      layer_scaling_(model.apply_query_key_layer_scaling ? static_cast<double>(model.layer_number(args.layer))
                                                         : 1.0),
      softcap_(model.attn_logit_softcapping),
      dropout_(model.attention_dropout),
      sink_at_zero_(model.softmax_type == config::SoftmaxType::kOffByOne),
      dropout_key_(dropout_stream(context.seed, args.name)) {}

at::Tensor CoreAttention::divided(const at::Tensor& q) const {
  return layer_scaling_ == 1 ? q : q.div(layer_scaling_);
}

std::map<int, CoreAttention::Across> CoreAttention::across(const ContextRanks& cp, std::int64_t layer) {
  const auto of_one_level = [](const comm::Group& group, const layout::ContextLayer& kind) -> Across {
    if (kind.ring == 1) return {.heads = group, .ring = {}};
    return {.heads = {}, .ring = group, .gathers = kind.gathers};
  };
  std::map<int, Across> all;
  for (const auto& [size, group] : cp.by_size)
    all[size] = of_one_level(group, layout::context_layer(cp.exchange, layer, size));
  if (!all.empty()) return all;
  if (cp.all.size() == 1) return {{0, {}}};
  const layout::ContextLayer kind = layout::context_layer(cp.exchange, layer);
  const bool two_levels = kind.heads > 1 && kind.ring > 1;
  return {{0, two_levels ? Across{.heads = cp.heads, .ring = cp.rings} : of_one_level(cp.all, kind)}};
}

const CoreAttention::Across& CoreAttention::across(const tensor::Pass& pass) const {
  const auto found = across_.find(pass.batch.share().ranks);
  COL_CHECK(
      found != across_.end(),
      "{}: a batch must say how many ranks share it where layers have groups of several sizes, and only "
      "there; got {}; make it with job::sequence_batch",
      name_, pass.batch.share().ranks);
  return found->second;
}

at::Tensor CoreAttention::forward(ops::Qkv heads, const tensor::Pass& pass, const HeadsAgain& again) const {
  if (pass.cache != nullptr) std::tie(heads.k, heads.v) = pass.cache->append(layer_, heads.k, heads.v);
  if (!again_) return exchange_and_attend(std::move(heads), pass, again);
  const at::Tensor y =
      recompute({heads.q, heads.k, heads.v}, pass, [this](const Tensors& qkv, const tensor::Pass& now) {
        return exchange_and_attend({qkv[0], qkv[1], qkv[2]}, now, {});
      });
  if (again) make_again(all_of(heads), y, [again] { return all_of(again()); });
  return y;
}

ops::Qkv CoreAttention::exchanged(ops::Qkv heads, const Across& group) const {
  if (group.heads.size() * group.ring.size() == 1) return heads;
  const std::int64_t wide = std::max(heads.q.size(3), heads.v.size(3));
  heads = {filled(heads.q, wide), filled(heads.k, wide), filled(heads.v, wide)};
  return group.heads.size() == 1 ? heads : heads_for_positions(std::move(heads), group.heads, name_);
}

at::Tensor CoreAttention::exchange_and_attend(ops::Qkv heads, const tensor::Pass& pass,
                                              const HeadsAgain& again) const {
  const Across& group = across(pass);
  const std::int64_t n = heads.q.size(1), width = heads.v.size(3);
  heads = exchanged(std::move(heads), group);
  at::Tensor y = attend(heads, group, pass);
  if (again)
    make_again(all_of(heads), y, [this, &group, again] { return all_of(exchanged(again(), group)); });
  const std::int64_t wide = heads.v.size(3);
  if (group.heads.size() > 1) y = positions_for_heads(y, group.heads, name_);
  return width == wide ? y : y.unflatten(-1, {n, wide}).narrow(-1, 0, width).flatten(-2);
}

at::Tensor CoreAttention::attend(const ops::Qkv& heads, const Across& group, const tensor::Pass& pass) const {
  const at::Tensor mask = for_each_query(pass.batch.find(mask_), heads.q.size(2));
  const std::int64_t first = group.heads.rank() * heads.q.size(1);
  const ops::Sinks own_sinks{sinks.get(), first, sink_at_zero_};
  const double dropout = pass.training ? dropout_ : 0;
  const std::int64_t length = std::max(heads.q.size(2), heads.k.size(2)) * group.ring.size();
  const ops::DropoutKey key =
      dropout > 0 ? key_of_dropped(pass, length, first_head_ + first) : ops::DropoutKey();
  if (group.ring.size() > 1)
    return attention_in_blocks(
        heads, mask,
        {.group = group.ring,
         .gathers = group.gathers,
         .scores = {.scale = scale_ * layer_scaling_, .softcap = softcap_, .dropout = dropout, .key = key},
         .window = window_,
         .sinks = own_sinks,
         .name = name_});
  ops::AttentionArgs args;
  args.scale = scale_;
  args.layer_scaling = layer_scaling_;
  args.window = window_;
  args.softcap = softcap_;
  args.sinks = own_sinks;
  args.mask = mask;
  args.causal = causal_;
  if (bias_.table != nullptr)
    args.bias = ops::relative_bias(*bias_.table, heads.q.size(2), heads.k.size(2), bias_.distances);
  args.dropout = dropout;
  args.key = key;
  return ops::attention(heads, args);
}

ops::DropoutKey CoreAttention::key_of_dropped(const tensor::Pass& pass, std::int64_t length,
                                              std::int64_t first_head) const {
  const tensor::Share& share = pass.batch.share();
  return {.key = dropout_key_,
          .samples = pass.batch.at("samples"),
          .begin = share.begin,
          .sequence_length = share.ranks > 0 ? share.sample : length,
          .hidden_offset = first_head,
          .hidden_size = all_heads_};
}

at::Tensor positions_sb(const tensor::Pass& pass) {
  const at::Tensor given = pass.batch.find("position_ids");
  return given.defined() ? given.t().contiguous() : at::Tensor();
}

}  // namespace colonnade::layers
