// A parameter at run time: the local tensor, the fp32 gradient it accumulates into, and the spec
// that everything else is derived from.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "colonnade/layout/param.h"

namespace torch::autograd {
struct Node;
}

namespace colonnade::tensor {

class DeferredProducts;

/// The view offset[d] <= i[d] < offset[d] + length[d]; of the parts of a layout::Shard.
at::Tensor box_of(const at::Tensor& tensor, const std::vector<std::int64_t>& offset,
                  const std::vector<std::int64_t>& length);

/// Owned by the block that computes with it; data parallelism and the optimizer hold pointers, so
/// it does not move. `value` requires grad where it is trained. `main_grad` has the shape of `value` in fp32
/// (float64 for float64 parameters); it is allocated by the first gradient unless data_parallel::GradBuffers
/// has made it a view into a bucket before.
class Parameter {
 public:
  /// Allocates the local part of the rank at `position`; values are undefined until initialize(). On
  /// meta devices nothing is ever filled.
  Parameter(layout::ParamSpec spec, const layout::Position& position, const at::TensorOptions& options);
  ~Parameter();
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;

  /// Fills the local part with the values that (seed, name, global element) stand for; filling rows
  /// become zero. The same on every layout and device.
  void initialize(std::uint64_t seed);

  /// Frees the memory of the value, which nobody may read until move_value_to() gives it another. It will be
  /// filled as initialize(seed) does, or with zeros without a seed. Nothing to do where it is not trained.
  void put_off(std::optional<std::uint64_t> seed);
  /// Moves the value into `storage` (same numel, flat), which it is a view of from now on.
  void move_value_to(at::Tensor storage);
  /// Makes main_grad a view of `storage` (same numel, flat).
  void move_grad_to(at::Tensor storage);

  /// Adds `grad` to main_grad. The first call after zero_grad() writes instead of adding.
  void accumulate(const at::Tensor& grad);
  /// main_grad += a^T b for 2-D `a` [n, out] and `b` [n, in] without a temporary where the types
  /// allow it: the weight gradient of a linear layer.
  void accumulate_product(const at::Tensor& a, const at::Tensor& b);
  /// Calls `add`, which adds a product to main_grad, or leaves it in the list of defer_products_to(): nothing
  /// that it holds may change after. Autograd records nothing of it.
  void add_product(std::function<void()> add);
  /// From now on add_product() leaves its products in `list`; null: it computes them. A backward pass that
  /// left some does not call on_grad_ready; list->run() does.
  void defer_products_to(DeferredProducts* list) { deferred_ = list; }
  /// main_grad for kernels that add in place: cleared first if nothing was accumulated yet.
  at::Tensor& grad_to_add_to();
  /// Forgets the gradient; costs nothing, the memory is overwritten by the next accumulate().
  void zero_grad() { fresh_ = true; }
  /// False while nothing was accumulated since zero_grad().
  [[nodiscard]] bool has_grad() const { return !fresh_; }

  at::Tensor value;
  at::Tensor main_grad;
  const layout::ParamSpec spec;
  const layout::Shard shard;
  /// A copy whose owner is another stage (tied embeddings): not saved, not counted in norms.
  bool is_copy = false;
  /// Called in the backward pass when the last use of the parameter has given its gradient, on the
  /// thread that runs the backward pass, or when products that it left are done.
  std::function<void()> on_grad_ready;

 private:
  void allocate_grad();
  void after_backward();
  void watch();  ///< hooks the autograd node behind which the gradient of `value` is complete

  friend class AfterGradient;
  bool fresh_ = true;
  std::function<void()> fill_;  ///< of a value that was put off
  DeferredProducts* deferred_ = nullptr;
  bool left_products_ = false;  ///< in the backward pass that runs
  std::shared_ptr<torch::autograd::Node> accumulator_;
  std::uintptr_t hook_ = 0;
};

}  // namespace colonnade::tensor
