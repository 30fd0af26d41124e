// See parameter.h.
#include "colonnade/tensor/parameter.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "colonnade/base/error.h"
#include "colonnade/tensor/deferred_weight_grads.h"
#include "colonnade/tensor/dtypes.h"
#include "colonnade/tensor/fill.h"
#include "colonnade/tensor/storage.h"

namespace colonnade::tensor {

/// Runs after the AccumulateGrad node of a parameter, with or without a gradient: ops that write main_grad
/// directly return an undefined gradient to autograd.
class GradHook final : public torch::autograd::FunctionPostHook {
 public:
  explicit GradHook(Parameter* parameter) : parameter_(parameter) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    parameter_->after_backward();
    return outputs;
  }

 private:
  Parameter* parameter_;
};

at::Tensor box_view(const at::Tensor& tensor, const std::vector<std::int64_t>& offset,
                    const std::vector<std::int64_t>& length) {
  at::Tensor box = tensor;
  for (std::size_t d = 0; d < offset.size(); ++d)
    box = box.narrow(static_cast<std::int64_t>(d), offset[d], length[d]);
  return box;
}

Parameter::Parameter(layout::ParamSpec given, const layout::Position& position,
                     const at::TensorOptions& options)
    : spec(std::move(given)), shard(layout::shard(spec, position)) {
  if (!spec.trained) {
    value = at::empty(shard.shape, options.dtype(acc_type(at::typeMetaToScalarType(options.dtype()))));
    return;
  }
  value = at::empty(shard.shape, options).set_requires_grad(true);
  add_grad_hook();
}

Parameter::~Parameter() {
  if (accumulator_) accumulator_->del_post_hook(hook_);
}

void Parameter::add_grad_hook() {
  accumulator_ = torch::autograd::impl::grad_accumulator(value);
  hook_ = accumulator_->add_post_hook(std::make_unique<GradHook>(this));
}

void Parameter::after_backward() {
  at::Tensor& grad = value.mutable_grad();
  if (grad.defined()) {
    accumulate(grad);
    grad.reset();
  }
  const bool incomplete = std::exchange(deferred_in_pass_, false);
  if (on_grad_ready && !incomplete) on_grad_ready();
}

void Parameter::initialize(std::uint64_t seed) {
  if (value.is_meta()) return;
  const at::NoGradGuard no_grad;
  at::Tensor local = value.device().is_cpu() ? value.detach() : at::empty(shard.shape, at::dtype(at::kFloat));
  fill_initial(local, spec, shard, seed);
  if (!value.device().is_cpu()) value.copy_(local);
}

void Parameter::defer_init(std::optional<std::uint64_t> seed) {
  if (!spec.trained) return;
  release(value.storage());
  deferred_init_ = [this, seed] {
    if (seed)
      initialize(*seed);
    else
      value.detach().zero_();
  };
}

void Parameter::move_value_to(at::Tensor storage) {
  const at::NoGradGuard no_grad;
  at::Tensor view = storage.view(shard.shape);
  if (!value.is_meta() && !deferred_init_) view.copy_(value);
  value.set_data(view);
  if (deferred_init_) std::exchange(deferred_init_, nullptr)();
}

void Parameter::move_grad_to(at::Tensor storage) {
  COL_CHECK(
      grad_empty_,
      "gradient of {} must move before anything is accumulated; got a later move; call move_grad_to() first",
      spec.name);
  main_grad = storage.view(shard.shape);
}

void Parameter::allocate_grad() {
  if (!main_grad.defined())
    main_grad = at::empty(shard.shape, value.options().dtype(acc_type(value.scalar_type())));
}

void Parameter::accumulate(const at::Tensor& grad) {
  const at::NoGradGuard no_grad;
  allocate_grad();
  if (grad_empty_)
    main_grad.copy_(grad);
  else
    main_grad.add_(grad);
  grad_empty_ = false;
}

void Parameter::accumulate_weight_grad(const at::Tensor& a, const at::Tensor& b) {
  // Detached, so that deferred operands do not keep their graph alive.
  add_weight_grad([this, a = a.detach(), b = b.detach()] {
    allocate_grad();
    const at::ScalarType type = main_grad.scalar_type();
    if (a.scalar_type() == type) {
      main_grad.addmm_(a.t(), b, /*beta=*/grad_empty_ ? 0 : 1);
      grad_empty_ = false;
    } else if (a.is_cuda()) {
      accumulate(at::mm(a.t(), b, type));
    } else {
      accumulate(at::mm(a.t(), b));  // mm with a wider output dtype exists for CUDA only
    }
  });
}

void Parameter::add_weight_grad(std::function<void()> add) {
  if (deferred_ != nullptr) {
    deferred_in_pass_ = true;
    return deferred_->push(*this, std::move(add));
  }
  const at::NoGradGuard no_grad;
  add();
}

at::Tensor& Parameter::main_grad_for_add() {
  allocate_grad();
  if (grad_empty_) main_grad.zero_();
  grad_empty_ = false;
  return main_grad;
}

}  // namespace colonnade::tensor
