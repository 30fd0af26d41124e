// Counts LibTorch's operators: matmuls and attention by shape, bytes of all others.
#pragma once

#include <ATen/record_function.h>

#include <vector>

#include "colonnade/cost/blocks/compute.h"

namespace colonnade::job {

/// Operators of one pass. Kernels of ops/ that are no operators of LibTorch are not counted, on meta tensors
/// also grouped matmuls and fused attention.
struct OpCounts {
  std::vector<cost::Matmul> matmuls;  ///< in order; a batched one counts its batch in Matmul::count
  double attention_forward = 0;       ///< FLOPs of fused attention over the full square of scores
  double attention_backward = 0;      ///< the same measure for backward calls
  double bytes = 0;                   ///< read and written by all other operators, views excluded
  int kernels = 0;                    ///< number of these operators

  /// FLOPs of the matmuls; a multiply-add counts as two.
  [[nodiscard]] double linears() const;
};

/// Counts the operators of this process from construction on; one at a time, with operators on one thread.
class OpCounter {
 public:
  OpCounter();
  ~OpCounter();
  OpCounter(const OpCounter&) = delete;
  OpCounter& operator=(const OpCounter&) = delete;
  /// The operators since construction or the last call.
  OpCounts take();

 private:
  at::CallbackHandle handle_;
};

}  // namespace colonnade::job
