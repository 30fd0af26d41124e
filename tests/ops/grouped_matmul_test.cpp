// Grouped matmul against one float64 matmul per expert, with all gradients.
#include "colonnade/ops/grouped_matmul.h"

#include "colonnade/tensor/deferred_weight_grads.h"
#include "ops/support.h"

namespace colonnade::ops {
namespace {

using at::Tensor;
using test::distance;

TEST(GroupedMatmul, EqualsOneMatmulPerExpert) {
  at::manual_seed(5);
  const std::vector<std::int64_t> rows{5, 0, 33, 1, 9};
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    SCOPED_TRACE(c10::toString(type));
    const Tensor x = test::random({48, 64}, type).set_requires_grad(true);
    const auto w = test::parameter(test::random({5, 32, 64}, type));
    const Tensor rx = x.detach().to(at::kDouble).set_requires_grad(true);
    const Tensor rw = w->value.detach().to(at::kDouble).set_requires_grad(true);
    std::vector<Tensor> parts;
    std::int64_t begin = 0;
    for (std::size_t e = 0; e < rows.size(); ++e) {
      parts.push_back(rx.narrow(0, begin, rows[e]).mm(rw[static_cast<std::int64_t>(e)].t()));
      begin += rows[e];
    }
    const Tensor expected = at::cat(parts);
    const Tensor probe = test::random(expected.sizes()).to(type).to(at::kDouble);
    const auto reference = test::gradients(expected, probe, {rx, rw});
    for (const int times : {1, 2}) {  // the second backward adds to the first
      const Tensor y = grouped_matmul(x, rows, *w);
      EXPECT_LT(distance(y, expected), test::tolerance(type));
      EXPECT_LT(distance(test::gradients(y, probe, {x, w->value})[0], reference[0]), test::tolerance(type));
      EXPECT_LT(distance(w->main_grad, times * reference[1]), test::tolerance(type));
    }
    EXPECT_EQ(w->main_grad[1].abs().max().item<double>(), 0) << "no rows, no gradient";
  }
}

TEST(GroupedMatmul, AddsTheBiasOfEachExpert) {
  at::manual_seed(6);
  const std::vector<std::int64_t> rows{5, 0, 3};
  const auto expert_of_row = at::tensor({0, 0, 0, 0, 0, 2, 2, 2}, test::options(at::kLong));
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const Tensor x = test::random({8, 16}, type).set_requires_grad(true);
    const auto w = test::parameter(test::random({3, 24, 16}, type));
    const auto b = test::parameter(test::random({3, 24}, type));
    const Tensor plain = grouped_matmul(x, rows, *w).detach();
    const Tensor y = grouped_matmul(x, rows, *w, {b.get()});
    EXPECT_LT(distance(y, plain + b->value.detach().index_select(0, expert_of_row)), test::tolerance(type));
    const Tensor probe = test::random({8, 24}).to(type).to(at::kDouble);
    test::gradients(y, probe, {x, w->value, b->value});
    const Tensor expected = at::zeros({3, 24}, test::options(at::kDouble)).index_add(0, expert_of_row, probe);
    EXPECT_LT(distance(b->main_grad, expected), test::tolerance(type));
    // A rank that does not add the bias still computes its gradient.
    b->zero_grad();
    const Tensor without_bias = grouped_matmul(x, rows, *w, {b.get(), false});
    EXPECT_TRUE(at::equal(without_bias, plain));
    test::gradients(without_bias, probe, {x, w->value, b->value});
    EXPECT_LT(distance(b->main_grad, expected), test::tolerance(type));
  }
}

TEST(GroupedMatmul, DeferredWeightGradientsAreBitwiseEqual) {
  at::manual_seed(7);
  const std::vector<std::int64_t> rows{5, 0, 3};
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const Tensor x = test::random({8, 16}, type).set_requires_grad(true);
    const auto w = test::parameter(test::random({3, 24, 16}, type));
    const auto b = test::parameter(test::random({3, 24}, type));
    const Tensor probe = test::random({8, 24});
    const auto backward = [&] {
      const Tensor y = grouped_matmul(x, rows, *w, {b.get()});
      return test::gradients(y, probe, {x, w->value, b->value})[0];
    };
    const Tensor dx = backward(), dw = w->main_grad.clone(), db = b->main_grad.clone();
    w->zero_grad();
    b->zero_grad();
    const std::vector<tensor::Parameter*> both{w.get(), b.get()};
    tensor::DeferredWeightGrads list;
    {
      const tensor::DeferScope scope(both, list);
      EXPECT_TRUE(at::equal(backward(), dx));
    }
    EXPECT_FALSE(w->has_grad());
    EXPECT_TRUE(at::equal(b->main_grad, db)) << "bias gradients are not deferred";
    list.run(/*last=*/true);
    EXPECT_TRUE(at::equal(w->main_grad, dw));
    EXPECT_TRUE(at::equal(b->main_grad, db));
  }
}

TEST(GroupedMatmul, HasZeroGradientsWithoutRows) {
  const auto w = test::parameter(test::random({2, 3, 4}));
  const Tensor x = test::random({0, 4}).set_requires_grad(true);
  const Tensor y = grouped_matmul(x, {0, 0}, *w);
  EXPECT_EQ(y.sizes(), (std::vector<std::int64_t>{0, 3}));
  test::gradients(y, y.detach(), {x, w->value});
  EXPECT_EQ(w->main_grad.abs().max().item<double>(), 0);
}

TEST(GroupedMatmul, RejectsMismatchedCounts) {
  const auto w = test::parameter(test::random({2, 3, 4}));
  EXPECT_THROW(grouped_matmul(test::random({5, 4}), {2, 2}, *w), Error);
  EXPECT_THROW(grouped_matmul(test::random({5, 4}), {5}, *w), Error);
}

}  // namespace
}  // namespace colonnade::ops
