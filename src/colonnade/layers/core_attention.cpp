// See core_attention.h.
#include "colonnade/layers/core_attention.h"

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <limits>

#include "colonnade/base/error.h"
#include "colonnade/layers/context_parallel/blockwise_attention.h"
#include "colonnade/layers/context_parallel/ulysses.h"
#include "colonnade/layers/recompute.h"
#include "colonnade/layers/residual.h"
#include "colonnade/layout/layer_kind.h"
#include "colonnade/layout/params/gpt.h"
#include "colonnade/ops/attention.h"
#include "colonnade/tensor/dtypes.h"
#include "colonnade/tensor/kv_cache.h"

namespace colonnade::layers {
namespace {

/// Padding of keys [b, t] as a mask [b, 1, queries, t].
at::Tensor key_mask(const at::Tensor& padding, std::int64_t queries) {
  if (!padding.defined()) return padding;
  return padding.view({padding.size(0), 1, 1, padding.size(1)})
      .expand({padding.size(0), 1, queries, padding.size(1)});
}

/// Zero-pads the last dimension, which changes no dot product.
at::Tensor pad_channels(const at::Tensor& x, std::int64_t to) {
  return x.size(-1) == to ? x : at::constant_pad_nd(x, {0, to - x.size(-1)});
}

constexpr double kNoScore = -std::numeric_limits<double>::infinity();

/// Accumulator of the largest score of each head of q [b, n, s, d].
at::Tensor no_scores(const at::Tensor& q) {
  return at::full({q.size(1)}, kNoScore, q.options().dtype(tensor::acc_type(q.scalar_type())));
}

Tensors to_list(const ops::Qkv& heads) { return {heads.q, heads.k, heads.v}; }

}  // namespace

CoreAttention::CoreAttention(const config::Model& model, const Context& context, const Args& args)
    : sinks(context.make(args.sinks)),
      recompute_(context.recompute.recomputes("core_attn")),
      causal_(args.causal),
      padding_(args.padding),
      bias_(args.bias),
      cp_groups_(cp_groups(context.cp, args.layer)),
      name_(args.name),
      layer_(args.layer),
      window_(layout::attention_window(model, args.layer)),
      first_head_(model.num_attention_heads / context.tp.size() * context.tp.rank()),
      all_heads_(model.num_attention_heads),
      scale_(args.scale),
      layer_scaling_(model.apply_query_key_layer_scaling ? static_cast<double>(model.layer_number(args.layer))
                                                         : 1.0),
      softcap_(model.attn_logit_softcapping),
      dropout_(model.attention_dropout),
      sink_at_zero_(model.softmax_type == config::SoftmaxType::kOffByOne),
      tracks_max_logits_(context.track_max_logits && args.is_self_attention &&
                         args.layer < model.total_layers()),
      dropout_key_(dropout_stream(context.seed, args.name)) {}

at::Tensor CoreAttention::layer_scaled(const at::Tensor& q) const {
  return layer_scaling_ == 1 ? q : q.div(layer_scaling_);
}

std::map<int, CoreAttention::CpGroups> CoreAttention::cp_groups(const ContextParallelGroups& cp,
                                                                std::int64_t layer) {
  const auto single_level = [](const comm::Group& group,
                               const layout::LayerContextParallel& kind) -> CpGroups {
    if (kind.ring == 1) return {.heads = group, .ring = {}};
    return {.heads = {}, .ring = group, .all_gather = kind.gathers};
  };
  std::map<int, CpGroups> all;
  for (const auto& [size, group] : cp.by_size)
    all[size] = single_level(group, layout::context_layer(cp.parallel, layer, size));
  if (!all.empty()) return all;
  if (cp.all.size() == 1) return {{0, {}}};
  const layout::LayerContextParallel kind = layout::context_layer(cp.parallel, layer);
  const bool two_levels = kind.heads > 1 && kind.ring > 1;
  return {{0, two_levels ? CpGroups{.heads = cp.a2a, .ring = cp.p2p} : single_level(cp.all, kind)}};
}

const CoreAttention::CpGroups& CoreAttention::cp_groups(const tensor::Pass& pass) const {
  const auto found = cp_groups_.find(pass.batch.share().ranks);
  COL_CHECK(found != cp_groups_.end(),
            "{}: batch must name the number of ranks that share it with, and only with, hybrid context "
            "parallelism; got {}; make it with job::sequence_batch",
            name_, pass.batch.share().ranks);
  return found->second;
}

at::Tensor CoreAttention::forward(ops::Qkv heads, const tensor::Pass& pass,
                                  const RecomputeHeads& recompute_heads) const {
  if (pass.cache != nullptr) std::tie(heads.k, heads.v) = pass.cache->append(layer_, heads.k, heads.v);
  if (!recompute_) return context_parallel_attention(std::move(heads), pass, recompute_heads);
  const at::Tensor y =
      recompute({heads.q, heads.k, heads.v}, pass, [this](const Tensors& qkv, const tensor::Pass& now) {
        return context_parallel_attention({qkv[0], qkv[1], qkv[2]}, now, {});
      });
  if (recompute_heads)
    discard_and_recompute(to_list(heads), y, [recompute_heads] { return to_list(recompute_heads()); });
  return y;
}

ops::Qkv CoreAttention::exchange_heads(ops::Qkv heads, const CpGroups& group) const {
  if (group.heads.size() * group.ring.size() == 1) return heads;
  const std::int64_t padded = std::max(heads.q.size(3), heads.v.size(3));
  heads = {pad_channels(heads.q, padded), pad_channels(heads.k, padded), pad_channels(heads.v, padded)};
  return group.heads.size() == 1 ? heads : sequence_to_head_shards(std::move(heads), group.heads, name_);
}

at::Tensor CoreAttention::context_parallel_attention(ops::Qkv heads, const tensor::Pass& pass,
                                                     const RecomputeHeads& recompute_heads) const {
  const CpGroups& group = cp_groups(pass);
  const std::int64_t n = heads.q.size(1), width = heads.v.size(3);
  heads = exchange_heads(std::move(heads), group);
  at::Tensor y = attend(heads, group, pass);
  if (recompute_heads)
    discard_and_recompute(to_list(heads), y, [this, &group, recompute_heads] {
      return to_list(exchange_heads(recompute_heads(), group));
    });
  const std::int64_t padded = heads.v.size(3);
  if (group.heads.size() > 1) y = head_to_sequence_shards(y, group.heads, name_);
  return width == padded ? y : y.unflatten(-1, {n, padded}).narrow(-1, 0, width).flatten(-2);
}

at::Tensor CoreAttention::attend(const ops::Qkv& heads, const CpGroups& group,
                                 const tensor::Pass& pass) const {
  const std::int64_t first = group.heads.rank() * heads.q.size(1);
  const ops::Sinks own_sinks{sinks.get(), first, sink_at_zero_};
  const double dropout = pass.training ? dropout_ : 0;
  const std::int64_t length = std::max(heads.q.size(2), heads.k.size(2)) * group.ring.size();
  const ops::DropoutKey key =
      dropout > 0 ? attention_dropout_key(pass, length, first_head_ + first) : ops::DropoutKey();
  if (group.ring.size() > 1) {
    BlockwiseArgs blockwise{
        .group = group.ring,
        .all_gather = group.all_gather,
        .scores = {.scale = scale_ * layer_scaling_, .softcap = softcap_, .dropout = dropout, .key = key},
        .documents = pass.batch.documents(),
        .window = window_,
        .sinks = own_sinks,
        .name = name_};
    if (measures_scores(pass)) blockwise.max_scores = no_scores(heads.q);
    const at::Tensor y = blockwise_attention(heads, blockwise);
    if (measures_scores(pass)) report_scores(blockwise.max_scores, first_head_ + first, pass);
    return y;
  }
  if (measures_scores(pass)) report_scores(max_scores(heads, pass), first_head_ + first, pass);
  ops::AttentionArgs args;
  args.scale = scale_;
  args.layer_scaling = layer_scaling_;
  args.window = window_;
  args.softcap = softcap_;
  args.sinks = own_sinks;
  if (padding_) args.mask = key_mask(pass.batch.find(*padding_), heads.q.size(2));
  args.causal = causal_;
  if (causal_ && pass.batch.documents().any()) {
    args.documents = pass.batch.documents();
    args.cu_seqlens = pass.batch.find(tensor::Field::kCuSeqlens);
  }
  if (bias_.table != nullptr)
    args.bias = ops::relative_bias(*bias_.table, heads.q.size(2), heads.k.size(2), bias_.distances);
  args.dropout = dropout;
  args.key = key;
  return ops::attention(heads, args);
}

at::Tensor CoreAttention::max_scores(const ops::Qkv& heads, const tensor::Pass& pass) const {
  const ops::BlockArgs args{.scale = scale_ * layer_scaling_};
  const at::Tensor padding = padding_ ? pass.batch.find(*padding_) : at::Tensor();
  if (!causal_ || heads.q.is_meta())
    return ops::max_scores(heads, args, {.causal = causal_, .masked = key_mask(padding, heads.q.size(2))});
  at::Tensor most = no_scores(heads.q);
  const layout::AttentionBounds bounds{heads.q.size(0), heads.q.size(2), pass.batch.documents(), window_};
  for (const layout::AttentionTile& tile :
       layout::attention_tiles(layout::full_block(heads.q.size(2)), bounds))
    most = at::maximum(most, ops::max_scores(ops::tile_heads(heads, tile), args,
                                             ops::tile_mask(tile, window_, heads.q.device())));
  return most;
}

void CoreAttention::report_scores(const at::Tensor& scores, std::int64_t first,
                                  const tensor::Pass& pass) const {
  const at::Tensor all = at::full({all_heads_}, kNoScore, scores.options());
  all.narrow(0, first, scores.size(0)).copy_(scores);
  tensor::raise_max_attention_logits(*pass.report, layer_, all);
}

ops::DropoutKey CoreAttention::attention_dropout_key(const tensor::Pass& pass, std::int64_t length,
                                                     std::int64_t first_head) const {
  const tensor::SequenceShare& share = pass.batch.share();
  return {.key = dropout_key_,
          .samples = pass.batch.at(tensor::Field::kSamples),
          .begin = share.begin,
          .sequence_length = share.ranks > 0 ? share.sample : length,
          .hidden_offset = first_head,
          .hidden_size = all_heads_};
}

at::Tensor positions_sb(const tensor::Pass& pass) {
  const at::Tensor given = pass.batch.find(tensor::Field::kPositionIds);
  return given.defined() ? given.t().contiguous() : at::Tensor();
}

}  // namespace colonnade::layers
