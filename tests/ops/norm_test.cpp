// Norms against their formulas in float64, forward and all gradients.
#include "colonnade/ops/norm.h"

#include "ops/support.h"

namespace colonnade::ops {
namespace {

using at::Tensor;
using test::distance;

/// Reference with plain LibTorch ops.
Tensor reference_norm(const Tensor& x, const Tensor& gamma, const Tensor& bias, double eps, bool centered) {
  const Tensor z = centered ? x - x.mean(-1, true) : x;
  const Tensor y = z * at::rsqrt((z * z).mean(-1, true) + eps) * gamma;
  return bias.defined() ? y + bias : y;
}

struct NormCase {
  bool centered;
  bool zero_centered;
  bool residual;
};

/// `stream`: dtype of the residual stream.
void check_norm(const NormCase& c, at::ScalarType type, at::IntArrayRef shape, at::ScalarType stream) {
  constexpr double kEps = 1e-5;
  const std::int64_t cols = shape.back();
  const auto weight = test::parameter(test::random({cols}, type));
  const auto bias = test::parameter(test::random({cols}, type));
  const Tensor x = test::random(shape, c.residual ? type : stream).set_requires_grad(true);
  const Tensor residual = test::random(shape, stream).set_requires_grad(true);
  const Tensor probe = test::random(shape);
  const Tensor sum_probe = test::random(shape);

  const Tensor x_ref = x.detach().to(at::kDouble).set_requires_grad(true);
  const Tensor gamma =
      (weight->value.detach().to(at::kDouble) + (c.zero_centered ? 1.0 : 0.0)).set_requires_grad(true);
  const Tensor beta = bias->value.detach().to(at::kDouble).set_requires_grad(true);
  const Tensor sum_ref = c.residual ? (x_ref + residual.detach().to(at::kDouble)) : x_ref * 1.0;
  const Tensor ref = reference_norm(sum_ref, gamma, c.centered ? beta : Tensor(), kEps, c.centered);
  Tensor total = (ref * probe).sum();
  if (c.residual) total = total + (sum_ref * sum_probe).sum();
  const auto expected = torch::autograd::grad({total}, {x_ref, gamma, beta}, {}, std::nullopt, false, true);

  AddNormOutput got;
  if (c.residual)
    got = c.centered ? add_layer_norm(x, residual, *weight, bias.get(), kEps, c.zero_centered)
                     : add_rms_norm(x, residual, *weight, kEps, c.zero_centered);
  else
    got.normed = c.centered ? layer_norm(x, *weight, bias.get(), kEps, c.zero_centered)
                            : rms_norm(x, *weight, kEps, c.zero_centered);
  Tensor loss = (got.normed.to(at::kDouble) * probe).sum();
  if (c.residual) loss = loss + (got.sum.to(at::kDouble) * sum_probe).sum();
  loss.backward();

  const double bound = test::tolerance(type);
  SCOPED_TRACE(fmt::format("{} centered {} zero-centered {} residual {}", c10::toString(type), c.centered,
                           c.zero_centered, c.residual));
  EXPECT_EQ(got.normed.scalar_type(), type);
  EXPECT_LT(distance(got.normed, ref), bound);
  EXPECT_LT(distance(x.grad(), expected[0]), bound);
  EXPECT_LT(distance(weight->main_grad, expected[1]), bound);
  if (c.centered) {
    EXPECT_LT(distance(bias->main_grad, expected[2]), bound);
  }
  if (c.residual) {
    EXPECT_EQ(got.sum.scalar_type(), stream);
    EXPECT_LT(distance(got.sum, sum_ref), test::tolerance(stream));
    EXPECT_LT(distance(residual.grad(), expected[0]), bound);
  }
}

TEST(Norm, EqualsTheReferenceInEveryForm) {
  at::manual_seed(1);
  for (const auto type : test::kTypes)
    for (const bool centered : {false, true})
      for (const bool zero_centered : {false, true})
        for (const bool residual : {false, true})
          check_norm({centered, zero_centered, residual}, type, {67, 2, 37}, type);
}

TEST(Norm, ReadsAResidualStreamInFp32) {
  at::manual_seed(1);
  for (const auto type : {at::kBFloat16, at::kHalf})
    for (const bool centered : {false, true})
      for (const bool residual : {false, true})
        check_norm({centered, false, residual}, type, {67, 2, 37}, at::kFloat);
}

TEST(Norm, WithoutWeightEqualsTheReference) {
  at::manual_seed(4);
  for (const auto type : test::kTypes) {
    const Tensor x = test::random({7, 2, 3, 37}, type).set_requires_grad(true);
    const Tensor probe = test::random({7, 2, 3, 37});
    const Tensor x_ref = x.detach().to(at::kDouble).set_requires_grad(true);
    const Tensor ref =
        reference_norm(x_ref, at::ones({37}, test::options(at::kDouble)), Tensor(), 0.01, false);
    const Tensor expected = torch::autograd::grad({(ref * probe).sum()}, {x_ref})[0];
    const Tensor y = rms_norm(x, 0.01);
    (y.to(at::kDouble) * probe).sum().backward();
    EXPECT_LT(distance(y, ref), test::tolerance(type)) << c10::toString(type);
    EXPECT_LT(distance(x.grad(), expected), test::tolerance(type)) << c10::toString(type);
  }
}

TEST(Norm, SupportsHeadsAndOddSizes) {
  at::manual_seed(2);
  check_norm({false, false, false}, at::kDouble, {3, 2, 5, 64}, at::kDouble);
  check_norm({true, true, true}, at::kDouble, {1, 1}, at::kDouble);
  check_norm({false, true, true}, at::kFloat, {513, 1025}, at::kFloat);
}

TEST(Norm, IsBitwiseEqualForEveryNumberOfThreads) {
  at::manual_seed(3);
  const Tensor x = test::random({300, 2, 96}, at::kFloat).set_requires_grad(true);
  const Tensor probe = test::random({300, 2, 96}, at::kFloat);
  const Tensor gamma = test::random({96}, at::kFloat);
  test::expect_bitwise_equal_for_all_threads([&] {
    const auto weight = test::parameter(gamma);
    const Tensor y = rms_norm(x, *weight, 1e-5, false);
    const Tensor grad =
        torch::autograd::grad({(y * probe).sum()}, {x, weight->value}, {}, std::nullopt, false, true)[0];
    return at::cat({y.detach().flatten(), grad.flatten()});
  });
}

TEST(Norm, RejectsMismatchedShapes) {
  const auto weight = test::parameter(test::random({8}));
  EXPECT_THROW(rms_norm(test::random({4, 9}), *weight, 1e-5, false), Error);
  EXPECT_THROW(rms_norm(test::random({4, 8}, at::kFloat), *weight, 1e-5, false), Error);
}

}  // namespace
}  // namespace colonnade::ops
