// A parameter at run time: the local tensor, the fp32 gradient it accumulates into, and the spec
// that everything else is derived from.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

#include "colonnade/plan/param.h"

namespace colonnade::tensor {

/// Owned by the block that computes with it; data parallelism and the optimizer hold pointers, so
/// it does not move. `value` requires grad. `main_grad` has the shape of `value` in fp32 (float64
/// for float64 parameters) and is a view into a gradient bucket once data_parallel::GradBuffers has
/// taken the parameter.
class Parameter {
 public:
  /// Allocates the local part for the rank at `coord` of `size` on the spec's axis; values are
  /// undefined until initialize(). On meta devices nothing is ever filled.
  Parameter(plan::ParamSpec spec, int coord, int size, const at::TensorOptions& options);
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;

  /// Fills the local part with the values that (seed, name, global element) stand for; filling rows
  /// become zero. The same on every layout and device.
  void initialize(std::uint64_t seed);

  /// Adds `grad` to main_grad. The first call after zero_grad() writes instead of adding.
  void accumulate(const at::Tensor& grad);
  /// main_grad += a^T b for 2-D `a` [n, out] and `b` [n, in] without a temporary where the types
  /// allow it: the weight gradient of a linear layer.
  void accumulate_product(const at::Tensor& a, const at::Tensor& b);
  /// Forgets the gradient; costs nothing, the memory is overwritten by the next accumulate().
  void zero_grad() { fresh_ = true; }
  /// False while nothing was accumulated since zero_grad().
  [[nodiscard]] bool has_grad() const { return !fresh_; }
  /// For owners of buckets who have cleared the memory themselves.
  void mark_zeroed() { fresh_ = false; }

  at::Tensor value;
  at::Tensor main_grad;
  const plan::ParamSpec spec;
  const plan::Shard shard;
  /// A copy that another stage owns (tied embeddings): not saved, not counted in norms.
  bool is_copy = false;

 private:
  bool fresh_ = true;
};

}  // namespace colonnade::tensor
