// Grouped matmul: the rows of each expert times its weight matrix.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "colonnade/tensor/parameter.h"

namespace colonnade::ops {

/// Biases [experts, out] of a grouped matmul.
struct GroupedBias {
  tensor::Parameter* bias = nullptr;
  bool add_in_forward =
      true;  ///< false: only the gradient is computed; another tensor-parallel rank adds the bias
};

/// y [n, out] with y_i = x_i w_e^T + b_e for the rows i of expert e: the first rows[0] rows of x [n, in]
/// belong to expert 0, and so on. `weight` [experts, out, in]. Backward returns the gradient of x and adds
/// the weight gradient directly to weight.main_grad, or defers it (Parameter::add_weight_grad); an expert
/// without rows gets zeros. Biases are added in place, expert by expert.
///
/// bf16 on CUDA with widths divisible by 8 uses one call for all experts, and one for each gradient (a single
/// kernel on Hopper and Blackwell; LibTorch loops on other GPUs). Otherwise one matmul per expert runs in
/// sequence. The grouped call rounds the weight gradient to bf16 once per micro-batch.
at::Tensor grouped_matmul(const at::Tensor& x, const std::vector<std::int64_t>& rows,
                          tensor::Parameter& weight, const GroupedBias& bias = {});

}  // namespace colonnade::ops
