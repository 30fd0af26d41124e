// From tensors to kernels: the element type as a template argument, the device as a function.
// Included by the sources of ops/ only.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "colonnade/base/error.h"
#include "colonnade/kernels/types.h"

namespace colonnade::ops {

/// f.operator()<T>() with the kernels' type for `type`. Throws Error for types that are not float.
template <typename F>
void with_float_type(at::ScalarType type, const F& f) {
  switch (type) {
    case at::kFloat:
      return f.template operator()<float>();
    case at::kDouble:
      return f.template operator()<double>();
    case at::kBFloat16:
      return f.template operator()<kernels::BFloat16>();
    case at::kHalf:
      return f.template operator()<kernels::Half>();
    default:
      COL_CHECK(false, "op: the type must be a float type; got {}", c10::toString(type));
  }
}

/// The type in which sums over `type` are kept: kernels::Acc as LibTorch names it.
inline at::ScalarType acc_type(at::ScalarType type) { return type == at::kDouble ? at::kDouble : at::kFloat; }

/// The memory of `tensor` as T; null for undefined tensors and on meta.
template <typename T>
const T* in(const at::Tensor& tensor) {
  return tensor.defined() && !tensor.is_meta() ? static_cast<const T*>(tensor.const_data_ptr()) : nullptr;
}
template <typename T>
T* out(const at::Tensor& tensor) {
  return tensor.defined() && !tensor.is_meta() ? static_cast<T*>(tensor.mutable_data_ptr()) : nullptr;
}

/// The CUDA stream on which LibTorch works now.
inline CUstream_st* cuda_stream(const at::Device& device) {
  return static_cast<CUstream_st*>(
      c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle());
}

/// Runs the kernel of the device that `like` lives on; on meta nothing.
template <typename A>
void launch(const at::Tensor& like, void (*cpu)(const A&), void (*cuda)(const A&, CUstream_st*),
            const A& args) {
  if (like.is_meta() || like.numel() == 0) return;
  if (like.is_cpu())
    cpu(args);
  else
    cuda(args, cuda_stream(like.device()));
}

}  // namespace colonnade::ops
