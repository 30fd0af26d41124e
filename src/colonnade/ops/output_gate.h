// Gate of the attention output (--attention-output-gate).
#pragma once

#include <ATen/core/Tensor.h>

namespace colonnade::ops {

/// y = x sigmoid(gate), of equal shapes and dtypes; computed in fp32 (float64 for float64), y has the dtype
/// of x. Saved for backward: x and gate. Source: Megatron's core/transformer/attention.py
/// (_apply_output_gate); Qiu et al. 2025 (gated attention).
at::Tensor output_gate(const at::Tensor& x, const at::Tensor& gate);

}  // namespace colonnade::ops
