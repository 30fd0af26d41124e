// See parts.h.
#include "colonnade/checkpoint/parts.h"

#include <sys/mman.h>

#include <ATen/ATen.h>

#include <utility>

namespace colonnade::checkpoint {
namespace {

bool is_aligned(const at::Tensor& tensor) {
  return reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()) % tensor.element_size() == 0;
}

/// A copy of a tensor at an unaligned address, by its bytes.
at::Tensor aligned_copy(const at::Tensor& from) {
  const std::int64_t item = from.element_size();
  Sizes sizes = from.sizes().vec(), strides = from.strides().vec();
  for (std::int64_t& stride : strides) stride *= item;
  sizes.push_back(item);
  strides.push_back(1);
  const at::Tensor bytes = at::from_blob(const_cast<void*>(from.const_data_ptr()), sizes, strides,
                                         at::TensorOptions().dtype(at::kByte));
  return bytes.clone(at::MemoryFormat::Contiguous).view(from.scalar_type()).squeeze(-1);
}

/// Asks the kernel to load the pages of `view` at once instead of by single page faults.
void prefetch(const at::Tensor& view) {
  constexpr std::uintptr_t kPage = 4096;
  if (!view.is_contiguous() || view.nbytes() < 64 * kPage) return;
  const auto begin = reinterpret_cast<std::uintptr_t>(view.const_data_ptr()) / kPage * kPage;
  const auto end = reinterpret_cast<std::uintptr_t>(view.const_data_ptr()) + view.nbytes();
#ifdef MADV_POPULATE_READ
  ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_READ);
#else
  ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_WILLNEED);
#endif
}

}  // namespace

void copy_values(const at::Tensor& to, const at::Tensor& from) {
  to.copy_(from.numel() == 0 || is_aligned(from) ? from : aligned_copy(from));
}

void read_part(const Slice& slice, const Part& part) {
  const std::optional<Box> common = overlap(part.box, slice.box());
  if (!common) return;
  const at::Tensor stored = subview({slice.name, slice.global_shape, part.box.offset, part.data}, *common);
  prefetch(stored);
  copy_values(subview(slice, *common), stored);
}

void read_box(const ComposedTensor& tensor, const Slice& slice) {
  if (tensor.compute) return void(slice.data.copy_(tensor.compute(slice.box())));
  for (const Part& part : tensor.parts) read_part(slice, part);
}

ComposedTensor composed(at::Tensor whole) {
  const Sizes shape = whole.sizes().vec();
  ComposedTensor tensor{.dtype = whole.scalar_type(), .shape = shape, .parts = {}, .compute = {}};
  tensor.parts.push_back({{Sizes(shape.size(), 0), shape}, std::move(whole)});
  return tensor;
}

}  // namespace colonnade::checkpoint
