// See blockwise_attention.h. Keys of other ranks arrive by p2p around a ring or by all-gather.
#include "colonnade/layers/context_parallel/blockwise_attention.h"

#include <ATen/ATen.h>

#include <limits>
#include <optional>
#include <vector>

#include "colonnade/layers/context_parallel/zigzag_order.h"
#include "colonnade/layout/context_parallel.h"
#include "colonnade/ops/attention.h"
#include "colonnade/tensor/saved_value.h"

namespace colonnade::layers {
namespace {

using at::Tensor;
using layout::AttentionBlock;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Full length of the sequences of which `qkv` is this rank's shard, and the ranks that share them.
struct SequenceSplit {
  SequenceSplit(const ops::Qkv& qkv, const comm::Group& group)
      : rank(group.rank()), ranks(group.size()), length(qkv.q.size(2) * group.size()) {}
  int rank, ranks;
  std::int64_t length;  ///< full sequence length

  /// This rank's queries with rank `owner`'s keys in that rank's order.
  [[nodiscard]] AttentionBlock with(int owner) const {
    return layout::attention_block(length, rank, owner, ranks);
  }
  /// This rank's queries with all other ranks' keys in sequence order.
  [[nodiscard]] std::vector<AttentionBlock> remote_meetings() const {
    return layout::remote_attention_blocks(length, rank, ranks);
  }
};

/// Sends a buffer to the next rank of the ring and receives that of the previous rank.
class RingTransfer {
 public:
  RingTransfer(const comm::Group& ring, int tag, std::string name)
      : ring_(&ring), tag_(tag), name_(std::move(name)) {}
  void start(const Tensor& buffer) {
    received_ = at::empty_like(buffer);
    const int k = ring_->size(), rank = ring_->rank();
    const auto send = [&] { sending_ = ring_->send(buffer, (rank + 1) % k, tag_, name_); };
    const auto receive = [&] { receiving_ = ring_->recv(received_, (rank + k - 1) % k, tag_, name_); };
    // NCCL's first message between two ranks may block both until the peer posts: even ranks send first.
    if (layout::sends_first(rank)) send();
    receive();
    if (!layout::sends_first(rank)) send();
  }
  Tensor wait() {
    receiving_.wait();
    sending_.wait();
    return std::move(received_);
  }

 private:
  const comm::Group* ring_;
  int tag_;
  std::string name_;
  Tensor received_;
  comm::Work sending_, receiving_;
};

constexpr int kKeys = 0, kKeyGradients = 1;  // tags

/// All-gather [2, b, g, s, d] -> [2, b, g, k s, d] in sequence order.
Tensor gather_kv(const Tensor& kv, const BlockwiseArgs& args, const char* what) {
  auto shape = kv.sizes().vec();
  const std::int64_t k = args.group.size(), l = shape[0] * shape[1] * shape[2];
  Tensor parts = at::empty({k, l, shape[3], shape[4]}, kv.options());
  args.group.all_gather(parts, kv.view({1, l, shape[3], shape[4]}), args.name + what).wait();
  shape[3] *= k;
  return sequence_order(parts).view(shape);
}

/// Tiles of a block of `q` [b, n, s, d], a shard of full sequences. On meta the block, the largest tile.
std::vector<layout::AttentionTile> tiles_of(const AttentionBlock& block, const Tensor& q,
                                            const BlockwiseArgs& args) {
  if (q.is_meta()) return layout::attention_tiles(block, {.rows = q.size(0)});
  return layout::attention_tiles(block,
                                 {q.size(0), q.size(2) * args.group.size(), args.documents, args.window});
}

ops::BlockOutput tile_output(const ops::BlockOutput& total, const layout::AttentionTile& tile) {
  return {ops::tile_queries(total.y, tile), ops::tile_queries(total.lse, tile)};
}

/// Accumulates output and log-sum-exp over tiles.
class Forward {
 public:
  Forward(const Tensor& q, const BlockwiseArgs& args) : q_(q), args_(args) {}

