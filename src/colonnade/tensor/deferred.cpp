// See deferred.h.
#include "colonnade/tensor/deferred.h"

#include <ATen/core/grad_mode.h>

#include <set>
#include <utility>

#include "colonnade/tensor/parameter.h"

namespace colonnade::tensor {

void DeferredProducts::run(bool last, const std::function<void(Parameter&)>& before) {
  const at::NoGradGuard no_grad;
  std::vector<Product> products = std::exchange(products_, {});
  std::vector<bool> tells(products.size(), false);
  std::set<const Parameter*> seen;
  for (std::size_t i = products.size(); i-- > 0;) tells[i] = seen.insert(products[i].parameter).second;
  for (std::size_t i = 0; i < products.size(); ++i) {
    Parameter& parameter = *products[i].parameter;
    if (before) before(parameter);
    products[i].add();
    products[i].add = nullptr;  // the factors go before the gradient travels
    if (last && tells[i] && parameter.on_grad_ready) parameter.on_grad_ready();
  }
}

DeferScope::DeferScope(const std::vector<Parameter*>& parameters, DeferredProducts& list)
    : parameters_(parameters) {
  for (Parameter* parameter : parameters_) parameter->defer_products_to(&list);
}

DeferScope::~DeferScope() {
  for (Parameter* parameter : parameters_) parameter->defer_products_to(nullptr);
}

}  // namespace colonnade::tensor
