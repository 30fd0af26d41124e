// See lion.h.
#include "colonnade/optim/lion.h"

#include "colonnade/ops/optimizer.h"

namespace colonnade::optim {

Lion::Lion(const config::Optimizer& settings)
    : UpdateRule(config::OptimizerKind::kLion, settings),
      beta1_(settings.lion_beta1),
      beta2_(settings.lion_beta2) {}

void Lion::update(const std::vector<const Segment*>& segments, const UpdateStep& step) const {
  std::vector<ops::LionTensors> tensors;
  tensors.reserve(segments.size());
  for (const Segment* s : segments) tensors.push_back({s->main, s->grad, s->states[0], s->rounded_copy()});
  ops::lion_update(tensors, {.lr = step.learning_rate,
                             .beta1 = beta1_,
                             .beta2 = beta2_,
                             .weight_decay = step.weight_decay,
                             .grad_scale = step.grad_scale});
}

}  // namespace colonnade::optim
