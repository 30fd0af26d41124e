// Gradients reach main_grad by both paths: written by an op directly, or through plain autograd.
#include "colonnade/tensor/parameter.h"

#include <ATen/ops/mm.h>
#include <gtest/gtest.h>

#include "support/device.h"

namespace colonnade::tensor {
namespace {

layout::ParamSpec spec_of(std::string name, std::vector<std::int64_t> shape) {
  layout::ParamSpec spec;
  spec.name = std::move(name);
  spec.shape = std::move(shape);
  return spec;
}

/// y = x w^T whose backward writes the weight gradient into the parameter and returns none to autograd.
struct FusedLinear : torch::autograd::Function<FusedLinear> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& w,
                            Parameter* parameter) {
    ctx->save_for_backward({x});
    ctx->saved_data["parameter"] = reinterpret_cast<std::int64_t>(parameter);
    return at::mm(x, w.t());
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    auto* parameter = reinterpret_cast<Parameter*>(ctx->saved_data["parameter"].toInt());
    parameter->accumulate_weight_grad(grads[0], ctx->get_saved_variables()[0]);
    return {at::mm(grads[0], parameter->value), at::Tensor(), at::Tensor()};
  }
};

TEST(Parameter, CallsOnGradReadyOnceForDirectlyWrittenGradients) {
  Parameter w(spec_of("w", {3, 4}), {}, test::options(at::kFloat));
  w.initialize(1);
  int ready = 0;
  w.on_grad_ready = [&] { ++ready; };
  const auto x = at::randn({5, 4}, test::options(at::kFloat)).requires_grad_();
  const auto probe = at::randn({5, 3}, test::options(at::kFloat));
  // Two uses in one graph: ready comes once, after both.
  auto y = FusedLinear::apply(x, w.value, &w) + FusedLinear::apply(x * 2, w.value, &w);
  (y * probe).sum().backward();
  EXPECT_EQ(ready, 1);
  EXPECT_TRUE(at::allclose(w.main_grad, at::mm(probe.t(), x.detach()) * 3));
  EXPECT_FALSE(w.value.grad().defined());
}

TEST(Parameter, AccumulatesGradientsOfPlainAutograd) {
  Parameter w(spec_of("w", {3, 4}), {}, test::options(at::kFloat));
  w.initialize(1);
  const auto x = at::randn({5, 4}, test::options(at::kFloat));
  for (int pass = 0; pass < 2; ++pass) at::mm(x, w.value.t()).sum().backward();
  EXPECT_TRUE(at::allclose(w.main_grad, x.sum(0).expand({3, 4}) * 2));
  w.zero_grad();
  EXPECT_FALSE(w.has_grad());
  at::mm(x, w.value.t()).sum().backward();
  EXPECT_TRUE(at::allclose(w.main_grad, x.sum(0).expand({3, 4})));
}

TEST(Parameter, KeepsValueAndHookWhenMovedIntoFlatStorage) {
  Parameter w(spec_of("w", {3, 4}), {}, test::options(at::kFloat));
  w.initialize(1);
  const auto before = w.value.detach().clone();
  const auto values = at::zeros({20}, test::options(at::kFloat));
  const auto grads = at::full({20}, 7.0F, test::options(at::kFloat));
  w.move_value_to(values.narrow(0, 4, 12));
  w.move_grad_to(grads.narrow(0, 4, 12));
  EXPECT_TRUE(at::equal(w.value.detach(), before));
  EXPECT_EQ(w.value.const_data_ptr<float>(), values.const_data_ptr<float>() + 4);
  const auto x = at::randn({5, 4}, test::options(at::kFloat)).requires_grad_();
  FusedLinear::apply(x, w.value, &w).sum().backward();
  EXPECT_TRUE(at::allclose(grads.narrow(0, 4, 12).view({3, 4}), x.detach().sum(0).expand({3, 4})));
  EXPECT_EQ(grads[0].item<float>(), 7.0F);
}

TEST(Parameter, DeferredInitRunsWhenMovedIntoStorage) {
  layout::ParamSpec spec = spec_of("w", {3, 4});
  spec.init = {layout::InitKind::kNormal, 0.5};
  Parameter eager(spec, {}, test::options(at::kFloat)), deferred(spec, {}, test::options(at::kFloat)),
      zeros(spec, {}, test::options(at::kFloat));
  eager.initialize(3);
  deferred.defer_init(3);
  zeros.defer_init(std::nullopt);
  EXPECT_EQ(deferred.value.storage().nbytes(), 0U);
  const at::Tensor flat = at::full({24}, 7.0, test::options(at::kFloat));
  deferred.move_value_to(flat.narrow(0, 0, 12));
  zeros.move_value_to(flat.narrow(0, 12, 12));
  EXPECT_TRUE(at::equal(deferred.value, eager.value));
  EXPECT_EQ(zeros.value.detach().abs().sum().item<float>(), 0);
  const at::Tensor second = at::empty({12}, test::options(at::kFloat));
  flat.zero_();
  deferred.move_value_to(second);  // the second move copies
  EXPECT_EQ(deferred.value.detach().abs().sum().item<float>(), 0);
}

}  // namespace
}  // namespace colonnade::tensor