  /// Adds the block's attention to keys and values [2, b, g, t, d].
  void add_block(const AttentionBlock& m, const Tensor& kv) {
    for (const layout::AttentionTile& tile : tiles_of(m, q_, args_)) {
      const ops::Qkv heads = ops::tile_heads({q_, kv[0], kv[1]}, tile);
      const ops::BlockMask mask = ops::tile_mask(tile, args_.window, q_.device());
      if (args_.max_scores.defined())
        args_.max_scores.copy_(at::maximum(args_.max_scores, ops::max_scores(heads, args_.scores, mask)));
      add_tile(tile, ops::attention_block(heads, ops::tile_args(args_.scores, tile), mask));
    }
  }
  [[nodiscard]] ops::BlockOutput total() const {
    ops::merge_sinks(total_, args_.sinks);
    return {total_.y.to(q_.scalar_type()), total_.lse};
  }

 private:
  void add_tile(const layout::AttentionTile& tile, const ops::BlockOutput& out) {
    if (!total_.y.defined()) {
      if (out.lse.size(0) == q_.size(0) && out.lse.size(2) == q_.size(2)) {
        total_ = {out.y.to(out.lse.scalar_type()), out.lse};
        return;
      }
      start(out.lse.options());
    }
    ops::merge_block(tile_output(total_, tile), out);
  }
  /// Attention to no keys yet.
  void start(const at::TensorOptions& options) {
    total_ = {at::zeros(q_.sizes(), options),
              at::full(q_.sizes().slice(0, 3), -std::numeric_limits<double>::infinity(), options)};
  }

  const Tensor& q_;
  const BlockwiseArgs& args_;
  ops::BlockOutput total_;
};

ops::BlockOutput forward(const ops::Qkv& qkv, const BlockwiseArgs& args) {
  const SequenceSplit split(qkv, args.group);
  Forward sum(qkv.q, args);
  Tensor kv = at::stack({qkv.k, qkv.v});
  if (args.all_gather) {
    sum.add_block(split.with(split.rank), kv);
    const Tensor all = gather_kv(kv, args, " / keys and values");
    for (const AttentionBlock& m : split.remote_meetings()) sum.add_block(m, all);
    return sum.total();
  }
  RingTransfer keys(args.group, kKeys, args.name + " / keys and values");
  for (int step = 0; step < split.ranks; ++step) {
    const bool has_next = step + 1 < split.ranks;
    if (has_next) keys.start(kv);
    sum.add_block(split.with((split.rank - step + split.ranks) % split.ranks), kv);
    if (has_next) kv = keys.wait();
  }
  return sum.total();
}

/// Accumulates gradients tile by tile.
class Backward {
 public:
  Backward(const Tensor& grad_y, const Tensor& q, const ops::BlockOutput& total, const BlockwiseArgs& args)
      : grad_y_(grad_y),
        q_(q),
        total_(total),
        args_(args),
        grad_q_(at::zeros(q.sizes(), total.lse.options())) {}

  /// Adds to grad_kv [2, b, g, t, d].
  void add_block(const AttentionBlock& m, const Tensor& kv, const Tensor& grad_kv) {
    for (const layout::AttentionTile& tile : tiles_of(m, q_, args_)) {
      const ops::Qkv grads = ops::attention_block_backward(
          ops::tile_queries(grad_y_, tile), ops::tile_heads({q_, kv[0], kv[1]}, tile),
          tile_output(total_, tile), ops::tile_args(args_.scores, tile),
          ops::tile_mask(tile, args_.window, q_.device()));
      const ops::Qkv into = ops::tile_heads({grad_q_, grad_kv[0], grad_kv[1]}, tile);
      into.q.add_(grads.q);
      into.k.add_(grads.k);
      into.v.add_(grads.v);
    }
  }
  [[nodiscard]] Tensor grad_q() const { return grad_q_.to(q_.scalar_type()); }

