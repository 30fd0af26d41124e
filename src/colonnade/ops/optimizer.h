// Optimizer steps and norms over lists of flat tensors, on CPU and CUDA. Meta tensors do nothing.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "colonnade/kernels/optimizer.h"

namespace colonnade::ops {

/// One contiguous run of elements, all tensors of equal length and on one device. fp32 (or all
/// float64) but `copy_out`, which may be bf16, fp16 or fp32: it gets the new value of `param`, rounded.
struct AdamTensors {
  at::Tensor param;
  at::Tensor grad;
  at::Tensor m;
  at::Tensor v;
  at::Tensor copy_out;  ///< may be undefined
};
struct SgdTensors {
  at::Tensor param;
  at::Tensor grad;
  at::Tensor momentum;  ///< undefined when the momentum is 0
  at::Tensor copy_out;  ///< may be undefined
};

/// The formulas are in kernels/optimizer.h. One pass over memory for all tensors of the list.
void adam_update(const std::vector<AdamTensors>& tensors, const kernels::AdamStep& step);
void sgd_update(const std::vector<SgdTensors>& tensors, const kernels::SgdStep& step);

/// Sum of squares of contiguous tensors on one device as float64 sums over fixed blocks, added tensor by
/// tensor: the same for every number of threads. On CUDA the host waits once for all. 0 for meta.
double sum_squares(const std::vector<at::Tensor>& tensors);
/// Number of elements equal to 0; on CUDA the host waits once for all.
std::int64_t count_zeros(const std::vector<at::Tensor>& tensors);
/// True when an element is infinite or not a number.
bool has_nonfinite(const at::Tensor& x);

}  // namespace colonnade::ops
