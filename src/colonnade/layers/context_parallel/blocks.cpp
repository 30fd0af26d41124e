// Which queries meet which keys, and how keys come by: in a ring or gathered.
#include "colonnade/layers/context_parallel/blocks.h"

#include <ATen/ATen.h>

#include <optional>
#include <vector>

#include "colonnade/layers/context_parallel/order.h"
#include "colonnade/layout/context_parallel.h"
#include "colonnade/ops/attention.h"
#include "colonnade/tensor/kept.h"

namespace colonnade::layers {
namespace {

using at::Tensor;
using layout::Chunk;
using layout::Meeting;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Sequences of this rank's part of `qkv`, and who shares them.
struct Place {
  Place(const ops::Qkv& qkv, const comm::Group& group)
      : rank(group.rank()), ranks(group.size()), length(qkv.q.size(2) * group.size()) {}
  int rank, ranks;
  std::int64_t length;  ///< of the sequence

  /// With the keys of rank `owner` as it holds them.
  [[nodiscard]] Meeting with(int owner) const { return layout::meeting(length, rank, owner, ranks); }
  /// With all keys in the order of the sequence, besides its own.
  [[nodiscard]] std::vector<Meeting> with_others() const {
    return layout::meetings_with_others(length, rank, ranks);
  }
};

Tensor positions(const std::vector<Chunk>& chunks, at::Device device) {
  std::vector<Tensor> parts;
  for (const Chunk& c : chunks)
    parts.push_back(at::arange(c.begin, c.begin + c.length, at::dtype(at::kLong).device(device)));
  return at::cat(parts);
}

/// The parts of one dimension that the chunks are.
Tensor chunks_of(const Tensor& x, std::int64_t dim, const std::vector<Chunk>& chunks) {
  std::vector<Tensor> parts;
  for (const Chunk& c : chunks) parts.push_back(x.narrow(dim, c.begin, c.length));
  return parts.size() == 1 ? parts[0] : at::cat(parts, dim);
}

/// What is hidden where these meet; nothing when all is.
std::optional<ops::BlockMask> mask_of(const Meeting& m, const Tensor& mask, std::int64_t window,
                                      const Tensor& q) {
  ops::BlockMask block{.causal = m.causal, .queries = m.query_chunks, .keys = m.key_chunks};
  if (q.is_meta()) return block;
  const Chunk& last_keys = m.key_chunks.back();
  const Chunk& last_queries = m.query_chunks.back();
  if (window > 0 && m.query_chunks.front().begin - (last_keys.begin + last_keys.length - 1) > window)
    return std::nullopt;
  if (mask.defined()) block.hidden = chunks_of(chunks_of(mask, 2, m.query_chunks), 3, m.key_chunks);
  if (window > 0 && last_queries.begin + last_queries.length - 1 - m.key_chunks.front().begin > window) {
    const Tensor query = positions(m.query_chunks, q.device()).unsqueeze(1);
    const Tensor far = (positions(m.key_chunks, q.device()).unsqueeze(0) < query - window)
                           .view({1, 1, query.size(0), m.keys});
    block.hidden = block.hidden.defined() ? block.hidden.logical_or(far) : far;
  }
  return block;
}

Tensor tail(const Tensor& x, std::int64_t first) { return x.narrow(2, first, x.size(2) - first); }

/// The queries and keys of a meeting; kv [2, b, g, t, d].
ops::Qkv at_meeting(const Meeting& m, const Tensor& q, const Tensor& kv) {
  const Tensor keys = kv.narrow(3, m.first_key, m.keys);
  return {tail(q, m.first_query), keys[0], keys[1]};
}

/// Hands a buffer on to the next rank of the ring, and gets that of the rank before.
class Transfer {
 public:
  Transfer(const comm::Group& ring, int tag, std::string name)
      : ring_(&ring), tag_(tag), name_(std::move(name)) {}
  void start(const Tensor& buffer) {
    received_ = at::empty_like(buffer);
    const int k = ring_->size(), rank = ring_->rank();
    const auto send = [&] { sending_ = ring_->send(buffer, (rank + 1) % k, tag_, name_); };
    const auto receive = [&] { receiving_ = ring_->recv(received_, (rank + k - 1) % k, tag_, name_); };
    // The first message between two ranks may hold up both until the other comes (NCCL): neighbours meet.
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

/// [2, b, g, s, d] of all ranks -> [2, b, g, k s, d] in the order of the sequence.
Tensor gathered(const Tensor& kv, const BlocksArgs& args, const char* what) {
  auto shape = kv.sizes().vec();
  const std::int64_t k = args.group.size(), l = shape[0] * shape[1] * shape[2];
  Tensor parts = at::empty({k, l, shape[3], shape[4]}, kv.options());
  args.group.all_gather(parts, kv.view({1, l, shape[3], shape[4]}), args.name + what).wait();
  shape[3] *= k;
  return sequence_order(parts).view(shape);
}

/// Output and sums over all keys.
class Forward {
 public:
  Forward(const Tensor& q, const Tensor& mask, const BlocksArgs& args) : q_(q), mask_(mask), args_(args) {}

  void meet(const Meeting& m, const Tensor& kv) {
    const auto mask = mask_of(m, mask_, args_.window, q_);
    if (!mask) return;
    const ops::BlockOutput block = ops::attention_block(at_meeting(m, q_, kv), args_.scores, *mask);
    if (!whole_.y.defined())
      whole_ = {block.y.to(block.lse.scalar_type()), block.lse};
    else
      ops::join_block({tail(whole_.y, m.first_query), tail(whole_.lse, m.first_query)}, block);
  }
  [[nodiscard]] ops::BlockOutput whole() const {
    ops::join_sinks(whole_, args_.sinks);
    return {whole_.y.to(q_.scalar_type()), whole_.lse};
  }

 private:
  const Tensor& q_;
  const Tensor& mask_;
  const BlocksArgs& args_;
  ops::BlockOutput whole_;
};

ops::BlockOutput forward(const ops::Qkv& qkv, const Tensor& mask, const BlocksArgs& args) {
  const Place place(qkv, args.group);
  Forward sum(qkv.q, mask, args);
  Tensor kv = at::stack({qkv.k, qkv.v});
  if (args.gathers) {
    sum.meet(place.with(place.rank), kv);
    const Tensor all = gathered(kv, args, " / keys and values");
    for (const Meeting& m : place.with_others()) sum.meet(m, all);
    return sum.whole();
  }
  Transfer keys(args.group, kKeys, args.name + " / keys and values");
  for (int step = 0; step < place.ranks; ++step) {
    const bool more = step + 1 < place.ranks;
    if (more) keys.start(kv);
    sum.meet(place.with((place.rank - step + place.ranks) % place.ranks), kv);
    if (more) kv = keys.wait();
  }
  return sum.whole();
}

/// Gradients through one meeting after the other.
class Backward {
 public:
  Backward(const Tensor& grad_y, const Tensor& q, const ops::BlockOutput& whole, const Tensor& mask,
           const BlocksArgs& args)
      : grad_y_(grad_y),
        q_(q),
        whole_(whole),
        mask_(mask),
        args_(args),
        grad_q_(at::zeros(q.sizes(), whole.lse.options())) {}

  /// Adds to the gradients of these keys [2, b, g, t, d].
  void meet(const Meeting& m, const Tensor& kv, const Tensor& grad_kv) {
    const auto mask = mask_of(m, mask_, args_.window, q_);
    if (!mask) return;
    const ops::BlockOutput whole{tail(whole_.y, m.first_query), tail(whole_.lse, m.first_query)};
    const ops::Qkv grads = ops::attention_block_backward(tail(grad_y_, m.first_query), at_meeting(m, q_, kv),
                                                         whole, args_.scores, *mask);
    tail(grad_q_, m.first_query).add_(grads.q);
    const Tensor keys = grad_kv.narrow(3, m.first_key, m.keys);
    keys[0].add_(grads.k);
    keys[1].add_(grads.v);
  }
  [[nodiscard]] Tensor grad_q() const { return grad_q_.to(q_.scalar_type()); }

 private:
  const Tensor& grad_y_;
  const Tensor& q_;
  const ops::BlockOutput& whole_;
  const Tensor& mask_;
  const BlocksArgs& args_;
  Tensor grad_q_;
};

/// Gathers keys again, and sums their gradients over the ranks.
Tensor backward_gathered(Backward& grads, const Place& place, const Tensor& kv, const Tensor& grad_kv,
                         const BlocksArgs& args) {
  grads.meet(place.with(place.rank), kv, grad_kv);
  const Tensor all = gathered(kv, args, " / keys and values again");
  const Tensor grad_all = at::zeros(all.sizes(), grad_kv.options());
  for (const Meeting& m : place.with_others()) grads.meet(m, all, grad_all);
  const std::int64_t l = all.size(0) * all.size(1) * all.size(2);
  Tensor sum = at::empty(kv.sizes(), grad_kv.options());
  args.group
      .reduce_scatter(sum.view({1, l, kv.size(3), kv.size(4)}),
                      rank_order(grad_all.view({l, all.size(3), all.size(4)}), place.ranks),
                      args.name + " / gradients of keys and values")
      .wait();
  return sum.add_(grad_kv);
}

/// Keys go round again; their gradients follow one step behind and end at home.
Tensor backward_ring(Backward& grads, const Place& place, Tensor kv, Tensor grad_kv, const BlocksArgs& args) {
  Transfer keys(args.group, kKeys, args.name + " / keys and values again");
  Transfer gradients(args.group, kKeyGradients, args.name + " / gradients of keys and values");
  for (int step = 0; step < place.ranks; ++step) {
    const bool more = step + 1 < place.ranks;
    if (more) keys.start(kv);
    const Tensor own = step == 0 ? grad_kv : at::zeros_like(grad_kv);
    grads.meet(place.with((place.rank - step + place.ranks) % place.ranks), kv, own);
    gradients.start(step == 0 ? own : gradients.wait().add_(own));
    if (more) kv = keys.wait();
  }
  return gradients.wait();
}

struct BlocksRule : torch::autograd::Function<BlocksRule> {
  /// `sinks`, the value of learned ones, lets autograd know who gets a gradient.
  static Tensor forward(AutogradContext* ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                        const std::optional<Tensor>& given_mask, const std::optional<Tensor>& /*sinks*/,
                        const BlocksArgs& args) {
    const Tensor mask = given_mask.value_or(Tensor());
    const ops::BlockOutput whole = layers::forward({q, k, v}, mask, args);
    ctx->save_for_backward({q, k, v, mask, whole.y, whole.lse});
    tensor::keep(ctx, args);
    return whole.y.permute({2, 0, 1, 3}).reshape({q.size(2), q.size(0), q.size(1) * q.size(3)});
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const auto args = tensor::kept<BlocksArgs>(ctx);
    const Tensor& q = saved[0];
    const Tensor grad_y =
        grads[0].reshape({q.size(2), q.size(0), q.size(1), q.size(3)}).permute({1, 2, 0, 3});
    const ops::BlockOutput whole{saved[4], saved[5]};
    ops::join_sinks_backward(grad_y, whole, args.sinks);
    Backward sum(grad_y, q, whole, saved[3], args);
    const Place place({q, saved[1], saved[2]}, args.group);
    const Tensor kv = at::stack({saved[1], saved[2]});
    const Tensor grad_kv = at::zeros(kv.sizes(), whole.lse.options());
    const Tensor summed = args.gathers ? backward_gathered(sum, place, kv, grad_kv, args)
                                       : backward_ring(sum, place, kv, grad_kv, args);
    const Tensor grad = summed.to(q.scalar_type());
    return {sum.grad_q(), grad[0], grad[1], Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

at::Tensor attention_in_blocks(const ops::Qkv& qkv, const at::Tensor& mask, const BlocksArgs& args) {
  const auto maybe = [](const Tensor& x) { return x.defined() ? std::optional(x) : std::nullopt; };
  const Tensor sinks = args.sinks.learned != nullptr ? args.sinks.learned->value : Tensor();
  return BlocksRule::apply(qkv.q, qkv.k, qkv.v, maybe(mask), maybe(sinks), args);
}

}  // namespace colonnade::layers
