// Boxes of global tensors, and the check that every element is owned once.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace colonnade::checkpoint {

using Sizes = std::vector<std::int64_t>;

/// The elements offset[d] <= i[d] < offset[d] + shape[d]. A scalar has no dimensions and one element.
struct Box {
  Sizes offset;
  Sizes shape;
  [[nodiscard]] std::int64_t numel() const;
  bool operator==(const Box&) const = default;
};

/// Intersection of two boxes; nothing when it is empty. Both have the same number of dimensions.
std::optional<Box> overlap(const Box& a, const Box& b);

/// "[0:3, 4:8]"; "[]" for a scalar.
std::string to_text(const Box& box);

/// The row-major elements [begin, end) of a tensor of `shape` as boxes, in order; at most 2 * dimensions - 1
/// of them. Converts flat ranges of optimizer shards to slices.
std::vector<Box> boxes_of_range(const Sizes& shape, std::int64_t begin, std::int64_t end);

/// Why `boxes` do not cover a tensor of `shape` exactly once: "elements [0:2, 0:8] have no owner", "... have
/// two owners", "... lie outside [4, 8]". Nothing when they do. Empty boxes are ignored.
std::optional<std::string> coverage_problem(const Sizes& shape, const std::vector<Box>& boxes);

/// A box of a named global tensor that this rank holds or reads.
struct Slice {
  std::string name;
  Sizes global_shape;
  Sizes offset;
  at::Tensor data;    ///< sizes of the box; any device and strides; read by save, written by load
  bool owner = true;  ///< save: exactly one rank owns each element; other slices are not saved

  [[nodiscard]] Box box() const { return {offset, data.sizes().vec()}; }
};

/// View of `box`, which is in global coordinates and inside the slice, in the slice's memory.
at::Tensor subview(const Slice& slice, const Box& box);

}  // namespace colonnade::checkpoint
