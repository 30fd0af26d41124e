// Expert selection, weights and gradients against a reference with tensor ops.
#include "colonnade/ops/routing.h"

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/support.h"

namespace colonnade::ops {
namespace {

using at::Tensor;
using kernels::ScoreKind;
using test::distance;

Tensor scores_of(const Tensor& logits, ScoreKind kind) {
  switch (kind) {
    case ScoreKind::kSoftmax:
      return logits.softmax(-1);
    case ScoreKind::kSigmoid:
      return logits.sigmoid();
    default:
      return at::softplus(logits).sqrt();
  }
}

/// Reference implementation of routing.h.
Routing reference_routing(const Tensor& logits, const RouteArgs& args) {
  Routing r;
  r.scores = scores_of(logits, args.kind);
  const bool by_logits = args.kind == ScoreKind::kSoftmax && args.normalise && !args.bias.defined();
  Tensor choice = by_logits ? logits.detach() : r.scores.detach();
  if (args.bias.defined()) choice = choice + args.bias;
  if (args.groups > 1) {
    const std::int64_t n = logits.size(0), e = logits.size(1);
    const Tensor by_group = choice.view({n, args.groups, e / args.groups});
    const Tensor group_score = std::get<0>(by_group.topk(args.group_best, -1)).sum(-1);
    const Tensor best = std::get<1>(group_score.topk(args.group_topk, -1));
    const Tensor allowed =
        at::zeros_like(group_score).scatter(1, best, 1.0).unsqueeze(-1).expand_as(by_group).reshape({n, e});
    choice = choice.masked_fill(allowed == 0, -std::numeric_limits<double>::infinity());
  }
  r.experts = std::get<1>(choice.topk(args.k, -1));
  r.weights = r.scores.gather(1, r.experts);
  if (args.normalise) r.weights = r.weights / (r.weights.sum(-1, true) + 1e-20);
  r.weights = r.weights * args.scaling;
  return r;
}

std::vector<RouteArgs> all_args(std::int64_t experts) {
  std::vector<RouteArgs> all;
  for (const ScoreKind kind : {ScoreKind::kSoftmax, ScoreKind::kSigmoid, ScoreKind::kSqrtSoftplus})
    for (const bool normalise : {true, false})
      for (const std::int64_t k : {1, 2, 3}) {
        RouteArgs plain{.k = k, .kind = kind, .normalise = normalise, .scaling = 2.5};
        all.push_back(plain);
        plain.bias = test::random({experts}).mul(0.1);
        all.push_back(plain);
        plain.groups = 4;
        plain.group_topk = 2;
        plain.group_best = 2;
        all.push_back(plain);
        plain.bias = Tensor();
        all.push_back(plain);
      }
  return all;
}

TEST(Route, EqualsTheReferenceForAllOptionsWithGradients) {
  at::manual_seed(1);
  const std::int64_t n = 37, e = 12;
  const Tensor values = test::random({n, e});
  for (const RouteArgs& args : all_args(e)) {
    SCOPED_TRACE(testing::Message() << "kind " << static_cast<int>(args.kind) << " k " << args.k << " groups "
                                    << args.groups << " normalise " << args.normalise);
    const Tensor logits = values.clone().set_requires_grad(true);
    const Tensor reference = values.clone().set_requires_grad(true);
    const Routing got = route(logits, args), expected = reference_routing(reference, args);
    EXPECT_TRUE(at::equal(got.experts, expected.experts));
    EXPECT_LT(distance(got.weights, expected.weights), 1e-14);
    EXPECT_LT(distance(got.scores, expected.scores), 1e-14);
    const Tensor probe = test::random({n, args.k}), probe_of_scores = test::random({n, e});
    const auto total = [&](const Routing& r) {
      return (r.weights * probe).sum() + (r.scores * probe_of_scores).sum();
    };
    const Tensor one = at::ones({}, test::options(at::kDouble));
    EXPECT_LT(distance(test::gradients(total(got), one, {logits})[0],
                       test::gradients(total(expected), one, {reference})[0]),
              1e-13);
    // A single normalized weight is always 1, so its gradient is rounding noise.
    const Tensor difference = test::gradients(got.weights, probe, {logits})[0] -
                              test::gradients(expected.weights, probe, {reference})[0];
    EXPECT_LT(difference.abs().max().item<double>(), 1e-13) << "with gradients of the weights only";
  }
}

TEST(Route, BreaksTiesByExpertIndex) {
  const Routing r = route(at::zeros({3, 8}, test::options(at::kFloat)), {.k = 3});
  for (int row = 0; row < 3; ++row)
    for (int j = 0; j < 3; ++j) EXPECT_EQ(r.experts[row][j].item<std::int64_t>(), j);
  EXPECT_LT(distance(r.weights, at::full({3, 3}, 1.0 / 3)), 1e-7);
}

TEST(Route, ScoresGroupsByLogitsForANormalizedSoftmax) {
  RouteArgs args{.k = 2, .groups = 2, .group_topk = 1, .group_best = 2};
  const Tensor logits = at::tensor({3.0F, -5.0F, 1.0F, 0.5F}).to(test::device()).view({1, 4});
  EXPECT_TRUE(at::equal(route(logits, args).experts.cpu(), at::tensor({2, 3}, at::kLong).view({1, 2})));
  args.normalise = false;  // softmax over all experts: selects by score
  EXPECT_TRUE(at::equal(route(logits, args).experts.cpu(), at::tensor({0, 1}, at::kLong).view({1, 2})));
}

TEST(Route, LargeLogitsDoNotOverflow) {
  const Tensor logits = at::tensor({-2000.0, 0.0, 2000.0, 1000.0}, test::options(at::kDouble)).view({1, 4});
  for (const ScoreKind kind : {ScoreKind::kSoftmax, ScoreKind::kSigmoid, ScoreKind::kSqrtSoftplus}) {
    const Routing r = route(logits, {.k = 2, .kind = kind});
    EXPECT_EQ(r.experts[0][0].item<std::int64_t>(), 2);
    EXPECT_TRUE(r.weights.isfinite().all().item<bool>());
  }
}

TEST(Route, NanLogitsYieldNanWeightsAndExpertsInRange) {
  Tensor logits = at::zeros({2, 4}, test::options(at::kFloat));
  logits[1].fill_(std::nan(""));
  const Routing r = route(logits, {.k = 2});
  EXPECT_TRUE(r.weights[0].isfinite().all().item<bool>());
  EXPECT_TRUE(r.weights[1].isnan().all().item<bool>());
  EXPECT_TRUE(r.experts.ge(0).logical_and(r.experts.lt(4)).all().item<bool>());
}

TEST(Route, ComputesWeightsOfAssignedExpertsWithGradients) {
  at::manual_seed(2);
  const std::int64_t n = 37, e = 12;
  const Tensor values = test::random({n, e});
  for (const RouteArgs& plain : all_args(e)) {
    if (plain.groups > 1 || plain.bias.defined()) continue;
    RouteArgs args = plain;
    args.assigned = std::get<1>(test::random({n, e}).topk(args.k, -1)).contiguous();
    const Tensor logits = values.clone().set_requires_grad(true);
    const Tensor reference = values.clone().set_requires_grad(true);
    const Routing got = route(logits, args);
    const Tensor scores = scores_of(reference, args.kind);
    Tensor weights = scores.gather(1, args.assigned);
    if (args.normalise) weights = weights / (weights.sum(-1, true) + 1e-20);
    weights = weights * args.scaling;
    EXPECT_TRUE(at::equal(got.experts, args.assigned));
    EXPECT_LT(distance(got.weights, weights), 1e-14);
    EXPECT_LT(distance(got.scores, scores), 1e-14);
    const Tensor probe = test::random({n, args.k});
    const Tensor difference =
        test::gradients(got.weights, probe, {logits})[0] - test::gradients(weights, probe, {reference})[0];
    EXPECT_LT(difference.abs().max().item<double>(), 1e-13);
  }
}

/// Reference Sinkhorn assignment in double: the k largest of c_ij d_j in each row.
Tensor reference_sinkhorn(const Tensor& logits, std::int64_t k) {
  const Tensor on_host = logits.cpu();
  const auto x = on_host.accessor<double, 2>();
  const std::int64_t n = x.size(0), e = x.size(1);
  std::vector<double> d(static_cast<std::size_t>(e), 1.0), r(static_cast<std::size_t>(n));
  for (double change = 1; change > 1e-4;) {
    for (std::int64_t i = 0; i < n; ++i) {
      double sum = 0;
      for (std::int64_t j = 0; j < e; ++j) sum += d[static_cast<std::size_t>(j)] * std::exp(x[i][j]);
      r[static_cast<std::size_t>(i)] = 1 / (static_cast<double>(n) * (sum + 1e-8));
    }
    change = 0;
    for (std::int64_t j = 0; j < e; ++j) {
      double sum = 0;
      for (std::int64_t i = 0; i < n; ++i) sum += r[static_cast<std::size_t>(i)] * std::exp(x[i][j]);
      const double now = 1 / (static_cast<double>(e) * (sum + 1e-8));
      change += std::abs(now - d[static_cast<std::size_t>(j)]) / static_cast<double>(e);
      d[static_cast<std::size_t>(j)] = now;
    }
  }
  const Tensor scale = at::tensor(d, at::kDouble);
  return std::get<1>((on_host.exp() * scale).topk(k, 1));
}

TEST(Sinkhorn, EqualsTheReferenceAndBalancesLoad) {
  at::manual_seed(1);
  for (const auto& sizes : std::vector<std::array<std::int64_t, 3>>{
           {5, 3, 1}, {16, 4, 2}, {64, 8, 1}, {64, 8, 2}, {33, 7, 2}, {256, 16, 2}}) {
    const std::int64_t n = sizes[0], e = sizes[1], k = sizes[2];
    SCOPED_TRACE(testing::Message() << n << " tokens, " << e << " experts, k " << k);
    const Tensor skewed = at::randn({n, e}, at::kDouble) * 1.5 + at::linspace(0, 2, e, at::kDouble);
    const Tensor logits = skewed.to(test::device());
    const Tensor experts = sinkhorn_experts(logits, k);
    EXPECT_EQ(experts.scalar_type(), at::kLong);
    EXPECT_TRUE(at::equal(experts.cpu(), reference_sinkhorn(logits, k)));
    if (n < 64) continue;
    const auto max_load = [&](const Tensor& chosen) {
      return at::bincount(chosen.cpu().reshape(-1), {}, e).max().item<double>() * static_cast<double>(e) /
             static_cast<double>(n * k);
    };
    EXPECT_LT(max_load(experts), 1.35);
    EXPECT_GT(max_load(std::get<1>(logits.topk(k, 1))), 1.5) << "without Sinkhorn";
  }
}

TEST(Sinkhorn, TerminatesForEveryInput) {
  const Tensor logits = test::random({6, 4}, at::kFloat);
  EXPECT_EQ(sinkhorn_experts(logits.narrow(0, 0, 0), 2).sizes(), at::IntArrayRef({0, 2}));
  for (const double value : {std::nan(""), 1000.0, -1000.0}) {
    const Tensor experts = sinkhorn_experts(at::full_like(logits, value), 2);
    EXPECT_TRUE(experts.ge(0).logical_and(experts.lt(4)).all().item<bool>()) << value;
  }
  Tensor starved = test::random({512, 8}, at::kFloat);
  starved.select(1, 7).sub_(12);  // fp32 never reaches the tolerance
  const Tensor experts = sinkhorn_experts(starved, 1);
  EXPECT_TRUE(experts.ge(0).logical_and(experts.lt(8)).all().item<bool>());
  EXPECT_EQ(sinkhorn_experts(logits.to(at::kMeta), 2).sizes(), at::IntArrayRef({6, 2}));
  EXPECT_THROW(sinkhorn_experts(logits, 5), Error);
}

TEST(Route, RejectsInvalidArguments) {
  const Tensor logits = at::zeros({2, 8}, test::options(at::kFloat));
  EXPECT_THROW(route(logits, {.k = 9}), Error);
  EXPECT_THROW(route(logits, {.k = 3, .groups = 8, .group_topk = 2}), Error) << "two groups of one";
  EXPECT_THROW(route(logits.to(at::kHalf), {.k = 2}), Error);
  RouteArgs assigned{.k = 2};
  assigned.assigned = at::zeros({2, 1}, test::options(at::kLong));
  EXPECT_THROW(route(logits, assigned), Error) << "one expert of two";
}

}  // namespace
}  // namespace colonnade::ops
