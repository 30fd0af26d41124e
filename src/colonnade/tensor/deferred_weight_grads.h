// Deferred weight gradients: split of a backward pass into B (input gradients) and W (weight gradients).
// Source: Qi et al. 2023 (Zero Bubble Pipeline Parallelism).
#pragma once

#include <functional>
#include <utility>
#include <vector>

namespace colonnade::tensor {

class Parameter;

/// Pending weight-gradient matmuls of one micro-batch and stage, with their operands: input and output
/// gradient of each linear or grouped linear. Only gradients added through Parameter::add_weight_grad are
/// deferred; others (norms, biases, embeddings, plain autograd) are computed in the backward pass.
class DeferredWeightGrads {
 public:
  void push(Parameter& parameter, std::function<void()> add) {
    pending_.push_back({&parameter, std::move(add)});
  }
  /// Computes the matmuls in the order they were pushed and frees the operands of each. Calls `before`, if
  /// given, with the parameter before each. With `last`, no more follow for these parameters in this step,
  /// and on_grad_ready is called after the last matmul of each.
  void run(bool last, const std::function<void(Parameter&)>& before = {});
  [[nodiscard]] bool empty() const { return pending_.empty(); }

 private:
  struct Pending {
    Parameter* parameter;
    std::function<void()> add;  ///< owns the operands
  };
  std::vector<Pending> pending_;
};

/// Within its scope, weight gradients of `parameters` are deferred to `list`.
class DeferScope {
 public:
  DeferScope(const std::vector<Parameter*>& parameters, DeferredWeightGrads& list);
  ~DeferScope();
  DeferScope(const DeferScope&) = delete;
  DeferScope& operator=(const DeferScope&) = delete;

 private:
  const std::vector<Parameter*>& parameters_;
};

}  // namespace colonnade::tensor
