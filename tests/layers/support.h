// Compares layers in every tensor-parallel layout with a reference computation.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "colonnade/layers/context.h"
#include "colonnade/tensor/block.h"
#include "support/device.h"
#include "support/split.h"

namespace colonnade::test {

/// Reference output and gradients of the unsharded layer for a probe gradient.
struct Expected {
  Tensor y, grad_x;
  std::map<std::string, Tensor> grads;  ///< by parameter name
};

using Weights = std::map<std::string, Tensor>;
using MakeBlock =
    std::function<std::unique_ptr<tensor::Block>(const config::Parallel&, const layers::Context&)>;

/// Adapts a layer that is no block.
class FunctionBlock final : public tensor::Block {
 public:
  using Forward = std::function<Tensor(const Tensor&, const tensor::Pass&)>;
  FunctionBlock(std::vector<tensor::Parameter*> parameters, Forward forward)
      : parameters_(std::move(parameters)), forward_(std::move(forward)) {}
  Tensor forward(const Tensor& x, const tensor::Pass& pass) override { return forward_(x, pass); }
  std::vector<tensor::Parameter*> parameters() override { return parameters_; }

 private:
  std::vector<tensor::Parameter*> parameters_;
  Forward forward_;
};

inline Tensor probe_for(const Tensor& y) { return named_random("probe", y.sizes()); }

/// Output and gradients of `definition` (plain tensor functions) for parameters with the values of
/// randomize().
inline Expected reference(const std::vector<layout::ParamSpec>& specs, const Tensor& x,
                          const std::function<Tensor(const Tensor& x, const Weights& w)>& definition) {
  Weights weights;
  for (const auto& spec : specs) weights[spec.name] = full_value(spec).set_requires_grad(true);
  const Tensor leaf = x.defined() ? x.clone().set_requires_grad(true) : Tensor();
  Expected expected;
  const Tensor y = definition(leaf, weights);
  y.backward(probe_for(y));
  expected.y = y.detach();
  if (leaf.defined()) expected.grad_x = leaf.grad();
  for (auto& [name, w] : weights) expected.grads[name] = w.grad().defined() ? w.grad() : at::zeros_like(w);
  return expected;
}

struct TpLayout {
  int tp = 1;
  bool sequence_parallel = false;
  at::ScalarType type = at::kDouble;  ///< of parameters
};
inline const std::vector<TpLayout> kTpLayouts{{1, false}, {2, false}, {2, true}, {4, false}, {4, true}};

/// The `layouts` that device() can run: all on the CPU, one rank on a GPU.
inline std::vector<TpLayout> possible(const std::vector<TpLayout>& layouts) {
  return thread_ranks(2) == 2 ? layouts : std::vector<TpLayout>{{1, false}};
}

/// Runs the block on every rank and calls body(unsharded output and gradients, tp group).
inline void run_layout(const TpLayout& tp_layout, const MakeBlock& make, const Tensor& x,
                       const tensor::Pass& pass,
                       const std::function<void(const Expected& got, const comm::Group& tp)>& body) {
  const config::Parallel parallel = tensor_parallel(tp_layout.tp, tp_layout.sequence_parallel);
  comm::run_ranks(parallel, [&](comm::Communicators& ranks) {
    const comm::Group tp = ranks.group({layout::Axis::kTp});
    const bool sharded = tp_layout.sequence_parallel;
    const auto part = [&](const Tensor& whole) {
      return sharded ? whole.chunk(tp_layout.tp, 0)[tp.rank()] : whole;
    };
    const auto whole_of = [&](const Tensor& local) {
      if (!sharded) return local.detach();
      auto shape = local.sizes().vec();
      shape[0] *= tp_layout.tp;
      Tensor whole = at::empty(shape, local.options());
      tp.all_gather(whole, local.detach().contiguous(), "whole sequence").wait();
      return whole;
    };
    const layers::Context context{
        .tp = tp, .sequence_parallel = sharded, .options = options(tp_layout.type), .seed = 7};
    const auto block = make(parallel, context);
    randomize(block->parameters());
    const Tensor leaf = x.defined() ? part(x).clone().set_requires_grad(true) : Tensor();
    const Tensor y = block->forward(leaf, pass);
    const bool y_sharded = sharded && y.dim() == 3;  // losses [b, s] are replicated
    Expected got;
    got.y = y_sharded ? whole_of(y) : y.detach();
    const Tensor probe = probe_for(got.y).to(y.scalar_type());
    y.backward(y_sharded ? part(probe) : probe);
    if (leaf.defined()) got.grad_x = whole_of(leaf.grad());
    for (tensor::Parameter* p : block->parameters()) got.grads[p->spec.name] = full_gradient(*p, tp);
    body(got, tp);
  });
}

inline void expect_near(const Expected& got, const Expected& expected, double bound = 1e-11) {
  EXPECT_LT(distance(got.y, expected.y), bound) << "output";
  if (expected.grad_x.defined()) {
    EXPECT_LT(distance(got.grad_x, expected.grad_x), bound) << "gradient of the input";
  }
  ASSERT_EQ(got.grads.size(), expected.grads.size());
  for (const auto& [name, grad] : expected.grads) {
    EXPECT_LT(distance(got.grads.at(name), grad), bound) << "gradient of " << name;
  }
}

/// Checks output and gradients on every rank of every tp_layout.
inline void expect_in_every_layout(const MakeBlock& make, const Tensor& x, const tensor::Pass& pass,
                                   const Expected& expected,
                                   const std::vector<TpLayout>& layouts = kTpLayouts) {
  for (const TpLayout& tp_layout : possible(layouts))
    run_layout(tp_layout, make, x, pass, [&](const Expected& got, const comm::Group& tp) {
      SCOPED_TRACE(fmt::format("tp {} sequence parallel {} rank {}", tp_layout.tp,
                               tp_layout.sequence_parallel, tp.rank()));
      expect_near(got, expected);
    });
}

/// Output and gradients on one rank.
inline Expected on_one_rank(const MakeBlock& make, const Tensor& x, const tensor::Pass& pass) {
  Expected one;
  run_layout({}, make, x, pass, [&](const Expected& got, const comm::Group&) { one = got; });
  return one;
}

}  // namespace colonnade::test
