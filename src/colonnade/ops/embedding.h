// Embedding lookup, [b, s] -> [s, b, h].
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "colonnade/tensor/parameter.h"

namespace colonnade::ops {

/// tokens int64 [b, s] on the table's device; `table` [>= rows, h] holds the rows of tokens [first_row,
/// first_row + rows). Returns [s, b, h]; tokens outside the range yield zeros, for a sum over the ranks with
/// the other rows. Backward adds directly to table.main_grad, each element in order (s, b), so the result is
/// independent of the number of threads and deterministic on CUDA.
at::Tensor embedding(const at::Tensor& tokens_bs, tensor::Parameter& table, std::int64_t first_row,
                     std::int64_t rows);

}  // namespace colonnade::ops
