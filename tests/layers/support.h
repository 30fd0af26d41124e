// Layers under every tensor-parallel layout against one description of what they compute.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "colonnade/layers/context.h"
#include "colonnade/tensor/block.h"
#include "support/device.h"
#include "support/split.h"

namespace colonnade::test {

/// Output and all gradients of the unsplit layer under a probe.
struct Expected {
  Tensor y, grad_x;
  std::map<std::string, Tensor> grads;  ///< by parameter name
};

using Weights = std::map<std::string, Tensor>;
using MakeBlock =
    std::function<std::unique_ptr<tensor::Block>(const config::Parallel&, const layers::Context&)>;

/// A block out of two functions, for layers that are no blocks.
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

/// What `definition` (plain tensor functions) gives for parameters with the values of randomize().
inline Expected defined(const std::vector<layout::ParamSpec>& specs, const Tensor& x,
                        const std::function<Tensor(const Tensor& x, const Weights& w)>& definition) {
  Weights weights;
  for (const auto& spec : specs) weights[spec.name] = whole_value(spec).set_requires_grad(true);
  const Tensor leaf = x.defined() ? x.clone().set_requires_grad(true) : Tensor();
  Expected expected;
  const Tensor y = definition(leaf, weights);
  y.backward(probe_for(y));
  expected.y = y.detach();
  if (leaf.defined()) expected.grad_x = leaf.grad();
  for (auto& [name, w] : weights) expected.grads[name] = w.grad().defined() ? w.grad() : at::zeros_like(w);
  return expected;
}

struct Split {
  int tp = 1;
  bool sequence_parallel = false;
};
inline const std::vector<Split> kSplits{{1, false}, {2, false}, {2, true}, {4, false}, {4, true}};

/// Those of `splits` that device() can run: all on the CPU, on a GPU the unsplit layer.
inline std::vector<Split> possible(const std::vector<Split>& splits) {
  return thread_ranks(2) == 2 ? splits : std::vector<Split>{{1, false}};
}

/// Runs the block of every rank and hands over what came out, whole: body(rank's outcome).
inline void run_split(const Split& split, const MakeBlock& make, const Tensor& x, const tensor::Pass& pass,
                      const std::function<void(const Expected& got, const comm::Group& tp)>& body) {
  const config::Parallel parallel = tensor_parallel(split.tp, split.sequence_parallel);
  comm::run_ranks(parallel, [&](comm::Communicators& ranks) {
    const comm::Group tp = ranks.group({layout::Axis::kTp});
    const bool cut = split.sequence_parallel;
    const auto part = [&](const Tensor& whole) { return cut ? whole.chunk(split.tp, 0)[tp.rank()] : whole; };
    const auto whole_of = [&](const Tensor& local) {
      if (!cut) return local.detach();
      auto shape = local.sizes().vec();
      shape[0] *= split.tp;
      Tensor whole = at::empty(shape, local.options());
      tp.all_gather(whole, local.detach().contiguous(), "whole sequence").wait();
      return whole;
    };
    const layers::Context context{
        .tp = tp, .sequence_parallel = cut, .options = options(at::kDouble), .seed = 7};
    const auto block = make(parallel, context);
    randomize(block->parameters());
    const Tensor leaf = x.defined() ? part(x).clone().set_requires_grad(true) : Tensor();
    const Tensor y = block->forward(leaf, pass);
    const bool y_cut = cut && y.dim() == 3;  // losses [b, s] are whole on every rank
    Expected got;
    got.y = y_cut ? whole_of(y) : y.detach();
    y.backward(y_cut ? part(probe_for(got.y)) : probe_for(got.y));
    if (leaf.defined()) got.grad_x = whole_of(leaf.grad());
    for (tensor::Parameter* p : block->parameters()) got.grads[p->spec.name] = whole_gradient(*p, tp);
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

/// Every rank of every split gives the expected output and gradients.
inline void expect_in_every_split(const MakeBlock& make, const Tensor& x, const tensor::Pass& pass,
                                  const Expected& expected, const std::vector<Split>& splits = kSplits) {
  for (const Split& split : possible(splits))
    run_split(split, make, x, pass, [&](const Expected& got, const comm::Group& tp) {
      SCOPED_TRACE(
          fmt::format("tp {} sequence parallel {} rank {}", split.tp, split.sequence_parallel, tp.rank()));
      expect_near(got, expected);
    });
}

/// The outcome of one rank alone.
inline Expected unsplit(const MakeBlock& make, const Tensor& x, const tensor::Pass& pass) {
  Expected one;
  run_split({}, make, x, pass, [&](const Expected& got, const comm::Group&) { one = got; });
  return one;
}

}  // namespace colonnade::test
