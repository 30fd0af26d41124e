// Adam, SGD and Lion against their formulas step by step; gradient statistics independent of threads.
#include "colonnade/ops/optimizer.h"

#include <cmath>
#include <limits>

#include "ops/support.h"

namespace colonnade::ops {
namespace {

using at::Tensor;
using test::distance;

TEST(Adam, FollowsTheFormulaForTensorLists) {
  at::manual_seed(1);
  for (const auto type : {at::kDouble, at::kFloat})
    for (const bool decoupled : {true, false}) {
      std::vector<AdamTensors> tensors;
      std::vector<std::array<Tensor, 3>> refs;  // param, m, v in float64
      for (const std::int64_t n : {1, 40000, 0, 777}) {
        const Tensor p = test::random({n}, type);
        tensors.push_back({p, Tensor(), at::zeros({n}, test::options(type)),
                           at::zeros({n}, test::options(type)),
                           type == at::kFloat ? at::empty({n}, test::options(at::kBFloat16)) : Tensor()});
        refs.push_back({p.to(at::kDouble, false, true), at::zeros({n}, test::options(at::kDouble)),
                        at::zeros({n}, test::options(at::kDouble))});
      }
      for (int t = 1; t <= 3; ++t) {
        const kernels::AdamStep step{.lr = 0.01,
                                     .beta1 = 0.9,
                                     .beta2 = 0.95,
                                     .eps = 1e-8,
                                     .weight_decay = 0.1,
                                     .decoupled = decoupled,
                                     .bias1 = 1 - std::pow(0.9, t),
                                     .bias2 = 1 - std::pow(0.95, t),
                                     .grad_scale = 0.5};
        for (std::size_t i = 0; i < tensors.size(); ++i) {
          tensors[i].grad = test::random(tensors[i].param.sizes(), type);
          auto& [p, m, v] = refs[i];
          Tensor g = tensors[i].grad.to(at::kDouble) * 0.5;
          if (!decoupled) g = g + 0.1 * p;
          m = 0.9 * m + 0.1 * g;
          v = 0.95 * v + 0.05 * g * g;
          const Tensor update =
              m / step.bias1 / ((v / step.bias2).sqrt() + 1e-8) + (decoupled ? 0.1 : 0.0) * p;
          p = p - 0.01 * update;
        }
        adam_update(tensors, step);
      }
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        EXPECT_LT(distance(tensors[i].param, refs[i][0]), type == at::kDouble ? 1e-13 : 1e-6);
        EXPECT_LT(distance(tensors[i].v, refs[i][2]), type == at::kDouble ? 1e-13 : 1e-6);
        if (type == at::kFloat) {
          EXPECT_TRUE(at::equal(tensors[i].copy_out, tensors[i].param.to(at::kBFloat16)));
        }
      }
    }
}

TEST(Adam, RejectsTensorsThatTheirDtypeNeedsAScaleFor) {
  const auto zeros = [](at::ScalarType type) { return at::zeros({4}, test::options(type)); };
  for (const auto type : {at::kHalf, at::kFloat8_e4m3fn}) {
    AdamTensors t{zeros(at::kFloat), zeros(at::kFloat), zeros(type), zeros(at::kFloat), {}};
    EXPECT_THROW(adam_update({t}, {}), Error);
    t.m_scale = at::ones({2}, test::options(at::kFloat));
    EXPECT_NO_THROW(adam_update({t}, {}));
  }
}

TEST(Sgd, FollowsTheFormulaWithAndWithoutMomentum) {
  at::manual_seed(2);
  for (const double momentum : {0.0, 0.9}) {
    const Tensor p = test::random({30001}, at::kFloat);
    Tensor ref = p.to(at::kDouble, false, true);
    Tensor ref_buffer;
    const Tensor buffer = momentum > 0 ? at::full({30001}, 99.0, test::options(at::kFloat))
                                       : Tensor();  // the first step must not read it
    const Tensor copy = at::empty({30001}, test::options(at::kHalf));
    for (int t = 0; t < 3; ++t) {
      const Tensor grad = test::random({30001}, at::kFloat);
      const Tensor g = grad.to(at::kDouble) * 0.25 + 0.01 * ref;
      ref_buffer = t == 0 ? g : momentum * ref_buffer + g;
      ref = ref - 0.1 * ref_buffer;
      sgd_update(
          {{p, grad, buffer, copy}},
          {.lr = 0.1, .momentum = momentum, .weight_decay = 0.01, .first = t == 0, .grad_scale = 0.25});
    }
    EXPECT_LT(distance(p, ref), 1e-6);
    EXPECT_TRUE(at::equal(copy, p.to(at::kHalf)));
  }
}

// In fp32 the sign of an update that nearly vanishes may differ: such elements are not compared.
TEST(Lion, FollowsTheFormulaForTensorLists) {
  at::manual_seed(5);
  for (const auto type : {at::kDouble, at::kFloat}) {
    const bool wide = type == at::kDouble;
    for (const std::int64_t n : {1, 0, 40001}) {
      const Tensor p = test::random({n}, type), m = at::zeros({n}, test::options(type));
      const Tensor copy = wide ? Tensor() : at::empty({n}, test::options(at::kBFloat16));
      Tensor p_ref = p.to(at::kDouble, false, true), m_ref = at::zeros_like(p_ref);
      Tensor sure = at::ones_like(p_ref, at::kBool);
      for (int t = 1; t <= 4; ++t) {
        const Tensor grad = test::random({n}, type);
        const Tensor g = grad.to(at::kDouble) * 0.5;
        const Tensor update = 0.8 * m_ref + 0.2 * g;
        sure = sure.logical_and(update.abs() > (wide ? 1e-14 : 1e-6));
        p_ref = p_ref - 0.01 * (update.sign() + 0.1 * p_ref);
        m_ref = 0.7 * m_ref + 0.3 * g;
        lion_update({{p, grad, m, copy}},
                    {.lr = 0.01, .beta1 = 0.8, .beta2 = 0.7, .weight_decay = 0.1, .grad_scale = 0.5});
      }
      EXPECT_GE(sure.sum().item<std::int64_t>(), n - n / 1000);
      EXPECT_LT(distance(p.masked_select(sure), p_ref.masked_select(sure)), wide ? 1e-13 : 1e-6);
      EXPECT_LT(distance(m, m_ref), wide ? 1e-13 : 1e-6);
      if (!wide) {
        EXPECT_TRUE(at::equal(copy, p.to(at::kBFloat16)));
      }
    }
  }
}

TEST(Lion, LeavesWeightsWithoutGradientInPlace) {
  const Tensor p = at::ones({3}, test::options(at::kFloat)), m = at::zeros_like(p);
  lion_update({{p, at::zeros_like(p), m, {}}}, {.lr = 0.5});
  EXPECT_TRUE(at::equal(p, at::ones_like(p)));
}

TEST(SumSquares, IsAccurateAndEqualForEveryNumberOfThreads) {
  at::manual_seed(3);
  const Tensor x = test::random({123457}, at::kFloat);
  EXPECT_NEAR(sum_squares({x}), x.to(at::kDouble).square().sum().item<double>(), 1e-6);
  test::expect_bitwise_equal_for_all_threads(
      [&] { return at::scalar_tensor(sum_squares({x}), test::options(at::kDouble)); });
}

TEST(SumSquares, OfAListAddsUpItsTensors) {
  at::manual_seed(4);
  const Tensor a = test::random({100001}, at::kFloat), b = test::random({3}, at::kFloat),
               none = test::random({0}, at::kFloat), c = test::random({65536}, at::kFloat);
  EXPECT_DOUBLE_EQ(sum_squares({a, b, none, c}), sum_squares({a}) + sum_squares({b}) + sum_squares({c}));
  EXPECT_EQ(count_zeros({a, none, at::zeros_like(b), c}), 3 + count_zeros({a}) + count_zeros({c}));
  EXPECT_EQ(sum_squares({}), 0.0);
  EXPECT_EQ(sum_squares({none}), 0.0);
}

TEST(GradientStatistics, OfBfloat16Gradients) {
  at::manual_seed(6);
  const Tensor x = test::random({70001}, at::kBFloat16);
  x[7] = 0;
  const double expected = x.to(at::kDouble).square().sum().item<double>();
  EXPECT_NEAR(sum_squares({x}), expected, 1e-12 * expected);
  EXPECT_EQ(count_zeros({x}), (x == 0).sum().item<std::int64_t>());
  EXPECT_FALSE(has_nonfinite(x));
  x[70000] = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(has_nonfinite(x));
}

TEST(GradientStatistics, CountZerosAndDetectNonFiniteValues) {
  Tensor x = at::ones({50001}, test::options(at::kFloat));
  EXPECT_EQ(count_zeros({x}), 0);
  EXPECT_FALSE(has_nonfinite(x));
  x[7] = 0;
  x[50000] = -0.0;
  EXPECT_EQ(count_zeros({x}), 2);
  for (const double bad : {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(),
                           std::numeric_limits<double>::quiet_NaN()}) {
    x[49999] = bad;
    EXPECT_TRUE(has_nonfinite(x));
    x[49999] = 3.4e38;
    EXPECT_FALSE(has_nonfinite(x));
  }
}

}  // namespace
}  // namespace colonnade::ops
