// See slices.h.
#include "colonnade/convert/slices.h"

#include <algorithm>

namespace colonnade::convert {
namespace {

using checkpoint::Box;
using checkpoint::Slice;

/// A part of the local tensor in our global coordinates.
struct LocalPart {
  at::Tensor data;
  checkpoint::Sizes offset;
  bool owner;
};

std::vector<LocalPart> parts_of(const tensor::Parameter& p, const at::Tensor& value) {
  std::vector<LocalPart> parts;
  for (const plan::Part& part : p.shard.parts)
    parts.push_back({tensor::box_of(value, part.local, part.length), part.global, part.owner && !p.is_copy});
  return parts;
}

/// Takes index `index` of dimension 0 out of the slice; false when it is not in it.
bool select(Slice& slice, std::int64_t index) {
  const std::int64_t local = index - slice.offset[0];
  if (local < 0 || local >= slice.data.size(0)) return false;
  slice.data = slice.data.select(0, local);
  slice.offset.erase(slice.offset.begin());
  slice.global_shape.erase(slice.global_shape.begin());
  return true;
}

/// The rows of `part` that lie in `tensor`; nothing when there are none.
std::optional<Slice> slice_of(const LocalPart& part, const models::gpt::HfTensor& tensor,
                              const checkpoint::Sizes& global) {
  Slice slice{.name = tensor.name,
              .global_shape = global,
              .offset = part.offset,
              .data = part.data,
              .owner = part.owner};
  if (tensor.expert && !select(slice, *tensor.expert)) return std::nullopt;
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
  return slice;
}

}  // namespace

std::vector<Slice> model_slices(const tensor::Parameter& parameter,
                                std::optional<models::gpt::HfNaming> naming, bool replica_owner) {
  return model_slices(parameter, parameter.value.detach(), naming, replica_owner);
}

std::vector<Slice> model_slices(const tensor::Parameter& parameter, const at::Tensor& value,
                                std::optional<models::gpt::HfNaming> naming, bool replica_owner) {
  std::vector<Slice> slices;
  const auto tensors = models::gpt::hf_tensors(parameter.spec, naming);
  for (const LocalPart& part : parts_of(parameter, value))
    for (const auto& tensor : tensors)
      if (auto slice = slice_of(part, tensor, parameter.spec.shape)) {
        slice->owner = slice->owner && replica_owner;
        slices.push_back(std::move(*slice));
      }
  return slices;
}

std::vector<Slice> state_slices(const std::string& name, const tensor::Parameter& p, std::int64_t begin,
                                const at::Tensor& state, bool replica_owner) {
  std::vector<Slice> slices;
  std::int64_t done = 0;
  for (const Box& local : checkpoint::boxes_of_range(p.shard.shape, begin, begin + state.numel())) {
    const at::Tensor box = state.narrow(0, done, local.numel()).view(local.shape);
    done += local.numel();
    for (const plan::Part& part : p.shard.parts) {
      const auto common = checkpoint::overlap(local, {part.local, part.length});
      if (!common) continue;
      Slice slice{.name = name,
                  .global_shape = p.spec.shape,
                  .offset = common->offset,
                  .data = box,
                  .owner = part.owner && replica_owner && !p.is_copy};
      for (std::size_t d = 0; d < common->offset.size(); ++d) {
        slice.data = slice.data.narrow(static_cast<std::int64_t>(d), common->offset[d] - local.offset[d],
                                       common->shape[d]);
        slice.offset[d] += part.global[d] - part.local[d];
      }
      slices.push_back(std::move(slice));
    }
  }
  return slices;
}

}  // namespace colonnade::convert
