// Routing on the CPU, parallel over rows.
#include "colonnade/kernels/routing.h"

#include <cmath>

#include "colonnade/kernels/cpu/parallel.h"
#include "colonnade/kernels/instantiate.h"
#include "colonnade/kernels/routing_row.h"

namespace colonnade::kernels::cpu {
namespace {

struct RoutingMath {
  template <typename T>
  static T exp(T x) {
    return std::exp(x);
  }
  template <typename T>
  static T log1p(T x) {
    return std::log1p(x);
  }
  template <typename T>
  static T sqrt(T x) {
    return std::sqrt(x);
  }
};

}  // namespace

template <typename T>
void route(const Route<T>& a) {
  parallel_for(a.n, row_grain(a.e * a.k), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) route_row<RoutingMath>(a, row);
  });
}

template <typename T>
void route_grad(const RouteGrad<T>& a) {
  parallel_for(a.n, row_grain(a.e), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) route_grad_row<RoutingMath>(a, row);
  });
}

COL_ROUTING_KERNELS(COL_INSTANTIATE_CPU_WIDE)

}  // namespace colonnade::kernels::cpu
