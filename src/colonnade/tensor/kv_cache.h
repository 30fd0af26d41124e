// Key-value cache for text generation.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>

#include "colonnade/tensor/block.h"

namespace colonnade::tensor {

/// One entry per local layer: keys and values [b, groups, length, d], with capacity grown by doubling. All
/// layers of a pass see the same `length` of earlier tokens; call advance() after the pass.
class KeyValueCache {
 public:
  /// Appends `k` and `v` [b, groups, n, d] of the new tokens to the entry of `layer`; returns views of all
  /// keys and values so far.
  std::pair<at::Tensor, at::Tensor> append(std::int64_t layer, const at::Tensor& k, const at::Tensor& v);
  /// Number of cached tokens before the current pass.
  [[nodiscard]] std::int64_t length() const { return length_; }
  void advance(std::int64_t tokens) { length_ += tokens; }

 private:
  struct Entry {
    at::Tensor k, v;  ///< [b, groups, capacity, d]
  };
  std::map<std::int64_t, Entry> entries_;
  std::int64_t length_ = 0;
};

}  // namespace colonnade::tensor
