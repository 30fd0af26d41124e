// See sgd.h.
#include "colonnade/optim/sgd.h"

#include "colonnade/ops/optimizer.h"

namespace colonnade::optim {

Sgd::Sgd(const config::Optimizer& settings)
    : UpdateRule(config::OptimizerKind::kSgd, settings), momentum_(settings.sgd_momentum) {}

void Sgd::update(const std::vector<const Segment*>& segments, const UpdateStep& step) const {
  std::vector<ops::SgdTensors> tensors;
  tensors.reserve(segments.size());
  for (const Segment* s : segments)
    tensors.push_back({s->main, s->grad, s->states.empty() ? at::Tensor() : s->states[0], s->rounded_copy()});
  ops::sgd_update(tensors, {.lr = step.learning_rate,
                            .momentum = momentum_,
                            .weight_decay = step.weight_decay,
                            .first = step.number == 1,
                            .grad_scale = step.grad_scale});
}

}  // namespace colonnade::optim
