// Products of rows by expert with each expert's own matrix.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "colonnade/tensor/parameter.h"

namespace colonnade::ops {

/// The biases [experts, out] of grouped products.
struct GroupedBias {
  tensor::Parameter* bias = nullptr;
  bool adds = true;  ///< false: their gradient alone is made here, and another rank of a sum adds them
};

/// y [n, out] with y_i = x_i w_e^T + b_e for the rows i of expert e: the first rows[0] of x [n, in] are those
/// of expert 0, and so on. `weight` [experts, out, in]. Backward gives the gradient of x and adds the
/// weights' straight into weight.main_grad, or leaves it for later (Parameter::add_product); an expert
/// without rows gets zeros. Biases are added in place, expert by expert, and their gradients are sums of
/// rows.
///
/// bf16 on CUDA with widths that are multiples of 8: one call for all experts, and one for each of the
/// gradients (one kernel on Hopper and Blackwell; LibTorch loops on others). Elsewhere the products follow
/// one another, each over all rows of its expert. That one call rounds the weights' gradient to bf16 once a
/// micro-batch.
at::Tensor grouped_product(const at::Tensor& x, const std::vector<std::int64_t>& rows,
                           tensor::Parameter& weight, const GroupedBias& bias = {});

}  // namespace colonnade::ops
