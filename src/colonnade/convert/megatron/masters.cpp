// See masters.h.
#include "colonnade/convert/megatron/masters.h"

#include <ATen/ATen.h>

namespace colonnade::convert::megatron {

using checkpoint::ComposedTensor;
using checkpoint::Sizes;

namespace {

at::Tensor read_rows(const ComposedTensor& tensor, std::int64_t first, std::int64_t count) {
  Sizes offset(tensor.shape.size(), 0), shape = tensor.shape;
  offset[0] = first;
  shape[0] = count;
  const at::Tensor data = at::zeros(shape, at::TensorOptions().dtype(tensor.dtype));
  checkpoint::read_box(tensor, {"", tensor.shape, offset, data});
  return data;
}

bool equal(const ComposedTensor& weight, const ComposedTensor& master) {
  if (weight.shape != master.shape || weight.shape.empty()) return false;
  constexpr std::int64_t kElements = 1 << 16;
  std::int64_t row = 1;
  for (std::size_t d = 1; d < weight.shape.size(); ++d) row *= weight.shape[d];
  const std::int64_t rows = weight.shape[0];
  const std::int64_t count =
      std::min(rows, std::max<std::int64_t>(kElements / std::max<std::int64_t>(row, 1), 1));
  for (const std::int64_t first : {std::int64_t{0}, (rows - count) / 2, rows - count})
    if (!at::equal(read_rows(weight, first, count), read_rows(master, first, count).to(weight.dtype)))
      return false;
  return true;
}

}  // namespace

bool masters_equal_weights(const Tensors& weights, const Tensors& masters) {
  for (const auto& [name, master] : masters) {
    const auto weight = weights.find(name);
    if (weight == weights.end() || !equal(weight->second, master)) return false;
  }
  return true;
}

}  // namespace colonnade::convert::megatron
