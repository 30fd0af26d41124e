// See optimizer.h; the arithmetic is in kernels/optimizer.
#include "colonnade/ops/optimizer.h"

#include <ATen/ops/count_nonzero.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>

#include <algorithm>
#include <numeric>

#include "colonnade/ops/launch.h"

namespace colonnade::ops {
namespace {

using kernels::CopyType;

CopyType copy_type(const at::Tensor& copy) {
  if (!copy.defined()) return CopyType::kNone;
  switch (copy.scalar_type()) {
    case at::kFloat:
      return CopyType::kFloat32;
    case at::kBFloat16:
      return CopyType::kBFloat16;
    case at::kHalf:
      return CopyType::kHalf;
    default:
      COL_CHECK(false, "parameter copy must be fp32, bf16 or fp16; got {}",
                c10::toString(copy.scalar_type()));
  }
}

/// Calls f.operator()<T>() with the dtype T of the main parameters.
template <typename F>
void with_main_type(const at::Tensor& param, const F& f) {
  if (param.scalar_type() == at::kDouble) return f.template operator()<double>();
  COL_CHECK(param.scalar_type() == at::kFloat, "main parameters must be fp32 or float64; got {}",
            c10::toString(param.scalar_type()));
  f.template operator()<float>();
}

/// Calls f.operator()<T>() with the dtype T of main gradients.
template <typename F>
void with_gradient_type(const at::Tensor& grad, const F& f) {
  if (grad.scalar_type() == at::kBFloat16) return f.template operator()<kernels::BFloat16>();
  with_main_type(grad, f);
}

kernels::StoredType stored_type(const at::Tensor& x) {
  switch (x.scalar_type()) {
    case at::kFloat:
      return kernels::StoredType::kFloat32;
    case at::kBFloat16:
      return kernels::StoredType::kBFloat16;
    case at::kHalf:
      return kernels::StoredType::kHalf;
    case at::kFloat8_e4m3fn:
      return kernels::StoredType::kFloat8;
    default:
      COL_CHECK(false, "optimizer tensors must be fp32, bf16, fp16 or fp8; got {}",
                c10::toString(x.scalar_type()));
  }
}

/// Values of `x`, which is as long as `like`. fp16 and fp8 need a scale, the others must not have one.
kernels::StoredValues stored_values(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& like) {
  const kernels::StoredType type = stored_type(x);
  const bool needs_scale = type == kernels::StoredType::kHalf || type == kernels::StoredType::kFloat8;
  COL_CHECK(
      x.is_contiguous() && x.numel() == like.numel() && x.device() == like.device() &&
          scale.defined() == needs_scale && (!needs_scale || scale.scalar_type() == at::kFloat),
      "optimizer tensors must be contiguous and of equal length, fp16 and fp8 with a scale; got {} of {} "
      "elements beside {}, {} scale",
      c10::toString(x.scalar_type()), x.numel(), like.numel(), scale.defined() ? "a" : "no");
  return {out<void>(x), out<float>(scale), type};
}

/// Whether all tensors are fp32, or float64: the kernel without conversions updates them.
bool is_uniform(const AdamTensors& t) {
  const at::ScalarType type = t.param.scalar_type();
  return type != at::kHalf && t.grad.scalar_type() == type && t.m.scalar_type() == type &&
         t.v.scalar_type() == type;
}

void stored_adam_update(const std::vector<AdamTensors>& tensors, const kernels::AdamStep& step) {
  kernels::StoredAdamSpans spans;
  spans.reserve(tensors.size());
  for (const AdamTensors& t : tensors) {
    const kernels::StoredValues grad = stored_values(t.grad, {}, t.param);
    spans.push_back({.param = stored_values(t.param, t.param_scale, t.param),
                     .m = stored_values(t.m, t.m_scale, t.param),
                     .v = stored_values(t.v, t.v_scale, t.param),
                     .grad = grad.data,
                     .grad_type = grad.type,
                     .copy_type = copy_type(t.copy_out),
                     .copy = out<void>(t.copy_out),
                     .n = t.param.numel()});
  }
  const at::Device device = tensors.front().param.device();
  if (device.is_cpu())
    kernels::cpu::stored_adam(spans, step);
  else
    kernels::cuda::stored_adam(spans, step, cuda_stream(device));
}

/// Checks that all tensors are contiguous and as long as `param`, and that `states` have its dtype.
void check_states(const at::Tensor& param, std::initializer_list<at::Tensor> states, const at::Tensor& copy) {
  for (const at::Tensor& x : states)
    COL_CHECK(!x.defined() || (x.numel() == param.numel() && x.scalar_type() == param.scalar_type() &&
                               x.is_contiguous() && x.device() == param.device()),
              "gradient and optimizer states must be contiguous and match the parameter {} {}; got {} {}",
              c10::toString(param.scalar_type()), param.numel(), c10::toString(x.scalar_type()), x.numel());
  COL_CHECK(
      param.is_contiguous() && (!copy.defined() || (copy.numel() == param.numel() && copy.is_contiguous())),
      "parameter and its copy must be contiguous and of equal length; got {} and {}", param.numel(),
      copy.defined() ? copy.numel() : 0);
}

}  // namespace

void adam_update(const std::vector<AdamTensors>& tensors, const kernels::AdamStep& step) {
  if (tensors.empty() || tensors.front().param.is_meta()) return;
  const at::Tensor& first = tensors.front().param;
  if (!std::ranges::all_of(tensors, is_uniform)) return stored_adam_update(tensors, step);
  with_main_type(first, [&]<typename T>() {
    std::vector<kernels::AdamSpan<T>> spans;
    spans.reserve(tensors.size());
    for (const AdamTensors& t : tensors) {
      COL_CHECK(t.param.scalar_type() == first.scalar_type(),
                "parameters of one list must have one dtype; got {} and {}",
                c10::toString(first.scalar_type()), c10::toString(t.param.scalar_type()));
      check_states(t.param, {t.grad, t.m, t.v}, t.copy_out);
      spans.push_back({out<T>(t.param), in<T>(t.grad), out<T>(t.m), out<T>(t.v), t.param.numel(),
                       out<void>(t.copy_out), copy_type(t.copy_out)});
    }
    if (first.is_cpu())
      kernels::cpu::adam(spans, step);
    else
      kernels::cuda::adam(spans, step, cuda_stream(first.device()));
  });
}

void sgd_update(const std::vector<SgdTensors>& tensors, const kernels::SgdStep& step) {
  if (tensors.empty() || tensors.front().param.is_meta()) return;
  const at::Tensor& first = tensors.front().param;
  with_main_type(first, [&]<typename T>() {
    std::vector<kernels::SgdSpan<T>> spans;
    spans.reserve(tensors.size());
    for (const SgdTensors& t : tensors) {
      COL_CHECK(t.param.scalar_type() == first.scalar_type() && (t.momentum.defined() || step.momentum == 0),
                "parameters of one list must have one dtype, and a buffer for momentum {}; got {} and {}",
                step.momentum, c10::toString(first.scalar_type()), c10::toString(t.param.scalar_type()));
      check_states(t.param, {t.grad, t.momentum}, t.copy_out);
      spans.push_back({out<T>(t.param), in<T>(t.grad), out<T>(t.momentum), t.param.numel(),
                       out<void>(t.copy_out), copy_type(t.copy_out)});
    }
    if (first.is_cpu())
      kernels::cpu::sgd(spans, step);
    else
      kernels::cuda::sgd(spans, step, cuda_stream(first.device()));
  });
}

void lion_update(const std::vector<LionTensors>& tensors, const kernels::LionStep& step) {
  if (tensors.empty() || tensors.front().param.is_meta()) return;
  const at::Tensor& first = tensors.front().param;
  with_main_type(first, [&]<typename T>() {
    std::vector<kernels::LionSpan<T>> spans;
    spans.reserve(tensors.size());
    for (const LionTensors& t : tensors) {
      COL_CHECK(t.param.scalar_type() == first.scalar_type() && t.m.defined(),
                "parameters of one list must have one dtype and a momentum; got {} and {}",
                c10::toString(first.scalar_type()), c10::toString(t.param.scalar_type()));
      check_states(t.param, {t.grad, t.m}, t.copy_out);
      spans.push_back({out<T>(t.param), in<T>(t.grad), out<T>(t.m), t.param.numel(), out<void>(t.copy_out),
                       copy_type(t.copy_out)});
    }
    if (first.is_cpu())
      kernels::cpu::lion(spans, step);
    else
      kernels::cuda::lion(spans, step, cuda_stream(first.device()));
  });
}

double sum_squares(const std::vector<at::Tensor>& tensors) {
  if (tensors.empty() || tensors.front().is_meta()) return 0;
  for (const at::Tensor& x : tensors)
    COL_CHECK(x.is_contiguous(), "tensors of sum_squares must be contiguous; got {}", c10::str(x.sizes()));
  double result = 0;
  with_gradient_type(tensors.front(), [&]<typename T>() {
    if (tensors.front().is_cpu()) {
      for (const at::Tensor& x : tensors) result += kernels::cpu::sum_squares(in<T>(x), x.numel());
      return;
    }
    std::int64_t blocks = 0;
    for (const at::Tensor& x : tensors) blocks += kernels::sum_squares_blocks(x.numel());
    const at::Tensor partial = at::empty({blocks}, tensors.front().options().dtype(at::kDouble));
    double* to = out<double>(partial);
    for (const at::Tensor& x : tensors) {
      if (x.numel() > 0) kernels::cuda::sum_squares(in<T>(x), x.numel(), to, cuda_stream(x.device()));
      to += kernels::sum_squares_blocks(x.numel());
    }
    const at::Tensor host = partial.cpu();
    result = std::accumulate(host.const_data_ptr<double>(), host.const_data_ptr<double>() + blocks, 0.0);
  });
  return result;
}

std::int64_t count_zeros(const std::vector<at::Tensor>& tensors) {
  if (tensors.empty() || tensors.front().is_meta()) return 0;
  std::int64_t result = 0;
  if (!tensors.front().is_cpu()) {
    std::vector<at::Tensor> nonzeros;
    for (const at::Tensor& x : tensors) {
      nonzeros.push_back(x.count_nonzero());
      result += x.numel();
    }
    return result - at::stack(nonzeros).sum().item<std::int64_t>();
  }
  with_gradient_type(tensors.front(), [&]<typename T>() {
    for (const at::Tensor& x : tensors) {
      COL_CHECK(x.is_contiguous(), "tensors of count_zeros must be contiguous; got {}", c10::str(x.sizes()));
      result += kernels::cpu::count_zeros(in<T>(x), x.numel());
    }
  });
  return result;
}

bool has_nonfinite(const at::Tensor& x) {
  if (x.is_meta() || x.numel() == 0) return false;
  if (!x.is_cpu()) return !at::isfinite(x).all().item<bool>();
  COL_CHECK(x.is_contiguous(), "tensor of has_nonfinite must be contiguous; got {}", c10::str(x.sizes()));
  bool result = false;
  with_gradient_type(x, [&]<typename T>() { result = kernels::cpu::has_nonfinite(in<T>(x), x.numel()); });
  return result;
}

}  // namespace colonnade::ops
