// Dispatch from tensors to kernels by dtype and device. Included only by sources of ops/.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "colonnade/base/error.h"
#include "colonnade/kernels/types.h"
#include "colonnade/tensor/dtypes.h"

namespace colonnade::ops {

/// Calls f.operator()<T>() with the kernels' type T for `type`. Throws Error for non-floating-point types.
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
      COL_CHECK(false, "dtype of an op must be floating-point; got {}", c10::toString(type));
  }
}

/// Calls f.operator()<T, S>() for values of `type` and a residual stream of `stream`, the same dtype or the
/// accumulation dtype of `type`.
template <typename F>
void with_stream_types(at::ScalarType type, at::ScalarType stream, const F& f) {
  with_float_type(type, [&]<typename T>() {
    if (stream == type)
      f.template operator()<T, T>();
    else
      f.template operator()<T, kernels::Acc<T>>();
  });
}

using tensor::acc_type;

/// Whether a residual stream of values of `type` may have the dtype `stream`.
inline bool is_stream_of(at::ScalarType type, at::ScalarType stream) {
  return stream == type || stream == acc_type(type);
}

/// Data pointer of `tensor` as T; null if undefined or on meta.
template <typename T>
const T* in(const at::Tensor& tensor) {
  return tensor.defined() && !tensor.is_meta() ? static_cast<const T*>(tensor.const_data_ptr()) : nullptr;
}
template <typename T>
T* out(const at::Tensor& tensor) {
  return tensor.defined() && !tensor.is_meta() ? static_cast<T*>(tensor.mutable_data_ptr()) : nullptr;
}

/// LibTorch's current CUDA stream.
inline CUstream_st* cuda_stream(const at::Device& device) {
  return static_cast<CUstream_st*>(
      c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle());
}

/// Runs the kernel for the device of `like`; no-op on meta.
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