 private:
  const Tensor& grad_y_;
  const Tensor& q_;
  const ops::BlockOutput& total_;
  const BlockwiseArgs& args_;
  Tensor grad_q_;
};

/// Repeats the all-gather of keys and values and reduce-scatters their gradients.
Tensor backward_all_gather(Backward& grads, const SequenceSplit& split, const Tensor& kv,
                           const Tensor& grad_kv, const BlockwiseArgs& args) {
  grads.add_block(split.with(split.rank), kv, grad_kv);
  const Tensor all = gather_kv(kv, args, " / keys and values again");
  const Tensor grad_all = at::zeros(all.sizes(), grad_kv.options());
  for (const AttentionBlock& m : split.remote_meetings()) grads.add_block(m, all, grad_all);
  const std::int64_t l = all.size(0) * all.size(1) * all.size(2);
  Tensor sum = at::empty(kv.sizes(), grad_kv.options());
  args.group
      .reduce_scatter(sum.view({1, l, kv.size(3), kv.size(4)}),
                      rank_order(grad_all.view({l, all.size(3), all.size(4)}), split.ranks),
                      args.name + " / gradients of keys and values")
      .wait();
  return sum.add_(grad_kv);
}

/// Sends keys and values around the ring again; their gradients follow one step later and end on their owner.
Tensor backward_ring(Backward& grads, const SequenceSplit& split, Tensor kv, Tensor grad_kv,
                     const BlockwiseArgs& args) {
  RingTransfer keys(args.group, kKeys, args.name + " / keys and values again");
  RingTransfer gradients(args.group, kKeyGradients, args.name + " / gradients of keys and values");
  for (int step = 0; step < split.ranks; ++step) {
    const bool has_next = step + 1 < split.ranks;
    if (has_next) keys.start(kv);
    const Tensor own = step == 0 ? grad_kv : at::zeros_like(grad_kv);
    grads.add_block(split.with((split.rank - step + split.ranks) % split.ranks), kv, own);
    gradients.start(step == 0 ? own : gradients.wait().add_(own));
    if (has_next) kv = keys.wait();
  }
  return gradients.wait();
}

struct BlockwiseAttentionFunction : torch::autograd::Function<BlockwiseAttentionFunction> {
  /// `sinks`, the value of learned sinks, tells autograd that they need a gradient.
  static Tensor forward(AutogradContext* ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                        const std::optional<Tensor>& /*sinks*/, const BlockwiseArgs& args) {
    const ops::BlockOutput total = layers::forward({q, k, v}, args);
    ctx->save_for_backward({q, k, v, total.y, total.lse});
    tensor::save_value(ctx, args);
    return total.y.permute({2, 0, 1, 3}).reshape({q.size(2), q.size(0), q.size(1) * q.size(3)});
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const auto args = tensor::saved_value<BlockwiseArgs>(ctx);
    const Tensor& q = saved[0];
    const Tensor grad_y =
        grads[0].reshape({q.size(2), q.size(0), q.size(1), q.size(3)}).permute({1, 2, 0, 3});
    const ops::BlockOutput total{saved[3], saved[4]};
    ops::merge_sinks_backward(grad_y, total, args.sinks);
    Backward sum(grad_y, q, total, args);
    const SequenceSplit split({q, saved[1], saved[2]}, args.group);
    const Tensor kv = at::stack({saved[1], saved[2]});
    const Tensor grad_kv = at::zeros(kv.sizes(), total.lse.options());
    const Tensor grad_kv_sum = args.all_gather ? backward_all_gather(sum, split, kv, grad_kv, args)
                                               : backward_ring(sum, split, kv, grad_kv, args);
    const Tensor grad = grad_kv_sum.to(q.scalar_type());
    return {sum.grad_q(), grad[0], grad[1], Tensor(), Tensor()};
  }
};

}  // namespace

at::Tensor blockwise_attention(const ops::Qkv& qkv, const BlockwiseArgs& args) {
  const std::optional<Tensor> sinks =
      args.sinks.learned != nullptr ? std::optional(args.sinks.learned->value) : std::nullopt;
  return BlockwiseAttentionFunction::apply(qkv.q, qkv.k, qkv.v, sinks, args);
}

}  // namespace colonnade::layers
