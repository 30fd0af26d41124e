// See slices.h.
#include "colonnade/convert/slices.h"

#include <algorithm>

namespace colonnade::convert {
namespace {

using checkpoint::Box;
using checkpoint::Slice;

/// A box of local elements in our global coordinates.
struct LocalPart {
  at::Tensor data;
  checkpoint::Sizes offset;
  bool owner;
};

/// Boxes of the local elements [begin, begin + values.numel()).
std::vector<LocalPart> parts_of(const tensor::Parameter& p, std::int64_t begin, const at::Tensor& values) {
  std::vector<LocalPart> parts;
  std::int64_t done = 0;
  for (const Box& local : checkpoint::boxes_of_range(p.shard.shape, begin, begin + values.numel())) {
    const at::Tensor box = values.narrow(0, done, local.numel()).view(local.shape);
    done += local.numel();
    for (const layout::ShardBox& part : p.shard.boxes) {
      const auto common = checkpoint::overlap(local, {part.local, part.length});
      if (!common) continue;
      LocalPart found{box, common->offset, part.owner && !p.is_tied_copy};
      for (std::size_t d = 0; d < common->offset.size(); ++d) {
        found.data = found.data.narrow(static_cast<std::int64_t>(d), common->offset[d] - local.offset[d],
                                       common->shape[d]);
        found.offset[d] += part.global[d] - part.local[d];
      }
      parts.push_back(std::move(found));
    }
  }
  return parts;
}

/// Selects `index` of dimension 0; false if the slice does not contain it.
bool select(Slice& slice, std::int64_t index) {
  const std::int64_t local = index - slice.offset[0];
  if (local < 0 || local >= slice.data.size(0)) return false;
  slice.data = slice.data.select(0, local);
  slice.offset.erase(slice.offset.begin());
  slice.global_shape.erase(slice.global_shape.begin());
  return true;
}

/// Rows of `part` that lie in `tensor`; nothing if none do.
std::optional<Slice> slice_of(const LocalPart& part, const models::hf::StoredTensor& tensor,
                              const checkpoint::Sizes& global) {
  Slice slice{.name = tensor.name,
              .global_shape = global,
              .offset = part.offset,
              .data = part.data,
              .owner = part.owner};
  if (tensor.index && !select(slice, *tensor.index)) return std::nullopt;
  if (!slice.global_shape.empty()) {
    const std::int64_t first = slice.offset[0];
    const std::int64_t from = std::max(first, tensor.first_row);
    const std::int64_t to = std::min(first + slice.data.size(0), tensor.first_row + tensor.rows);
    if (from >= to) return std::nullopt;
    slice.data = slice.data.narrow(0, from - first, to - from);
    slice.offset[0] = from - tensor.first_row;
    slice.global_shape[0] = tensor.rows;
  }
  if (tensor.transposed) {
    const std::size_t last = slice.offset.size() - 1;
    slice.data = slice.data.transpose(-2, -1);
    std::swap(slice.offset[last - 1], slice.offset[last]);
    std::swap(slice.global_shape[last - 1], slice.global_shape[last]);
  }
  if (tensor.has_leading_one) {
    slice.data = slice.data.unsqueeze(0);
    slice.offset.insert(slice.offset.begin(), 0);
    slice.global_shape.insert(slice.global_shape.begin(), 1);
  }
  return slice;
}

}  // namespace

std::vector<Slice> model_slices(const tensor::Parameter& parameter, std::int64_t begin,
                                const at::Tensor& values, std::optional<models::hf::Naming> naming,
                                bool owner) {
  std::vector<Slice> slices;
  const auto tensors = models::hf::tensors_of(parameter.spec, naming);
  for (const LocalPart& part : parts_of(parameter, begin, values))
    for (const auto& tensor : tensors)
      if (auto slice = slice_of(part, tensor, parameter.spec.shape)) {
        slice->owner = slice->owner && owner;
        slices.push_back(std::move(*slice));
      }
  return slices;
}

std::vector<Slice> model_slices(const tensor::Parameter& parameter, std::optional<models::hf::Naming> naming,
                                bool owner) {
  return model_slices(parameter, 0, parameter.value.detach().view(-1), naming, owner);
}

std::vector<Slice> box_slices(const layout::ParamSpec& spec, const Slice& box,
                              std::optional<models::hf::Naming> naming) {
  std::vector<Slice> slices;
  for (const auto& tensor : models::hf::tensors_of(spec, naming))
    if (auto slice = slice_of({box.data, box.offset, box.owner}, tensor, spec.shape))
      slices.push_back(std::move(*slice));
  return slices;
}

std::vector<Slice> state_slices(const std::string& name, const tensor::Parameter& p, std::int64_t begin,
                                const at::Tensor& state, bool owner) {
  std::vector<Slice> slices;
  for (LocalPart& part : parts_of(p, begin, state))
    slices.push_back({.name = name,
                      .global_shape = p.spec.shape,
                      .offset = std::move(part.offset),
                      .data = std::move(part.data),
                      .owner = part.owner && owner});
  return slices;
}

}  // namespace colonnade::convert
