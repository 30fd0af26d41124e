// Adam with decoupled weight decay (AdamW). Source: Kingma & Ba 2015; Loshchilov & Hutter 2019.
#pragma once

#include "colonnade/optim/update_rule.h"

namespace colonnade::optim {

/// Formula in kernels::AdamStep; the states are m and v.
class Adam final : public UpdateRule {
 public:
  explicit Adam(const config::Optimizer& settings);
  void update(const std::vector<const Segment*>& segments, const UpdateStep& step) const override;

 private:
  double beta1_, beta2_, eps_;
};

}  // namespace colonnade::optim
