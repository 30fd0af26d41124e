// See slice.h.
#include "colonnade/checkpoint/slice.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "colonnade/base/error.h"

namespace colonnade::checkpoint {
namespace {

/// Appends `a` without `hole` to `out`, as disjoint boxes.
void subtract(Box a, const Box& hole, std::vector<Box>& out) {
  const std::optional<Box> common = overlap(a, hole);
  if (!common) {
    out.push_back(std::move(a));
    return;
  }
  for (std::size_t d = 0; d < a.shape.size(); ++d) {  // split off the parts before and after the hole
    const std::int64_t end = a.offset[d] + a.shape[d];
    const std::int64_t common_end = common->offset[d] + common->shape[d];
    for (const auto& [from, to] : {std::pair{a.offset[d], common->offset[d]}, std::pair{common_end, end}}) {
      if (from == to) continue;
      Box piece = a;
      piece.offset[d] = from;
      piece.shape[d] = to - from;
      out.push_back(std::move(piece));
    }
    a.offset[d] = common->offset[d];
    a.shape[d] = common->shape[d];
  }
}

Box first_gap(const Sizes& shape, const std::vector<Box>& boxes) {
  std::vector<Box> rest{{Sizes(shape.size(), 0), shape}};
  for (const Box& box : boxes) {
    std::vector<Box> next;
    for (Box& piece : rest) subtract(std::move(piece), box, next);
    rest = std::move(next);
  }
  return *std::min_element(rest.begin(), rest.end(),
                           [](const Box& a, const Box& b) { return a.offset < b.offset; });
}

bool inside(const Box& box, const Sizes& shape) {
  if (box.offset.size() != shape.size() || box.shape.size() != shape.size()) return false;
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (box.offset[d] < 0 || box.shape[d] < 0 || box.offset[d] > shape[d] ||
        box.shape[d] > shape[d] - box.offset[d])
      return false;
  return true;
}

/// The intersection of some two boxes. Sweeps over dimension 0, which is fast for chunks of flat ranges: few
/// of them overlap there.
std::optional<Box> first_overlap(std::vector<Box> boxes) {
  std::sort(boxes.begin(), boxes.end(), [](const Box& a, const Box& b) { return a.offset < b.offset; });
  std::vector<const Box*> open;
  for (const Box& box : boxes) {
    std::erase_if(open, [&](const Box* other) {
      return !box.shape.empty() && other->offset[0] + other->shape[0] <= box.offset[0];
    });
    for (const Box* other : open)
      if (auto common = overlap(*other, box)) return common;
    open.push_back(&box);
  }
  return std::nullopt;
}

void append_range(const Sizes& shape, std::size_t dim, Sizes& row, std::int64_t begin, std::int64_t end,
                  std::vector<Box>& out) {
  if (begin >= end) return;
  const std::int64_t width = std::accumulate(shape.begin() + static_cast<std::ptrdiff_t>(dim) + 1,
                                             shape.end(), std::int64_t{1}, std::multiplies<>());
  std::int64_t first = begin / width;
  const std::int64_t last = end / width;
  const auto inner = [&](std::int64_t index, std::int64_t from, std::int64_t to) {
    row.push_back(index);
    append_range(shape, dim + 1, row, from, to, out);
    row.pop_back();
  };
  if (begin % width != 0) {
    inner(first, begin % width, first == last ? end % width : width);
    if (first == last) return;
    ++first;
  }
  if (first < last) {
    Box rows{row, Sizes(row.size(), 1)};
    rows.offset.push_back(first);
    rows.shape.push_back(last - first);
    rows.offset.resize(shape.size(), 0);
    rows.shape.insert(rows.shape.end(), shape.begin() + static_cast<std::ptrdiff_t>(dim) + 1, shape.end());
    out.push_back(std::move(rows));
  }
  if (end % width != 0) inner(last, 0, end % width);
}

}  // namespace

std::int64_t Box::numel() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::optional<Box> overlap(const Box& a, const Box& b) {
  COL_CHECK(a.shape.size() == b.shape.size(), "overlap: boxes must have equal dimensions; got {} and {}",
            to_text(a), to_text(b));
  Box common{Sizes(a.shape.size()), Sizes(a.shape.size())};
  for (std::size_t d = 0; d < a.shape.size(); ++d) {
    common.offset[d] = std::max(a.offset[d], b.offset[d]);
    common.shape[d] = std::min(a.offset[d] + a.shape[d], b.offset[d] + b.shape[d]) - common.offset[d];
    if (common.shape[d] <= 0) return std::nullopt;
  }
  return common;
}

std::string to_text(const Box& box) {
  std::vector<std::string> ranges;
  for (std::size_t d = 0; d < box.shape.size(); ++d)
    ranges.push_back(fmt::format("{}:{}", box.offset[d], box.offset[d] + box.shape[d]));
  return fmt::format("[{}]", fmt::join(ranges, ", "));
}

std::vector<Box> boxes_of_range(const Sizes& shape, std::int64_t begin, std::int64_t end) {
  const std::int64_t numel = Box{{}, shape}.numel();
  COL_CHECK(0 <= begin && begin <= end && end <= numel,
            "boxes_of_range: the range must lie in {} elements; got [{}, {})", numel, begin, end);
  std::vector<Box> boxes;
  if (begin == end) return boxes;
  if (shape.empty()) return {Box{}};
  Sizes row;
  append_range(shape, 0, row, begin, end, boxes);
  return boxes;
}

std::optional<std::string> coverage_problem(const Sizes& shape, const std::vector<Box>& boxes) {
  std::int64_t numel = 1;
  for (const std::int64_t size : shape)
    if (size < 0 || __builtin_mul_overflow(numel, size, &numel))
      return fmt::format("the shape [{}] is impossible", fmt::join(shape, ", "));
  std::vector<Box> filled;
  for (const Box& box : boxes) {
    if (!inside(box, shape))
      return fmt::format("elements {} lie outside [{}]", to_text(box), fmt::join(shape, ", "));
    if (box.numel() > 0) filled.push_back(box);
  }
  if (const auto twice = first_overlap(filled))
    return fmt::format("elements {} have two owners", to_text(*twice));
  std::int64_t covered = 0;
  for (const Box& box : filled) covered += box.numel();
  if (covered != numel) return fmt::format("elements {} have no owner", to_text(first_gap(shape, filled)));
  return std::nullopt;
}

at::Tensor subview(const Slice& slice, const Box& box) {
  at::Tensor view = slice.data.detach();
  for (std::size_t d = 0; d < box.shape.size(); ++d)
    view = view.narrow(static_cast<std::int64_t>(d), box.offset[d] - slice.offset[d], box.shape[d]);
  return view;
}

}  // namespace colonnade::checkpoint
