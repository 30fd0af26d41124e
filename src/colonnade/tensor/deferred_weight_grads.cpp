// See deferred_weight_grads.h.
#include "colonnade/tensor/deferred_weight_grads.h"

#include <ATen/core/grad_mode.h>

#include <set>
#include <utility>

#include "colonnade/tensor/parameter.h"

namespace colonnade::tensor {

void DeferredWeightGrads::run(bool last, const std::function<void(Parameter&)>& before) {
  const at::NoGradGuard no_grad;
  std::vector<Pending> pending = std::exchange(pending_, {});
  std::vector<bool> is_last_use(pending.size(), false);
  std::set<const Parameter*> seen;
  for (std::size_t i = pending.size(); i-- > 0;) is_last_use[i] = seen.insert(pending[i].parameter).second;
  for (std::size_t i = 0; i < pending.size(); ++i) {
    Parameter& parameter = *pending[i].parameter;
    if (before) before(parameter);
    pending[i].add();
    pending[i].add = nullptr;  // free the operands before the gradient is reduced
    if (last && is_last_use[i] && parameter.on_grad_ready) parameter.on_grad_ready();
  }
}

DeferScope::DeferScope(const std::vector<Parameter*>& parameters, DeferredWeightGrads& list)
    : parameters_(parameters) {
  for (Parameter* parameter : parameters_) parameter->defer_weight_grads_to(&list);
}

DeferScope::~DeferScope() {
  for (Parameter* parameter : parameters_) parameter->defer_weight_grads_to(nullptr);
}

}  // namespace colonnade::tensor
