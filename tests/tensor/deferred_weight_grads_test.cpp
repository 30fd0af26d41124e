// Deferred weight gradients are bitwise identical, and on_grad_ready is called when a gradient is complete.
#include "colonnade/tensor/deferred_weight_grads.h"

#include <ATen/ops/mm.h>
#include <gtest/gtest.h>

#include "colonnade/tensor/parameter.h"
#include "support/device.h"

namespace colonnade::tensor {
namespace {

/// y = x w^T + b: the weight gradient can be deferred, the bias gradient cannot.
struct Linear : torch::autograd::Function<Linear> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& w,
                            const at::Tensor& b, Parameter* weight, Parameter* bias) {
    ctx->save_for_backward({x});
    ctx->saved_data["weight"] = reinterpret_cast<std::int64_t>(weight);
    ctx->saved_data["bias"] = reinterpret_cast<std::int64_t>(bias);
    return at::mm(x, w.t()) + b;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    auto* weight = reinterpret_cast<Parameter*>(ctx->saved_data["weight"].toInt());
    auto* bias = reinterpret_cast<Parameter*>(ctx->saved_data["bias"].toInt());
    weight->accumulate_weight_grad(grads[0], ctx->get_saved_variables()[0]);
    bias->accumulate(grads[0].sum(0));
    return {at::mm(grads[0], weight->value), at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

std::unique_ptr<Parameter> parameter(std::vector<std::int64_t> shape) {
  layout::ParamSpec spec;
  spec.name = "p";
  spec.shape = std::move(shape);
  auto p = std::make_unique<Parameter>(spec, layout::Position(), test::options(at::kFloat));
  const at::NoGradGuard no_grad;
  p->value.normal_();
  return p;
}

struct Net {
  std::unique_ptr<Parameter> w = parameter({4, 4}), b = parameter({4});
  std::vector<Parameter*> all{w.get(), b.get()};
  int w_ready = 0, b_ready = 0;
  Net() {
    w->on_grad_ready = [this] { ++w_ready; };
    b->on_grad_ready = [this] { ++b_ready; };
  }
  /// Uses the weight twice.
  [[nodiscard]] at::Tensor loss(const at::Tensor& x) const {
    const auto once = Linear::apply(x, w->value, b->value, w.get(), b.get());
    return Linear::apply(once.tanh(), w->value, b->value, w.get(), b.get()).square().sum();
  }
};

TEST(DeferredWeightGrads, AreBitwiseIdentical) {
  Net net;
  const auto x = at::randn({5, 4}, test::options(at::kFloat)).requires_grad_();
  for (const double factor : {1.0, 2.0}) net.loss(x * factor).backward();
  const at::Tensor weight = net.w->main_grad.clone(), bias = net.b->main_grad.clone(),
                   input = x.grad().clone();

  for (Parameter* p : net.all) p->zero_grad();
  x.mutable_grad().reset();
  net.w_ready = net.b_ready = 0;
  std::vector<DeferredWeightGrads> lists(2);
  for (const int pass : {0, 1}) {
    const DeferScope scope(net.all, lists[static_cast<std::size_t>(pass)]);
    net.loss(x * (pass + 1.0)).backward();
  }
  EXPECT_TRUE(at::equal(x.grad(), input));  // input and bias gradients are complete
  EXPECT_TRUE(at::equal(net.b->main_grad, bias));
  EXPECT_FALSE(net.w->has_grad());
  EXPECT_EQ(net.b_ready, 2);
  EXPECT_EQ(net.w_ready, 0);

  lists[0].run(/*last=*/false);
  EXPECT_EQ(net.w_ready, 0);
  EXPECT_TRUE(net.w->has_grad());
  lists[1].run(/*last=*/true);
  EXPECT_EQ(net.w_ready, 1);  // once, after the second use
  EXPECT_TRUE(at::equal(net.w->main_grad, weight));
  EXPECT_TRUE(lists[0].empty() && lists[1].empty());
}

TEST(DeferredWeightGrads, AreComputedAtOnceOutsideTheScope) {
  Net net;
  const auto x = at::randn({5, 4}, test::options(at::kFloat));
  DeferredWeightGrads list;
  { const DeferScope scope(net.all, list); }
  net.loss(x).backward();
  EXPECT_TRUE(list.empty());
  EXPECT_TRUE(net.w->has_grad());
  EXPECT_EQ(net.w_ready, 1);
}

TEST(DeferredWeightGrads, FreeTheirOperands) {
  Net net;
  DeferredWeightGrads list;
  {
    const DeferScope scope(net.all, list);
    net.loss(at::randn({5, 4}, test::options(at::kFloat))).backward();
  }
  at::Tensor operand = at::randn({5, 4}, test::options(at::kFloat));
  const c10::weak_intrusive_ptr<c10::TensorImpl> held(operand.getIntrusivePtr());
  list.push(*net.w, [&net, operand] { net.w->accumulate_weight_grad(operand, operand); });
  operand.reset();
  EXPECT_FALSE(held.expired());
  net.w->on_grad_ready = [&] {
    EXPECT_TRUE(held.expired()) << "operands must be freed before the gradient is reduced";
  };
  list.run(/*last=*/true);
  EXPECT_TRUE(held.expired());
}

}  // namespace
}  // namespace colonnade::tensor
