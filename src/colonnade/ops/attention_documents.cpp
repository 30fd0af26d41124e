// Attention within documents, see attention.h: one tile after the other on the CPU and for what the CUDA
// kernel lacks, one call of LibTorch's variable-length flash kernel otherwise.
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>

#include <algorithm>

#include "colonnade/ops/attention_heads.h"
#include "colonnade/ops/autograd.h"
#include "colonnade/ops/launch.h"

namespace colonnade::ops {

Tensor tile_queries(const Tensor& x, const layout::AttentionTile& tile) {
  return x.narrow(0, tile.first_row, tile.rows).narrow(2, tile.first_query, tile.num_queries());
}

Qkv tile_heads(const Qkv& qkv, const layout::AttentionTile& tile) {
  const auto keys = [&](const Tensor& x) {
    return x.narrow(0, tile.first_row, tile.rows).narrow(2, tile.first_key, tile.num_keys());
  };
  return {tile_queries(qkv.q, tile), keys(qkv.k), keys(qkv.v)};
}

BlockMask tile_mask(const layout::AttentionTile& tile, std::int64_t window, at::Device device) {
  using Mask = layout::AttentionTile::Mask;
  BlockMask mask{.causal = tile.mask == Mask::kCausal, .queries = tile.queries, .keys = tile.keys};
  if (tile.mask != Mask::kWindow) return mask;
  const auto positions = [&](const layout::TokenSpan& span) {
    return at::arange(span.begin, span.begin + span.length, at::dtype(at::kLong).device(device));
  };
  const Tensor query = positions(tile.queries[0]).unsqueeze(1), key = positions(tile.keys[0]).unsqueeze(0);
  mask.masked = (key > query).logical_or_(key < query - window).view({1, 1, query.size(0), key.size(1)});
  return mask;
}

BlockArgs tile_args(const BlockArgs& args, const layout::AttentionTile& tile) {
  BlockArgs of_rows = args;
  if (args.dropout > 0) of_rows.key.samples = args.key.samples.narrow(0, tile.first_row, tile.rows);
  return of_rows;
}

namespace {

struct DocumentArgs {
  BlockArgs scores;
  layout::Documents documents;
  std::int64_t window = 0;
  Sinks sinks;
  Tensor cu_seqlens;  ///< int32 on the device
};

std::vector<layout::AttentionTile> document_tiles(const Tensor& q, const DocumentArgs& args) {
  const std::int64_t length = q.size(2);
  return layout::attention_tiles(layout::full_block(length),
                                 {q.size(0), length, args.documents, args.window});
}

Qkv padded_heads(const Qkv& heads, std::int64_t head_dim) {
  return {zero_padded(heads.q, head_dim), zero_padded(heads.k, head_dim), zero_padded(heads.v, head_dim)};
}

/// [s, b, n d] as [b, n, s, d].
Tensor heads_of(const Tensor& x_sbh, std::int64_t heads) {
  return x_sbh.unflatten(-1, {heads, x_sbh.size(-1) / heads}).permute({1, 2, 0, 3});
}

struct DocumentTilesFunction : torch::autograd::Function<DocumentTilesFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                        const MaybeTensor& /*sinks*/, const DocumentArgs& args) {
    const std::int64_t b = q.size(0), n = q.size(1), s = q.size(2), w = v.size(3);
    const std::int64_t head_dim = std::max(q.size(3), w);
    const Tensor result = at::empty({s, b, n * w}, q.options());
    const BlockOutput all{heads_of(result, n),
                          at::empty({b, n, s}, q.options().dtype(acc_type(q.scalar_type())))};
    for (const layout::AttentionTile& tile : document_tiles(q, args)) {
      const Qkv heads = padded_heads(tile_heads({q, k, v}, tile), head_dim);
      const BlockOutput out =
          attention_block(heads, tile_args(args.scores, tile), tile_mask(tile, args.window, q.device()));
      tile_queries(all.y, tile).copy_(out.y.narrow(3, 0, w));
      tile_queries(all.lse, tile).copy_(out.lse);
    }
    merge_sinks(all, args.sinks);
    ctx->save_for_backward({q, k, v, result, all.lse});
    save_value(ctx, args);
    return result;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const Tensor &q = saved[0], &k = saved[1], &v = saved[2];
    const auto args = saved_value<DocumentArgs>(ctx);
    const std::int64_t n = q.size(1), d = q.size(3), w = v.size(3), head_dim = std::max(d, w);
    const BlockOutput all{heads_of(saved[3], n), saved[4]};
    const Tensor grad_y = heads_of(grads[0], n);
    merge_sinks_backward(grad_y, all, args.sinks);
    // The tiles of a window share keys, whose gradients are summed in fp32.
    const auto type = args.window > 0 ? all.lse.scalar_type() : q.scalar_type();
    const Tensor grad_q = at::empty(q.sizes(), q.options());
    const Tensor grad_k = at::zeros(k.sizes(), k.options().dtype(type));
    const Tensor grad_v = at::zeros(v.sizes(), v.options().dtype(type));
    for (const layout::AttentionTile& tile : document_tiles(q, args)) {
      const Qkv heads = padded_heads(tile_heads({q, k, v}, tile), head_dim);
      const BlockOutput out{zero_padded(tile_queries(all.y, tile), head_dim), tile_queries(all.lse, tile)};
      const Qkv grad =
          attention_block_backward(zero_padded(tile_queries(grad_y, tile), head_dim), heads, out,
                                   tile_args(args.scores, tile), tile_mask(tile, args.window, q.device()));
      const Qkv into = tile_heads({grad_q, grad_k, grad_v}, tile);
      into.q.copy_(grad.q.narrow(3, 0, d));
      into.k.add_(grad.k.narrow(3, 0, d));
      into.v.add_(grad.v.narrow(3, 0, w));
    }
    return {grad_q, grad_k.to(k.scalar_type()), grad_v.to(v.scalar_type()), Tensor(), Tensor()};
  }
};

