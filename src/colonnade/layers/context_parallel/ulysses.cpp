// See ulysses.h. Each exchange is three autograd steps (pack, all-to-all, reorder), so that only one step's
// input and output are in memory at a time.
#include "colonnade/layers/context_parallel/ulysses.h"

#include <ATen/ATen.h>

#include <functional>
#include <numeric>
#include <utility>

#include "colonnade/base/error.h"
#include "colonnade/layers/context_parallel/zigzag_order.h"
#include "colonnade/tensor/saved_value.h"

namespace colonnade::layers {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// A permutation of elements; `backward` is its inverse, applied to gradients.
struct Rearrangement {
  std::function<variable_list(const variable_list&)> forward, backward;
};

struct RearrangeFunction : torch::autograd::Function<RearrangeFunction> {
  static variable_list forward(AutogradContext* ctx, at::TensorList x, const Rearrangement& step) {
    tensor::save_value(ctx, step);
    return step.forward(x.vec());
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    variable_list out = tensor::saved_value<Rearrangement>(ctx).backward(grads);
    out.emplace_back();  // for the step
    return out;
  }
};

/// Applies the steps in order; releases `x` after the first one.
variable_list rearranged(variable_list x, std::initializer_list<Rearrangement> steps) {
  for (const Rearrangement& step : steps) x = RearrangeFunction::apply(at::TensorList(x), step);
  return x;
}

/// All-to-all of [k, ...], one slice per rank.
Rearrangement all_to_all(const comm::Group& group, const std::string& name) {
  const auto once = [group](const std::string& what) {
    return [group, what](const variable_list& sent) {
      Tensor received = at::empty_like(sent[0]);
      group.all_to_all(received, sent[0], what).wait();
      return variable_list{received};
    };
  };
  return {once(name), once(name + ", backward")};
}

/// Several tensors of heads [b, h, s, d], packed by destination rank: [k, l, s, d].
struct Packing {
  std::int64_t ranks, b, s, d;
  std::vector<std::int64_t> heads;  ///< heads of each tensor

  [[nodiscard]] std::int64_t length(std::size_t i) const { return b * heads[i] / ranks; }
  [[nodiscard]] Tensor empty(const Tensor& like) const {
    const auto all = std::accumulate(heads.begin(), heads.end(), std::int64_t{0});
    return at::empty({ranks, b * all / ranks, s, d}, like.options());
  }
  /// Slice of the i-th tensor.
  [[nodiscard]] Tensor part(const Tensor& packed, std::size_t i) const {
    std::int64_t first = 0;
    for (std::size_t before = 0; before < i; ++before) first += length(before);
    return packed.narrow(1, first, length(i));
  }
  /// Slice of the i-th tensor as [b, k, h / k, s, d].
  [[nodiscard]] Tensor by_head(const Tensor& packed, std::size_t i) const {
    return part(packed, i).unflatten(1, {b, heads[i] / ranks}).transpose(0, 1);
  }

  /// Packs this rank's tokens by destination rank.
  [[nodiscard]] Rearrangement by_rank() const {
    return {[*this](const variable_list& x) {
              const Tensor packed = empty(x[0]);
              for (std::size_t i = 0; i < heads.size(); ++i)
                by_head(packed, i).copy_(x[i].unflatten(1, {ranks, heads[i] / ranks}));
              return variable_list{packed};
            },
            [*this](const variable_list& packed) {
              variable_list x;
              for (std::size_t i = 0; i < heads.size(); ++i)
                x.push_back(by_head(packed[0], i).reshape({b, heads[i], s, d}));
              return x;
            }};
  }
  /// Unpacks all tokens of this rank's heads in sequence order: [b, h / k, k s, d].
  [[nodiscard]] Rearrangement in_sequence() const {
    return {[*this](const variable_list& packed) {
              variable_list x;
              for (std::size_t i = 0; i < heads.size(); ++i) {
                x.push_back(at::empty({b, heads[i] / ranks, ranks * s, d}, packed[0].options()));
                to_sequence_order(part(packed[0], i), x.back().view({length(i), ranks * s, d}));
              }
              return x;
            },
            [*this](const variable_list& x) {
              const Tensor packed = empty(x[0]);
              for (std::size_t i = 0; i < heads.size(); ++i)
                to_rank_order(x[i].reshape({length(i), ranks * s, d}), part(packed, i));
              return variable_list{packed};
            }};
  }
};

/// Repeats each key-value head for the ranks that share it.
Tensor repeat_kv_heads(const Tensor& x, std::int64_t ranks) {
  const std::int64_t b = x.size(0), g = x.size(1), s = x.size(2), d = x.size(3);
  if (g >= ranks) return x;
  return x.unsqueeze(2).expand({b, g, ranks / g, s, d}).reshape({b, ranks, s, d});
}

}  // namespace

ops::Qkv sequence_to_head_shards(ops::Qkv part, const comm::Group& group, const std::string& name) {
  const std::int64_t k = group.size(), n = part.q.size(1), g = part.k.size(1);
  COL_CHECK(
      n % k == 0 && (g % k == 0 || k % g == 0),
      "{}: heads must divide evenly over the context ranks; got {} query heads and {} key-value heads for {} "
      "ranks",
      name, n, g, k);
  part = {part.q, repeat_kv_heads(part.k, k), repeat_kv_heads(part.v, k)};
  const std::int64_t shared = part.k.size(1);
  const Packing packing{k, part.q.size(0), part.q.size(2), part.q.size(3), {n, shared, shared}};
  variable_list all;  // an initializer list would keep references to the tensors
  for (Tensor* x : {&part.q, &part.k, &part.v}) all.push_back(std::move(*x));
  const variable_list out = rearranged(
      std::move(all),
      {packing.by_rank(), all_to_all(group, name + " / all-to-all before attention"), packing.in_sequence()});
  return {out[0], out[1], out[2]};
}

at::Tensor head_to_sequence_shards(const at::Tensor& y_sbh, const comm::Group& group,
                                   const std::string& name) {
  const std::int64_t k = group.size(), s = y_sbh.size(0) / k, b = y_sbh.size(1), x = y_sbh.size(2);
  const Rearrangement by_rank{[=](const variable_list& y) {
                                return variable_list{rank_order(y[0].reshape({1, k * s, b * x}), k)};
                              },
                              [=](const variable_list& parts) {
                                return variable_list{sequence_order(parts[0]).view({k * s, b, x})};
                              }};
  const Rearrangement by_head{
      [=](const variable_list& parts) {
        return variable_list{parts[0].view({k, s, b, x}).permute({1, 2, 0, 3}).reshape({s, b, k * x})};
      },
      [=](const variable_list& y) {
        const Tensor parts = y[0].reshape({s, b, k, x}).permute({2, 0, 1, 3});
        return variable_list{parts.reshape({k, 1, s, b * x}).contiguous()};
      }};
  return rearranged({y_sbh},
                    {by_rank, all_to_all(group, name + " / all-to-all after attention"), by_head})[0];
}

}  // namespace colonnade::layers
