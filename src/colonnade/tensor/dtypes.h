// LibTorch's dtypes of the dtypes in settings.
#pragma once

#include <c10/core/TensorOptions.h>

#include "colonnade/config/dtypes.h"

namespace colonnade::tensor {

inline at::ScalarType scalar_type(config::Dtype dtype) {
  switch (dtype) {
    case config::Dtype::kFloat64:
      return at::kDouble;
    case config::Dtype::kBfloat16:
      return at::kBFloat16;
    case config::Dtype::kFloat16:
      return at::kHalf;
    case config::Dtype::kFloat8:
      return at::kFloat8_e4m3fn;
    case config::Dtype::kFloat32:
      break;
  }
  return at::kFloat;
}

inline at::TensorOptions options(config::Dtype dtype, const at::Device& device) {
  return at::TensorOptions().dtype(scalar_type(dtype)).device(device);
}

/// Accumulation dtype of kernels, statistics and states without a gradient: fp32, float64 for float64.
/// Matches kernels::Acc.
inline at::ScalarType acc_type(at::ScalarType type) { return type == at::kDouble ? at::kDouble : at::kFloat; }

}  // namespace colonnade::tensor
