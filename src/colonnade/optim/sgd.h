// Stochastic gradient descent with momentum, as torch.optim.SGD.
#pragma once

#include "colonnade/optim/update_rule.h"

namespace colonnade::optim {

/// Formula in kernels::SgdStep; the state is the momentum, none if --sgd-momentum is 0.
class Sgd final : public UpdateRule {
 public:
  explicit Sgd(const config::Optimizer& settings);
  void update(const std::vector<const Segment*>& segments, const UpdateStep& step) const override;

 private:
  double momentum_;
};

}  // namespace colonnade::optim
