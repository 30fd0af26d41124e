// Rows of a table by token number, as [s, b, h].
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "colonnade/tensor/parameter.h"

namespace colonnade::ops {

/// tokens int64 [b, s] on the table's device; `table` [>= rows, h] holds the rows of tokens [first_row,
/// first_row + rows). Returns [s, b, h]; tokens outside the range give zeros, to be summed over the ranks
/// that hold the other rows. Backward adds straight into table.main_grad, each element in the order (s, b),
/// so the result is the same for every number of threads and on CUDA.
at::Tensor embedding(const at::Tensor& tokens_bs, tensor::Parameter& table, std::int64_t first_row,
                     std::int64_t rows);

}  // namespace colonnade::ops
