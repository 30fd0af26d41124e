// A parameter at run time: the local tensor, its gradient accumulator, and the spec from which
// everything else is derived.
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

class DeferredWeightGrads;

/// The view offset[d] <= i[d] < offset[d] + length[d]; used for the parts of a layout::Shard.
at::Tensor box_view(const at::Tensor& tensor, const std::vector<std::int64_t>& offset,
                    const std::vector<std::int64_t>& length);

/// Owned by its block; data parallelism and the optimizer hold pointers to it, so it is not movable. `value`
/// requires grad if trained; an untrained one is a state in acc_type() of the parameters' dtype. `main_grad`
/// has the shape of `value`. data_parallel::GradBuffers makes it a view into a bucket, in the main gradients'
/// dtype; without buffers the first gradient allocates it in acc_type() of the value's dtype.
class Parameter {
 public:
  /// Allocates the shard of the rank at `position`; `options`: dtype and device of parameters. Values are
  /// undefined until initialize(), and always on meta.
  Parameter(layout::ParamSpec spec, const layout::Position& position, const at::TensorOptions& options);
  ~Parameter();
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;

  /// Sets the shard's initial values, a function of (seed, name, global element); padding rows become zero.
  /// Equal on every layout and device.
  void initialize(std::uint64_t seed);

  /// Frees the memory of the value, which must not be read before move_value_to(). That call then initializes
  /// it like initialize(seed), or with zeros without a seed. No-op for untrained parameters.
  void defer_init(std::optional<std::uint64_t> seed);
  /// Moves the value into `storage` (same numel, flat); `value` becomes a view of it.
  void move_value_to(at::Tensor storage);
  /// Makes main_grad a view of `storage` (same numel, flat).
  void move_grad_to(at::Tensor storage);

  /// Adds `grad` to main_grad. The first call after zero_grad() overwrites instead of adding.
  void accumulate(const at::Tensor& grad);
  /// main_grad += a^T b for `a` [n, out] and `b` [n, in], the weight gradient of a linear layer; without a
  /// temporary if the dtypes allow it.
  void accumulate_weight_grad(const at::Tensor& a, const at::Tensor& b);
  /// Calls `add`, which adds a matmul to main_grad, or defers it (defer_weight_grads_to); its operands must
  /// not change afterwards. Not recorded by autograd.
  void add_weight_grad(std::function<void()> add);
  /// Makes add_weight_grad() defer to `list`; null: compute immediately. After a backward pass with deferred
  /// matmuls, list->run() calls on_grad_ready instead of the pass.
  void defer_weight_grads_to(DeferredWeightGrads* list) { deferred_ = list; }
  /// main_grad for kernels that add in place; zeroed first if nothing has been accumulated yet.
  at::Tensor& main_grad_for_add();
  /// Discards the gradient at no cost; the next accumulate() overwrites the memory.
  void zero_grad() { grad_empty_ = true; }
  /// Whether a gradient has been accumulated since zero_grad().
  [[nodiscard]] bool has_grad() const { return !grad_empty_; }

  at::Tensor value;
  at::Tensor main_grad;
  const layout::ParamSpec spec;
  const layout::Shard shard;
  /// Copy of a tied parameter owned elsewhere (such as tied embeddings): not saved, not counted in norms.
  bool is_tied_copy = false;
  /// Called when the gradient is complete: in the backward pass after the last use of the parameter, on that
  /// pass's thread, or after its deferred matmuls.
  std::function<void()> on_grad_ready;

 private:
  void allocate_grad();
  void after_backward();
  void add_grad_hook();  ///< hooks the autograd node after which the gradient of `value` is complete

  friend class GradHook;
  bool grad_empty_ = true;
  std::function<void()> deferred_init_;  ///< deferred initialization
  DeferredWeightGrads* deferred_ = nullptr;
  bool deferred_in_pass_ = false;  ///< in the current backward pass
  std::shared_ptr<torch::autograd::Node> accumulator_;
  std::uintptr_t hook_ = 0;
};

}  // namespace colonnade::tensor
