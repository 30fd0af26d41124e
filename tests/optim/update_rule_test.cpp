// Every optimizer has an update rule that keeps the states of the table. Formulas: optimizer_test.cpp.
#include "colonnade/optim/update_rule.h"

#include <gmock/gmock.h>

#include "support/device.h"
#include "support/dtypes.h"

namespace colonnade::optim {
namespace {

TEST(UpdateRule, EveryOptimizerHasOneWithItsStates) {
  config::Optimizer settings;
  for (const double momentum : {0.9, 0.0}) {
    settings.sgd_momentum = momentum;
    for (const config::OptimizerTraits& traits : config::optimizers()) {
      const auto rule = make_update_rule(traits.kind, settings);
      const auto names = config::optimizer_states(traits.kind, settings);
      EXPECT_THAT(rule->states(), testing::ElementsAreArray(names));
      const at::Tensor grad = at::ones({5}, test::options(at::kDouble));
      const std::vector<at::Tensor> states =
          rule->initial_states(grad.numel(), test::kFloat64, test::device());
      ASSERT_EQ(states.size(), names.size());
      for (const at::Tensor& state : states) {
        EXPECT_TRUE(at::equal(state, at::zeros_like(grad)));
        EXPECT_EQ(state.scalar_type(), at::kDouble);
      }
    }
  }
}

/// One element by hand: p = 1, g = 0.5 x 4, lr 0.1, decay 0.5.
TEST(UpdateRule, UpdatesMainModelAndStates) {
  struct Case {
    config::OptimizerKind kind;
    double main;
    std::vector<double> states;
  };
  const Case kCases[] = {{config::OptimizerKind::kAdam, 1 - 0.1 * (1 + 0.5), {0.1 * 2, 0.001 * 4}},
                         {config::OptimizerKind::kSgd, 1 - 0.1 * (2 + 0.5), {2 + 0.5}},
                         {config::OptimizerKind::kLion, 1 - 0.1 * (1 + 0.5), {0.02 * 2}}};
  for (const Case& c : kCases) {
    const auto rule = make_update_rule(c.kind, {});
    const auto fp32 = test::options(at::kFloat);
    Segment s{.parameter = nullptr,
              .begin = 0,
              .main = at::ones({1}, fp32),
              .model = at::zeros({1}, test::options(at::kBFloat16)),
              .grad = at::full({1}, 4.0, fp32),
              .group = nullptr,
              .rule = rule.get(),
              .states = {}};
    s.states = rule->initial_states(s.grad.numel(), {}, test::device());
    s.scales.resize(s.states.size());
    rule->update({&s}, {.learning_rate = 0.1, .weight_decay = 0.5, .grad_scale = 0.5, .number = 1});
    EXPECT_NEAR(s.main.item<double>(), c.main, 1e-6);
    EXPECT_TRUE(at::equal(s.model, s.main.to(at::kBFloat16)));
    ASSERT_EQ(s.states.size(), c.states.size());
    for (std::size_t i = 0; i < c.states.size(); ++i)
      EXPECT_NEAR(s.states[i].item<double>(), c.states[i], 1e-6 * c.states[i]);
  }
}

}  // namespace
}  // namespace colonnade::optim