/// [b, n, s, d] as contiguous [b s, n, head_dim], and back to d channels.
Tensor packed(const Tensor& x_bnsd, std::int64_t head_dim) {
  return zero_padded(x_bnsd.transpose(1, 2).flatten(0, 1), head_dim).contiguous();
}
Tensor unpacked(const Tensor& x, std::int64_t rows, std::int64_t d) {
  return x.narrow(-1, 0, d).unflatten(0, {rows, x.size(0) / rows}).transpose(1, 2);
}
/// [b s, n, d] as one row [1, n, b s, d], the layout of its log-sum-exp.
Tensor one_row(const Tensor& x) { return x.transpose(0, 1).unsqueeze(0); }

struct VariableLengthFlashFunction : torch::autograd::Function<VariableLengthFlashFunction> {
  static std::optional<c10::SymInt> window_of(const DocumentArgs& args) {
    return args.window > 0 ? std::optional<c10::SymInt>(args.window) : std::nullopt;
  }

  static Tensor forward(AutogradContext* ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                        const MaybeTensor& /*sinks*/, const DocumentArgs& args) {
    const std::int64_t longest = args.documents.longest(), head_dim = std::max(q.size(3), v.size(3));
    const auto [y, lse, rng, unused, mask] = at::_flash_attention_forward_symint(
        packed(q, head_dim), packed(k, head_dim), packed(v, head_dim), args.cu_seqlens, args.cu_seqlens,
        longest, longest, 0.0, /*is_causal=*/true, /*return_debug_mask=*/false, args.scores.scale,
        window_of(args), args.window > 0 ? std::optional<c10::SymInt>(0) : std::nullopt);
    merge_sinks({one_row(y), lse.unsqueeze(0)}, args.sinks);
    ctx->save_for_backward({q, k, v, y, lse, rng, unused});
    save_value(ctx, args);
    return unpacked(y, q.size(0), v.size(3)).permute({2, 0, 1, 3}).reshape({q.size(2), q.size(0), -1});
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const Tensor &q = saved[0], &k = saved[1], &v = saved[2], &y = saved[3], &lse = saved[4];
    const auto args = saved_value<DocumentArgs>(ctx);
    const std::int64_t longest = args.documents.longest(), rows = q.size(0), d = q.size(3), w = v.size(3);
    const std::int64_t head_dim = std::max(d, w);
    const Tensor grad_y = packed(heads_of(grads[0], q.size(1)), head_dim);
    merge_sinks_backward(one_row(grad_y), {one_row(y), lse.unsqueeze(0)}, args.sinks);
    const auto [grad_q, grad_k, grad_v] = at::_flash_attention_backward_symint(
        grad_y, packed(q, head_dim), packed(k, head_dim), packed(v, head_dim), y, lse, args.cu_seqlens,
        args.cu_seqlens, longest, longest, 0.0, /*is_causal=*/true, saved[5], saved[6], args.scores.scale,
        window_of(args), args.window > 0 ? std::optional<c10::SymInt>(0) : std::nullopt);
    return {unpacked(grad_q, rows, d), unpacked(grad_k, rows, d), unpacked(grad_v, rows, w), Tensor(),
            Tensor()};
  }
};

bool has_variable_length_kernel(const Qkv& qkv, const DocumentArgs& args) {
  const auto type = qkv.q.scalar_type();
  const std::int64_t d = std::max(qkv.q.size(3), qkv.v.size(3));
  return qkv.q.is_cuda() && (type == at::kBFloat16 || type == at::kHalf) && d % 8 == 0 && d <= 256 &&
         args.cu_seqlens.defined() && args.scores.softcap == 0 && args.scores.dropout == 0;
}

}  // namespace

Tensor attention_within_documents(const Qkv& qkv, const AttentionArgs& args) {
  const DocumentArgs of{.scores = {.scale = args.scale * args.layer_scaling,
                                   .softcap = args.softcap,
                                   .dropout = args.dropout,
                                   .key = args.key},
                        .documents = args.documents,
                        .window = args.window,
                        .sinks = args.sinks,
                        .cu_seqlens = args.cu_seqlens};
  // The value of learned sinks tells autograd that they need a gradient.
  const MaybeTensor sinks = maybe(value_of(args.sinks.learned));
  if (has_variable_length_kernel(qkv, of))
    return VariableLengthFlashFunction::apply(qkv.q, qkv.k, qkv.v, sinks, of);
  return DocumentTilesFunction::apply(qkv.q, qkv.k, qkv.v, sinks, of);
}

}  // namespace colonnade::ops
