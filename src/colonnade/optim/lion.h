// Lion (evolved sign momentum) with decoupled weight decay. Source: Chen et al. 2023, "Symbolic Discovery of
// Optimization Algorithms", Algorithm 2; Megatron's core/optimizer (--optimizer lion).
#pragma once

#include "colonnade/optim/update_rule.h"

namespace colonnade::optim {

/// Formula in kernels::LionStep; the state is the momentum m.
class Lion final : public UpdateRule {
 public:
  explicit Lion(const config::Optimizer& settings);
  void update(const std::vector<const Segment*>& segments, const UpdateStep& step) const override;

 private:
  double beta1_, beta2_;
};

}  // namespace colonnade::optim
