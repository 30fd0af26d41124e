// Weight gradients that a backward pass leaves for later: the split of a backward pass into B (gradient of
// the input) and W (gradients of the weights). Source: Qi et al. 2023 (Zero Bubble Pipeline Parallelism).
#pragma once

#include <functional>
#include <utility>
#include <vector>

namespace colonnade::tensor {

class Parameter;

/// The products of one micro-batch and stage that are still to be added to main_grad, with both factors:
/// input and output gradient of each linear, or of all experts. Whatever asks Parameter::add_product for its
/// gradient can wait; all else (norms, biases, tables, plain autograd) is done within the backward pass.
class DeferredProducts {
 public:
  void push(Parameter& parameter, std::function<void()> add) {
    products_.push_back({&parameter, std::move(add)});
  }
  /// Computes them in the order in which they came, and lets go of each one's factors. `before`, where given,
  /// is called in front of each with its parameter.
  /// `last`: no more of these parameters come in this step; each is told (on_grad_ready) after its last one.
  void run(bool last, const std::function<void(Parameter&)>& before = {});
  [[nodiscard]] bool empty() const { return products_.empty(); }

 private:
  struct Product {
    Parameter* parameter;
    std::function<void()> add;  ///< holds the factors
  };
  std::vector<Product> products_;
};

/// While it lives, the products of `parameters` go to `list`.
class DeferScope {
 public:
  DeferScope(const std::vector<Parameter*>& parameters, DeferredProducts& list);
  ~DeferScope();
  DeferScope(const DeferScope&) = delete;
  DeferScope& operator=(const DeferScope&) = delete;

 private:
  const std::vector<Parameter*>& parameters_;
};

}  // namespace colonnade::tensor
