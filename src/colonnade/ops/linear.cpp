// See linear.h.
#include "colonnade/ops/linear.h"

#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

#include "colonnade/base/simd.h"

namespace colonnade::ops {
namespace {

bool processor_prefers_onednn() {
  static const bool kPrefers = COL_SIMD != 0 && at::hasMKL() && at::hasMKLDNN() &&
                               !__builtin_cpu_is("intel") && __builtin_cpu_supports("avx512f") != 0;
  return kPrefers;
}

bool use_onednn(const at::Tensor& x) {
  return x.is_cpu() && x.scalar_type() == at::kFloat && x.numel() > 0 && processor_prefers_onednn();
}

/// x w^T + bias, where w may be a transposed view.
at::Tensor onednn_matmul(const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& bias) {
  using Signature =
      at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, c10::string_view,
                 c10::List<std::optional<at::Scalar>>, std::optional<c10::string_view>);
  static const auto kLinear =
      c10::Dispatcher::singleton().findSchemaOrThrow("mkldnn::_linear_pointwise", "").typed<Signature>();
  return kLinear.call(x, w, bias, "none", c10::List<std::optional<at::Scalar>>(), "");
}

}  // namespace

at::Tensor as_rows(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

at::Tensor linear_forward(const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& bias) {
  if (use_onednn(x) && w.numel() > 0) return onednn_matmul(x, w, bias);
  return bias ? at::addmm(*bias, x, w.t()) : at::mm(x, w.t());
}

at::Tensor linear_input_grad(const at::Tensor& dy, const at::Tensor& w) {
  return use_onednn(dy) && w.numel() > 0 ? onednn_matmul(dy, w.t(), std::nullopt) : at::mm(dy, w);
}

}  // namespace colonnade::ops
