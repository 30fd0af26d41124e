// See blockwise_attention.h. Keys of other ranks arrive by p2p around a ring or by all-gather.
#include "colonnade/layers/context_parallel/blockwise_attention.h"

#include <ATen/ATen.h>

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
using layout::TokenSpan;
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

Tensor positions(const std::vector<TokenSpan>& chunks, at::Device device) {
  std::vector<Tensor> parts;
  for (const TokenSpan& c : chunks)
    parts.push_back(at::arange(c.begin, c.begin + c.length, at::dtype(at::kLong).device(device)));
  return at::cat(parts);
}

/// The chunks of dimension `dim`, concatenated.
Tensor select_chunks(const Tensor& x, std::int64_t dim, const std::vector<TokenSpan>& chunks) {
  std::vector<Tensor> parts;
  for (const TokenSpan& c : chunks) parts.push_back(x.narrow(dim, c.begin, c.length));
  return parts.size() == 1 ? parts[0] : at::cat(parts, dim);
}

/// Mask of a block of queries and keys; nothing if the window masks all of it.
std::optional<ops::BlockMask> block_mask(const AttentionBlock& m, const Tensor& mask, std::int64_t window,
                                         const Tensor& q) {
  ops::BlockMask block{.causal = m.causal, .queries = m.query_chunks, .keys = m.key_chunks};
  if (q.is_meta()) return block;
  const TokenSpan& last_keys = m.key_chunks.back();
  const TokenSpan& last_queries = m.query_chunks.back();
  if (window > 0 && m.query_chunks.front().begin - (last_keys.begin + last_keys.length - 1) > window)
    return std::nullopt;
  if (mask.defined()) block.masked = select_chunks(select_chunks(mask, 2, m.query_chunks), 3, m.key_chunks);
  if (window > 0 && last_queries.begin + last_queries.length - 1 - m.key_chunks.front().begin > window) {
    const Tensor query = positions(m.query_chunks, q.device()).unsqueeze(1);
    const Tensor far = (positions(m.key_chunks, q.device()).unsqueeze(0) < query - window)
                           .view({1, 1, query.size(0), m.keys});
    block.masked = block.masked.defined() ? block.masked.logical_or(far) : far;
  }
  return block;
}

Tensor tail(const Tensor& x, std::int64_t first) { return x.narrow(2, first, x.size(2) - first); }

/// Queries, keys and values of a block; kv [2, b, g, t, d].
ops::Qkv qkv_of(const AttentionBlock& m, const Tensor& q, const Tensor& kv) {
  const Tensor keys = kv.narrow(3, m.first_key, m.keys);
  return {tail(q, m.first_query), keys[0], keys[1]};
}

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

/// Accumulates output and log-sum-exp over blocks of keys.
class Forward {
 public:
  Forward(const Tensor& q, const Tensor& mask, const BlockwiseArgs& args) : q_(q), mask_(mask), args_(args) {}

  void add_block(const AttentionBlock& m, const Tensor& kv) {
    const auto mask = block_mask(m, mask_, args_.window, q_);
    if (!mask) return;
    const ops::BlockOutput block = ops::attention_block(qkv_of(m, q_, kv), args_.scores, *mask);
    if (args_.max_scores.defined())
      args_.max_scores.copy_(
          at::maximum(args_.max_scores, ops::max_scores(qkv_of(m, q_, kv), args_.scores, *mask)));
    if (!total_.y.defined())
      total_ = {block.y.to(block.lse.scalar_type()), block.lse};
    else
      ops::merge_block({tail(total_.y, m.first_query), tail(total_.lse, m.first_query)}, block);
  }
  [[nodiscard]] ops::BlockOutput total() const {
    ops::merge_sinks(total_, args_.sinks);
    return {total_.y.to(q_.scalar_type()), total_.lse};
  }

 private:
  const Tensor& q_;
  const Tensor& mask_;
  const BlockwiseArgs& args_;
  ops::BlockOutput total_;
};

ops::BlockOutput forward(const ops::Qkv& qkv, const Tensor& mask, const BlockwiseArgs& args) {
  const SequenceSplit split(qkv, args.group);
  Forward sum(qkv.q, mask, args);
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

/// Accumulates gradients block by block.
class Backward {
 public:
  Backward(const Tensor& grad_y, const Tensor& q, const ops::BlockOutput& total, const Tensor& mask,
           const BlockwiseArgs& args)
      : grad_y_(grad_y),
        q_(q),
        total_(total),
        mask_(mask),
        args_(args),
        grad_q_(at::zeros(q.sizes(), total.lse.options())) {}

  /// Adds to grad_kv [2, b, g, t, d].
  void add_block(const AttentionBlock& m, const Tensor& kv, const Tensor& grad_kv) {
    const auto mask = block_mask(m, mask_, args_.window, q_);
    if (!mask) return;
    const ops::BlockOutput total{tail(total_.y, m.first_query), tail(total_.lse, m.first_query)};
    const ops::Qkv grads = ops::attention_block_backward(tail(grad_y_, m.first_query), qkv_of(m, q_, kv),
                                                         total, args_.scores, *mask);
    tail(grad_q_, m.first_query).add_(grads.q);
    const Tensor keys = grad_kv.narrow(3, m.first_key, m.keys);
    keys[0].add_(grads.k);
    keys[1].add_(grads.v);
  }
  [[nodiscard]] Tensor grad_q() const { return grad_q_.to(q_.scalar_type()); }

 private:
  const Tensor& grad_y_;
  const Tensor& q_;
  const ops::BlockOutput& total_;
  const Tensor& mask_;
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
                        const std::optional<Tensor>& given_mask, const std::optional<Tensor>& /*sinks*/,
                        const BlockwiseArgs& args) {
    const Tensor mask = given_mask.value_or(Tensor());
    const ops::BlockOutput total = layers::forward({q, k, v}, mask, args);
    ctx->save_for_backward({q, k, v, mask, total.y, total.lse});
    tensor::save_value(ctx, args);
    return total.y.permute({2, 0, 1, 3}).reshape({q.size(2), q.size(0), q.size(1) * q.size(3)});
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const auto args = tensor::saved_value<BlockwiseArgs>(ctx);
    const Tensor& q = saved[0];
    const Tensor grad_y =
        grads[0].reshape({q.size(2), q.size(0), q.size(1), q.size(3)}).permute({1, 2, 0, 3});
    const ops::BlockOutput total{saved[4], saved[5]};
    ops::merge_sinks_backward(grad_y, total, args.sinks);
    Backward sum(grad_y, q, total, saved[3], args);
    const SequenceSplit split({q, saved[1], saved[2]}, args.group);
    const Tensor kv = at::stack({saved[1], saved[2]});
    const Tensor grad_kv = at::zeros(kv.sizes(), total.lse.options());
    const Tensor grad_kv_sum = args.all_gather ? backward_all_gather(sum, split, kv, grad_kv, args)
                                               : backward_ring(sum, split, kv, grad_kv, args);
    const Tensor grad = grad_kv_sum.to(q.scalar_type());
    return {sum.grad_q(), grad[0], grad[1], Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

at::Tensor blockwise_attention(const ops::Qkv& qkv, const at::Tensor& mask, const BlockwiseArgs& args) {
  const auto optional = [](const Tensor& x) { return x.defined() ? std::optional(x) : std::nullopt; };
  const Tensor sinks = args.sinks.learned != nullptr ? args.sinks.learned->value : Tensor();
  return BlockwiseAttentionFunction::apply(qkv.q, qkv.k, qkv.v, optional(mask), optional(sinks), args);
}

}  // namespace colonnade::layers
