// See adam.h.
#include "colonnade/optim/adam.h"

#include <cmath>

#include "colonnade/ops/optimizer.h"

namespace colonnade::optim {

Adam::Adam(const config::Optimizer& settings)
    : UpdateRule(config::OptimizerKind::kAdam, settings),
      beta1_(settings.adam_beta1),
      beta2_(settings.adam_beta2),
      eps_(settings.adam_eps) {}

void Adam::update(const std::vector<const Segment*>& segments, const UpdateStep& step) const {
  std::vector<ops::AdamTensors> tensors;
  tensors.reserve(segments.size());
  for (const Segment* s : segments)
    tensors.push_back({.param = s->main,
                       .grad = s->grad,
                       .m = s->states[0],
                       .v = s->states[1],
                       .copy_out = s->rounded_copy(),
                       .param_scale = s->main_scale,
                       .m_scale = s->scales[0],
                       .v_scale = s->scales[1]});
  const auto t = static_cast<double>(step.number);
  ops::adam_update(tensors, {.lr = step.learning_rate,
                             .beta1 = beta1_,
                             .beta2 = beta2_,
                             .eps = eps_ * step.eps_multiplier,
                             .weight_decay = step.weight_decay,
                             .decoupled = true,
                             .bias1 = 1.0 - std::pow(beta1_, t),
                             .bias2 = 1.0 - std::pow(beta2_, t),
                             .grad_scale = step.grad_scale});
}

}  // namespace colonnade::optim
