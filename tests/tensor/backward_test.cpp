// A backward pass frees its initial gradient as soon as the first node has used it.
#include "colonnade/tensor/backward.h"

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/variable.h>

#include "support/device.h"

namespace colonnade::tensor {
namespace {

using torch::autograd::variable_list;
using Weak = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

/// y = 2 x; its backward calls `look`.
struct Twice : torch::autograd::Function<Twice> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x,
                            const std::function<void()>& look) {
    ctx->saved_data["look"] = reinterpret_cast<std::int64_t>(&look);
    return x * 2;
  }
  static variable_list backward(torch::autograd::AutogradContext* ctx, const variable_list& grads) {
    (*reinterpret_cast<const std::function<void()>*>(ctx->saved_data["look"].toInt()))();
    return {grads[0] * 2, at::Tensor()};
  }
};

TEST(Backward, FreesTheInitialGradientAfterTheFirstNode) {
  const at::TensorOptions options = test::options(at::kDouble);
  at::Tensor x = at::ones({3}, options).requires_grad_();
  Weak gradient{at::Tensor().getIntrusivePtr()};
  std::vector<bool> alive;
  const std::function<void()> look = [&] { alive.push_back(!gradient.expired()); };
  const at::Tensor y = Twice::apply(Twice::apply(x, look), look);
  at::Tensor initial = at::ones({3}, options) * 5;
  gradient = Weak(initial.getIntrusivePtr());
  backward(torch::autograd::impl::gradient_edge(y), std::move(initial));
  EXPECT_EQ(alive, (std::vector<bool>{true, false}));
  EXPECT_TRUE(x.grad().equal(at::ones({3}, options) * 20));
}

// A gradient that passes through unchanged becomes the leaf's gradient without a copy.
TEST(Backward, MovesAnUnsharedGradientIntoTheLeaf) {
  at::Tensor x = at::ones({3}, test::options(at::kDouble)).requires_grad_();
  at::Tensor initial = at::ones({3}, test::options(at::kDouble));
  const void* memory = initial.data_ptr();
  backward(torch::autograd::impl::gradient_edge(x.view({3})), std::move(initial));
  const at::Tensor grad = take_grad(x);
  EXPECT_EQ(grad.data_ptr(), memory);
  EXPECT_FALSE(x.grad().defined());
}

}  // namespace
}  // namespace colonnade::tensor
