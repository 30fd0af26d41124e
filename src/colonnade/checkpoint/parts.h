// Tensors that are composed of parts of stored tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "colonnade/checkpoint/slice.h"

namespace colonnade::checkpoint {

/// Values of a box: a view of stored values in any strides, with the sizes of the box, and possibly at an
/// address that is not aligned to its elements.
struct Part {
  Box box;
  at::Tensor data;
};

/// A tensor as boxes that cover it once, or as a function of a box where values are computed when they are
/// read.
struct ComposedTensor {
  at::ScalarType dtype = at::kFloat;
  Sizes shape;
  std::vector<Part> parts;
  std::function<at::Tensor(const Box&)> compute;  ///< with `dtype`; takes the place of `parts`
};

/// Copies values into `to`, converting floating-point dtypes, from any address (see Part).
void copy_values(const at::Tensor& to, const at::Tensor& from);

/// Copies the values of a part that lie in a slice of the same tensor.
void read_part(const Slice& slice, const Part& part);
/// Fills a slice of the tensor.
void read_box(const ComposedTensor& tensor, const Slice& slice);

/// A composed tensor with one part.
ComposedTensor composed(at::Tensor whole);

}  // namespace colonnade::checkpoint
