// See kv_cache.h.
#include "colonnade/tensor/kv_cache.h"

#include <ATen/ops/empty.h>

#include <algorithm>

namespace colonnade::tensor {
namespace {

at::Tensor grown(const at::Tensor& old, const at::Tensor& like, std::int64_t length, std::int64_t capacity) {
  at::Tensor larger = at::empty({like.size(0), like.size(1), capacity, like.size(3)}, like.options());
  if (old.defined()) larger.narrow(2, 0, length).copy_(old.narrow(2, 0, length));
  return larger;
}

}  // namespace

std::pair<at::Tensor, at::Tensor> KeyValueCache::append(std::int64_t layer, const at::Tensor& k,
                                                        const at::Tensor& v) {
  Entry& entry = entries_[layer];
  const std::int64_t total = length_ + k.size(2);
  const std::int64_t capacity = entry.k.defined() ? entry.k.size(2) : 0;
  if (total > capacity) {
    const std::int64_t wanted = std::max<std::int64_t>({total, capacity * 2, 64});
    entry.k = grown(entry.k, k, length_, wanted);
    entry.v = grown(entry.v, v, length_, wanted);
  }
  entry.k.narrow(2, length_, k.size(2)).copy_(k);
  entry.v.narrow(2, length_, v.size(2)).copy_(v);
  return {entry.k.narrow(2, 0, total), entry.v.narrow(2, 0, total)};
}

}  // namespace colonnade::tensor
