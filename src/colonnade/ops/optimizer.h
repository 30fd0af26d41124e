// Optimizer updates and gradient statistics over lists of flat tensors, on CPU and CUDA. No-ops on meta
// tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "colonnade/kernels/optimizer.h"

namespace colonnade::ops {

/// Contiguous tensors of equal length on one device, fp32 (or all float64). `copy_out` may be bf16, fp16 or
/// fp32 and receives the new value of `param`, rounded. For Adam `grad` may also be bf16, `param` fp16 with a
/// scale, and the states bf16, or fp16 or fp8 (e4m3) with a scale: fp32 [2] as kernels::StoredValues::scale.
struct AdamTensors {
  at::Tensor param;
  at::Tensor grad;
  at::Tensor m;
  at::Tensor v;
  at::Tensor copy_out;  ///< may be undefined
  at::Tensor param_scale = {}, m_scale = {}, v_scale = {};
};
struct SgdTensors {
  at::Tensor param;
  at::Tensor grad;
  at::Tensor momentum;  ///< undefined if the momentum is 0
  at::Tensor copy_out;  ///< may be undefined
};

struct LionTensors {
  at::Tensor param;
  at::Tensor grad;
  at::Tensor m;
  at::Tensor copy_out;  ///< may be undefined
};

/// Formulas in kernels/optimizer.h. One pass over memory for all tensors of the list.
void adam_update(const std::vector<AdamTensors>& tensors, const kernels::AdamStep& step);
void sgd_update(const std::vector<SgdTensors>& tensors, const kernels::SgdStep& step);
void lion_update(const std::vector<LionTensors>& tensors, const kernels::LionStep& step);

/// Statistics of fp32, float64 or bf16 gradients. Sum of squares of contiguous tensors on one device, as
/// float64 sums over fixed blocks, added tensor by tensor; independent of the number of threads. One device
/// synchronization on CUDA. 0 on meta.
double sum_squares(const std::vector<at::Tensor>& tensors);
/// Number of elements equal to 0; one device synchronization on CUDA.
std::int64_t count_zeros(const std::vector<at::Tensor>& tensors);
/// Whether any element is infinite or NaN.
bool has_nonfinite(const at::Tensor& x);

}  // namespace colonnade::ops
