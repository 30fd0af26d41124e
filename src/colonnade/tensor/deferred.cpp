// See deferred.h.
#include "colonnade/tensor/deferred.h"

#include <set>
#include <utility>

#include "colonnade/tensor/parameter.h"

namespace colonnade::tensor {

void DeferredProducts::run(bool last, const std::function<void(Parameter&)>& before) {
  std::vector<Product> products = std::exchange(products_, {});
  std::vector<bool> tells(products.size(), false);
  std::set<const Parameter*> seen;
  for (std::size_t i = products.size(); i-- > 0;) tells[i] = seen.insert(products[i].parameter).second;
  for (std::size_t i = 0; i < products.size(); ++i) {
    const Product one = std::exchange(products[i], {});
    if (before) before(*one.parameter);
    one.parameter->accumulate_product(one.a, one.b);
    if (last && tells[i] && one.parameter->on_grad_ready) one.parameter->on_grad_ready();
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
