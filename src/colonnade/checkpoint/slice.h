// Boxes of global tensors: what a rank holds or wants, and the proof that every element is owned once.
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

/// The common part; nothing when it has no element. Both have the same number of dimensions.
std::optional<Box> overlap(const Box& a, const Box& b);

/// "[0:3, 4:8]"; "[]" for a scalar.
std::string to_text(const Box& box);

/// The row-major elements [begin, end) of a tensor of `shape` as boxes, in order; at most
/// 2 * dimensions - 1 of them. This is how a flat range of an optimizer shard becomes slices.
std::vector<Box> boxes_of_range(const Sizes& shape, std::int64_t begin, std::int64_t end);

/// What keeps `boxes` from covering a tensor of `shape` exactly once: "elements [0:2, 0:8] have no
/// owner", "... have two owners", "... lie outside [4, 8]". Nothing when they do. Boxes without
/// elements count for nothing.
std::optional<std::string> coverage_problem(const Sizes& shape, const std::vector<Box>& boxes);

/// A box of a named global tensor that this rank holds or wants.
struct Slice {
  std::string name;
  Sizes global_shape;
  Sizes offset;
  at::Tensor data;    ///< its sizes are the box's; any device and strides; save reads it, load writes it
  bool owner = true;  ///< save: exactly one rank owns each element; other slices are not saved

  [[nodiscard]] Box box() const { return {offset, data.sizes().vec()}; }
};

/// The part of `slice` that `part` (in coordinates of the global tensor, inside the slice) names;
/// shares its memory.
at::Tensor part_of(const Slice& slice, const Box& part);

}  // namespace colonnade::checkpoint
