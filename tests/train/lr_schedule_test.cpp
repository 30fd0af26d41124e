// Learning rate and weight decay against values of Megatron's scheduler.
#include "colonnade/train/lr_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "colonnade/base/error.h"
#include "colonnade/config/parse.h"
#include "support/vectors.h"

namespace colonnade::train {
namespace {

using config::LrDecayStyle;
using config::WsdDecayStyle;

constexpr std::array<std::int64_t, 9> kSamples{0, 50, 100, 101, 400, 550, 850, 1000, 1001};

/// max 1e-3, min 1e-4, warm-up 100, decay 1000.
LrPlan plan_with(LrDecayStyle style) {
  return {.max_lr = 1e-3, .min_lr = 1e-4, .warmup_samples = 100, .decay_samples = 1000, .style = style};
}

LrPlan wsd_plan(WsdDecayStyle style) {
  LrPlan plan = plan_with(LrDecayStyle::kWsd);
  plan.wsd_decay_samples = 300;
  plan.wsd_style = style;
  return plan;
}

void expect_curve(const LrPlan& plan, const std::array<double, 9>& values) {
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_NEAR(learning_rate(plan, kSamples[i]), values[i], 5e-9 * std::max(values[i], 1e-4))
        << "after " << kSamples[i];
}

// The values were computed with megatron.core.optimizer_param_scheduler and printed with 9 digits.
TEST(LearningRate, FollowsMegatronsCurves) {
  expect_curve(plan_with(LrDecayStyle::kLinear),
               {0, .0005, .001, .000999, .0007, .00055, .00025, .0001, .0001});
  expect_curve(plan_with(LrDecayStyle::kCosine),
               {0, .0005, .001, .000999997258, .000775, .00055, .000160288568, .0001, .0001});
  expect_curve(plan_with(LrDecayStyle::kInverseSquareRoot),
               {0, .0005, .001, .00099503719, .0005, .000426401433, .00034299717, .000316227766, .0001});
  expect_curve(plan_with(LrDecayStyle::kConstant), {0, .0005, .001, .001, .001, .001, .001, .001, .001});
}

// Megatron's scheduler takes max_lr and min_lr of each parameter group; lengths and warm-up start are common.
TEST(LearningRate, OfWordEmbeddingsFollowsTheSameCurveBetweenItsOwnRates) {
  for (const LrDecayStyle style : {LrDecayStyle::kLinear, LrDecayStyle::kCosine, LrDecayStyle::kConstant,
                                   LrDecayStyle::kInverseSquareRoot}) {
    LrPlan plan = plan_with(style);
    plan.init_lr = 1e-5;
    plan.decoupled_max_lr = 3e-3;
    plan.decoupled_min_lr = 5e-4;
    LrPlan own = plan;
    own.max_lr = 3e-3;
    own.min_lr = 5e-4;
    for (const std::int64_t samples : kSamples) {
      EXPECT_EQ(decoupled_learning_rate(plan, samples), learning_rate(own, samples));
      const optim::StepOptions options = step_options(plan, samples);
      EXPECT_EQ(options.learning_rate, learning_rate(plan, samples));
      EXPECT_EQ(options.decoupled_learning_rate, learning_rate(own, samples));
    }
  }
}

TEST(LearningRate, OfWordEmbeddingsIsThatOfAllWeightsUnlessGiven) {
  config::Schedule schedule{.lr = 1e-3, .min_lr = 1e-4};
  const config::Training training{.global_batch_size = 4, .train_iters = 100};
  LrPlan plan = make_lr_plan(schedule, training, {});
  EXPECT_EQ(decoupled_learning_rate(plan, 0), 1e-3);
  EXPECT_EQ(decoupled_learning_rate(plan, 1000), 1e-4);
  schedule.decoupled_lr = 1e-2;
  plan = make_lr_plan(schedule, training, {});
  EXPECT_EQ(decoupled_learning_rate(plan, 0), 1e-2);
  EXPECT_EQ(decoupled_learning_rate(plan, 1000), 1e-4) << "--min-lr";
  schedule.decoupled_min_lr = 1e-3;
  plan = make_lr_plan(schedule, training, {});
  EXPECT_EQ(decoupled_learning_rate(plan, 1000), 1e-3);
}

TEST(LearningRate, FollowsMegatronsWsdCurves) {
  expect_curve(wsd_plan(WsdDecayStyle::kLinear), {0, .0005, .001, .001, .001, .001, .00055, .0001, .0001});
  expect_curve(wsd_plan(WsdDecayStyle::kCosine), {0, .0005, .001, .001, .001, .001, .00055, .0001, .0001});
  expect_curve(wsd_plan(WsdDecayStyle::kExponential),
               {0, .0005, .001, .001, .001, .001, .000472792206, .0001, .0001});
  expect_curve(wsd_plan(WsdDecayStyle::kMinusSqrt),
               {0, .0005, .001, .001, .001, .001, .000363603897, .0001, .0001});
}

TEST(LearningRate, StartsFromTheWarmupInit) {
  LrPlan plan = plan_with(LrDecayStyle::kLinear);
  plan.init_lr = 2e-4;
  EXPECT_DOUBLE_EQ(learning_rate(plan, 0), 2e-4);
  EXPECT_DOUBLE_EQ(learning_rate(plan, 50), 6e-4);
}

TEST(WeightDecay, FollowsMegatronsRamps) {
  LrPlan plan{.start_weight_decay = .01, .end_weight_decay = .1, .weight_decay_samples = 1000};
  plan.weight_decay_style = config::WeightDecayIncrStyle::kCosine;
  const std::array<double, 9> cosine{.01,         .0105540247, .0122024568, .0122463541, .0410942353,
                                     .0620395509, .0950952936, .1,          .1};
  for (std::size_t i = 0; i < cosine.size(); ++i)
    EXPECT_NEAR(weight_decay(plan, kSamples[i]), cosine[i], 5e-9 * cosine[i]) << "after " << kSamples[i];
  plan.weight_decay_style = config::WeightDecayIncrStyle::kLinear;
  EXPECT_DOUBLE_EQ(weight_decay(plan, 500), .055);
  plan.weight_decay_style = config::WeightDecayIncrStyle::kConstant;
  EXPECT_DOUBLE_EQ(weight_decay(plan, 0), .1);
}

// trajectory/llama: warm-up over 5 steps, cosine to step 40, 8 samples per step.
TEST(LearningRate, MatchesTheRecordedRun) {
  const config::Schedule schedule{
      .lr = 0.003, .min_lr = 0.0003, .lr_decay_style = LrDecayStyle::kCosine, .lr_warmup_iters = 5};
  const config::Training training{.global_batch_size = 8, .train_iters = 40};
  const LrPlan plan = make_lr_plan(schedule, training, {});
  std::ifstream file(test::vectors() + "/trajectory/llama/tp1.csv");
  std::string line;
  std::getline(file, line);
  int rows = 0;
  while (std::getline(file, line)) {
    std::vector<double> columns;
    std::istringstream fields(line);
    for (std::string field; std::getline(fields, field, ',');) columns.push_back(std::stod(field));
    const auto before = static_cast<std::int64_t>(columns[0] - 1) * 8;
    EXPECT_NEAR(learning_rate(plan, before), columns[4], 1e-8 * columns[4]) << line;
    EXPECT_NEAR(learning_rate(plan, before + 8), columns[5], 1e-8 * columns[5]) << line;
    ++rows;
  }
  EXPECT_EQ(rows, 40);
}

TEST(MakeLrPlan, ConvertsIterationsToSamples) {
  const config::Training by_iterations{.global_batch_size = 16, .train_iters = 100};
  const config::Schedule iterations{.lr = 1,
                                    .lr_decay_style = LrDecayStyle::kWsd,
                                    .lr_decay_iters = 80,
                                    .lr_wsd_decay_iters = 20,
                                    .lr_warmup_iters = 10};
  const LrPlan first = make_lr_plan(iterations, by_iterations, {});
  EXPECT_EQ(first.decay_samples, 1280);
  EXPECT_EQ(first.wsd_decay_samples, 320);
  EXPECT_EQ(first.warmup_samples, 160);
  EXPECT_EQ(first.weight_decay_samples, 1600);

  const config::Training by_samples{.global_batch_size = 16, .train_samples = 1000};
  const LrPlan second = make_lr_plan({.lr = 1, .lr_warmup_samples = 50}, by_samples, {});
  EXPECT_EQ(second.decay_samples, 1000);
  EXPECT_EQ(second.warmup_samples, 50);

  const LrPlan third = make_lr_plan({.lr = 1, .lr_warmup_fraction = 0.01}, by_samples, {.weight_decay = 0.3});
  EXPECT_DOUBLE_EQ(third.warmup_samples, 10);
  EXPECT_EQ(third.start_weight_decay, 0.3);
  EXPECT_EQ(third.end_weight_decay, 0.3);
}

TEST(MakeLrPlan, EveryLengthInSamplesHasItsFlag) {
  const config::Run run = config::parse({"gpt", "--global-batch-size", "16", "--train-samples", "1000",
                                         "--lr-decay-style", "WSD", "--lr-decay-samples", "800",
                                         "--lr-wsd-decay-samples", "300", "--lr-warmup-samples", "50"});
  const LrPlan plan = make_lr_plan(run.schedule, run.training, run.optimizer);
  EXPECT_EQ(plan.decay_samples, 800);
  EXPECT_EQ(plan.wsd_decay_samples, 300);
  EXPECT_EQ(plan.warmup_samples, 50);
  EXPECT_EQ(plan.weight_decay_samples, 1000);
}

std::string problems_of(const config::Schedule& schedule, const config::Training& training) {
  try {
    make_lr_plan(schedule, training, {});
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "";
}

TEST(MakeLrPlan, ReportsEveryBrokenRule) {
  using testing::AllOf;
  using testing::HasSubstr;
  const config::Training training{.global_batch_size = 1, .train_iters = 10};
  EXPECT_THAT(problems_of({.lr = 1, .min_lr = 2, .lr_decay_style = LrDecayStyle::kWsd, .lr_warmup_iters = 10},
                          training),
              AllOf(HasSubstr("warm-up must be shorter"), HasSubstr("--min-lr"), HasSubstr("WSD requires")));
  EXPECT_THAT(problems_of({.lr = 1}, {.global_batch_size = 1}), HasSubstr("--train-iters"));
  EXPECT_THAT(problems_of({.lr = 1, .lr_warmup_init = 3}, training), HasSubstr("--lr-warmup-init"));
  EXPECT_THAT(problems_of({.lr = 1, .start_weight_decay = 0.1, .end_weight_decay = 0.2}, training),
              HasSubstr("--start-weight-decay"));
  EXPECT_THAT(problems_of({.lr = 1,
                           .start_weight_decay = 0.2,
                           .end_weight_decay = 0.1,
                           .weight_decay_incr_style = config::WeightDecayIncrStyle::kLinear},
                          training),
              HasSubstr("start <= end"));
  EXPECT_EQ(problems_of({.lr = 1}, training), "");
}

}  // namespace
}  // namespace colonnade::train
