// Routers on one rank: Sinkhorn assignment, random logits, and an expert bias that is not updated.
#include "colonnade/layers/moe/router.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "colonnade/base/error.h"
#include "layers/experts.h"

namespace colonnade::layers {
namespace {

using at::Tensor;

/// Choice, weights and gradients of Sinkhorn routers, with settings that they ignore.
TEST(Router, WeighsSinkhornAssignments) {
  for (const std::int64_t k : {1, 2}) {
    SCOPED_TRACE(k);
    config::Model m = expert_model();
    m.moe.router_load_balancing_type = {"sinkhorn"};
    m.moe.router_topk = k;
    m.moe.router_score_function = config::RouterScore::kSqrtSoftplus;
    m.moe.router_topk_scaling_factor = 2.5;
    m.moe.router_num_groups = m.moe.router_group_topk = 2;
    const auto params = layout::mixer_of<layout::MoeParams>(layout::layer_params(m, {}, 0));
    Router router(params, m, {.options = test::options(at::kDouble)});
    test::randomize({router.weight.get()});
    const Tensor x = test::named_random("x", {kSequence, kBatch, kHidden});
    const Tensor w = test::full_value(params.router).set_requires_grad(true);
    const Tensor logits = at::matmul(x.reshape({-1, kHidden}), w.t());
    const Tensor scores = k == 1 ? logits.sigmoid() : logits.softmax(-1);
    const tensor::Batch none;
    const ops::Routing training = router.forward(x, {.batch = none});
    const Tensor experts = ops::sinkhorn_experts(logits.detach(), k);
    EXPECT_TRUE(at::equal(training.experts, experts));
    EXPECT_LT(test::distance(training.weights, scores.gather(1, experts)), 1e-14);
    const ops::Routing evaluation = router.forward(x, {.batch = none, .training = false});
    const auto [best, chosen] = scores.topk(k, -1);
    EXPECT_TRUE(at::equal(evaluation.experts, chosen));
    EXPECT_FALSE(at::equal(evaluation.experts, experts))
        << "the two assignments must differ for the test to work";
    EXPECT_LT(test::distance(evaluation.weights, best), 1e-14);

    const Tensor probe = test::named_random("probe", training.weights.sizes());
    training.weights.backward(probe);
    scores.gather(1, experts).backward(probe);
    EXPECT_LT(test::distance(router.weight->main_grad, w.grad()), 1e-12);
  }
}

/// Logits are random for any x, also in evaluation; the logits of x get their gradients.
TEST(Router, UsesRandomLogitsWithForcedLoadBalancing) {
  config::Model m = expert_model();
  m.moe.router_force_load_balancing = true;
  m.moe.router_pre_softmax = true;
  const auto params = layout::mixer_of<layout::MoeParams>(layout::layer_params(m, {}, 0));
  const Context context{.options = test::options(at::kDouble)};
  Router router(params, m, context);
  test::randomize({router.weight.get()});
  const Tensor x = test::named_random("x", {kSequence, kBatch, kHidden});
  tensor::Batch batch, later;
  batch.set(tensor::Field::kSamples, at::arange(kBatch, at::kLong) + 7);
  later.set(tensor::Field::kSamples, at::arange(kBatch, at::kLong) + 9);
  const ops::Routing routing = router.forward(x, {.batch = batch});
  const auto other = [&](const Tensor& input, const tensor::Pass& pass) {
    return router.forward(input, pass).scores.detach();
  };
  EXPECT_TRUE(at::equal(other(x * 2, {.batch = batch}), routing.scores));
  EXPECT_TRUE(at::equal(other(x, {.batch = batch, .training = false}), routing.scores));
  EXPECT_GT(test::distance(other(x, {.batch = later}), routing.scores), 0.1) << "other samples, other steps";

  const Tensor rows = x.reshape({-1, kHidden});
  const Tensor w = test::full_value(params.router).set_requires_grad(true);
  const Tensor logits = at::matmul(rows, w.t());
  // Equal to the random logits up to a constant per row, which does not change the softmax.
  const Tensor numbers = routing.scores.detach().log() + (logits - logits.detach());
  const Tensor weights = numbers.softmax(-1).gather(1, routing.experts);
  EXPECT_LT(test::distance(routing.weights, weights), 1e-12);
  const Tensor probe = test::named_random("probe", weights.sizes());
  routing.weights.backward(probe);
  weights.backward(probe);
  EXPECT_LT(test::distance(router.weight->main_grad, w.grad()), 1e-11);
}

/// Weights and gradients are those of the given experts; losses use the router's own choice.
TEST(Router, ReplaysGivenChoices) {
  config::Model m = expert_model();
  m.moe.router_score_function = config::RouterScore::kSigmoid;
  m.moe.aux_loss_coeff = {0.5};
  const auto params = layout::mixer_of<layout::MoeParams>(layout::layer_params(m, {}, 0));
  Router router(params, m, {.options = test::options(at::kDouble)});
  test::randomize({router.weight.get()});
  const Tensor x = test::named_random("x", {kSequence, kBatch, kHidden});
  const tensor::Batch none;
  const auto choices = std::make_shared<tensor::RoutingChoices>();
  tensor::Report plain, replayed;
  const Tensor own = router.forward(x, {.batch = none, .report = &plain, .routing = choices}).experts;
  EXPECT_TRUE(at::equal(choices->by_router.at(params.router.name), own));

  const Tensor other = (own + 1) % kExperts;
  choices->by_router[params.router.name] = other;
  choices->replay = true;
  const ops::Routing routing = router.forward(x, {.batch = none, .report = &replayed, .routing = choices});
  EXPECT_TRUE(at::equal(routing.experts, other));
  const Tensor w = test::full_value(params.router).set_requires_grad(true);
  const Tensor scores = at::matmul(x.reshape({-1, kHidden}), w.t()).sigmoid().gather(1, other);
  const Tensor weights = scores / scores.sum(-1, true);
  EXPECT_LT(test::distance(routing.weights, weights), 1e-14);
  const auto loss = [](const tensor::Report& report) {
    return report.metric_sums.at("load_balancing_loss")[0].item<double>();
  };
  EXPECT_NEAR(loss(replayed), loss(plain), 1e-12);
  const Tensor probe = test::named_random("probe", weights.sizes());
  routing.weights.backward(probe);
  weights.backward(probe);
  EXPECT_LT(test::distance(router.weight->main_grad, w.grad()), 1e-12);

  choices->by_router[params.router.name] = other + 1;  // one choice is out of range
  EXPECT_THROW(router.forward(x, {.batch = none, .routing = choices}), Error);
  choices->by_router.clear();
  EXPECT_THROW(router.forward(x, {.batch = none, .routing = choices}), Error);
}

TEST(Router, KeepsItsExpertBiasWithPaddedExperts) {
  config::Model m = expert_model();
  m.moe.expert_capacity_factor = 1;
  m.moe.pad_expert_input_to_capacity = true;
  m.moe.router_score_function = config::RouterScore::kSigmoid;
  m.moe.router_enable_expert_bias = true;
  const auto params = layout::mixer_of<layout::MoeParams>(layout::layer_params(m, {}, 0));
  Router router(params, m, {.options = test::options(at::kDouble)});
  test::randomize({router.weight.get()});
  router.expert_bias->value.zero_();
  const tensor::Batch none;
  const Tensor x = test::named_random("x", {kSequence, kBatch, kHidden});
  static_cast<void>(router.forward(x, {.batch = none}));
  router.finish_step();
  EXPECT_EQ(router.expert_bias->value.abs().max().item<double>(), 0);
}

}  // namespace
}  // namespace colonnade::layers
