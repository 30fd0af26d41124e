// See backward.h.
#include "colonnade/tensor/backward.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <utility>

namespace colonnade::tensor {
namespace {

using torch::autograd::variable_list;

/// Root node that feeds the gradient into the graph.
class GradientRoot final : public torch::autograd::Node {
 public:
  GradientRoot(const torch::autograd::Edge& output, at::Tensor gradient) : gradient_(std::move(gradient)) {
    add_next_edge(output);
  }
  variable_list apply(variable_list&&) override {
    variable_list grads;
    grads.push_back(std::move(gradient_));
    return grads;
  }

 private:
  at::Tensor gradient_;
};

}  // namespace

void backward(const torch::autograd::Edge& output, at::Tensor gradient) {
  const at::Tensor token = at::empty({0}, gradient.options());  // same device and stream
  const auto start = std::make_shared<GradientRoot>(output, std::move(gradient));
  start->add_input_metadata(token);
  torch::autograd::Engine::get_default_engine().execute({{start, 0}}, {token}, /*keep_graph=*/false,
                                                        /*create_graph=*/false, /*accumulate_grad=*/true);
}

at::Tensor take_grad(at::Tensor& leaf) {
  at::Tensor grad = leaf.grad();
  leaf.mutable_grad().reset();
  return grad;
}

}  // namespace colonnade::tensor
