// A resumed schedule: equal values continue, different ones are rejected unless a switch selects one side.
#include "colonnade/train/lr_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "colonnade/base/error.h"

namespace colonnade::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

LrPlan some_plan() {
  return {.max_lr = 0.003,
          .min_lr = 0.0003,
          .init_lr = 1e-7,
          .warmup_samples = 12.5,
          .decay_samples = 320,
          .wsd_decay_samples = 40,
          .style = config::LrDecayStyle::kWsd,
          .wsd_style = config::WsdDecayStyle::kMinusSqrt,
          .start_weight_decay = 0.01,
          .end_weight_decay = 0.1,
          .weight_decay_samples = 320,
          .weight_decay_style = config::WeightDecayIncrStyle::kCosine};
}

TEST(LrState, HoldsMegatronsKeys) {
  const auto state = lr_state(some_plan(), 64);
  for (const char* key : {"max_lr", "lr_warmup_steps", "num_steps", "lr_decay_style", "lr_decay_steps",
                          "min_lr", "start_wd", "end_wd", "wd_incr_style", "wd_incr_steps"})
    EXPECT_TRUE(state.contains(key)) << key;
  EXPECT_EQ(state["num_steps"], 64);
  EXPECT_EQ(state["lr_decay_style"], "WSD");
}

TEST(LrState, RoundTripsThroughTextWithTheSameCurve) {
  const auto state = nlohmann::json::parse(lr_state(some_plan(), 64).dump());
  const LrResume resumed = resume_lr(some_plan(), state, {});
  EXPECT_EQ(resumed.samples, 64);
  for (int n = 0; n <= 330; n += 10) EXPECT_EQ(learning_rate(resumed.plan, n), learning_rate(some_plan(), n));
}

TEST(LrState, RejectsDifferentValuesAndNamesBoth) {
  LrPlan other = some_plan();
  other.max_lr = 0.001;
  other.style = config::LrDecayStyle::kCosine;
  try {
    resume_lr(other, lr_state(some_plan(), 64), {});
    FAIL() << "the change was not detected";
  } catch (const ConfigError& e) {
    EXPECT_THAT(e.what(), AllOf(HasSubstr("0.001"), HasSubstr("0.003"), HasSubstr("cosine"), HasSubstr("WSD"),
                                HasSubstr("--lr"), HasSubstr("--override-opt-param-scheduler"),
                                Not(HasSubstr("min_lr"))));
  }
}

TEST(LrState, LengthsAreSamplesAndAChangedBatchSizeIsNamed) {
  const auto error_of = [](const LrPlan& other) -> std::string {
    try {
      resume_lr(other, lr_state(some_plan(), 64), {});
    } catch (const ConfigError& e) {
      return e.what();
    }
    return "the change was not detected";
  };
  LrPlan doubled = some_plan();
  for (double* length : {&doubled.warmup_samples, &doubled.decay_samples, &doubled.wsd_decay_samples,
                         &doubled.weight_decay_samples})
    *length *= 2;
  EXPECT_THAT(error_of(doubled),
              AllOf(HasSubstr("640.0 samples in the settings, 320.0 samples in the checkpoint"),
                    HasSubstr("all lengths differ by the factor 2"), HasSubstr("--global-batch-size")));
  LrPlan longer = some_plan();
  longer.decay_samples *= 2;
  EXPECT_THAT(error_of(longer), AllOf(HasSubstr("--lr-decay-iters"), Not(HasSubstr("--global-batch-size"))));
}

TEST(LrState, LongerRunMayResumeWithConstantWeightDecay) {
  LrPlan kept = some_plan();
  kept.weight_decay_style = config::WeightDecayIncrStyle::kConstant;
  LrPlan longer = kept;
  longer.weight_decay_samples = 640;
  EXPECT_EQ(resume_lr(longer, lr_state(kept, 64), {}).samples, 64);
  longer.weight_decay_style = config::WeightDecayIncrStyle::kLinear;
  EXPECT_THROW(resume_lr(longer, lr_state(kept, 64), {}), ConfigError);
  LrPlan ramp = some_plan();
  ramp.weight_decay_samples = 640;
  EXPECT_THROW(resume_lr(ramp, lr_state(some_plan(), 64), {}), ConfigError);
}

TEST(LrState, SwitchesSelectTheSide) {
  LrPlan other = some_plan();
  other.max_lr = 0.001;
  const auto state = lr_state(some_plan(), 64);
  const LrResume mine = resume_lr(other, state, {.override_opt_param_scheduler = true});
  EXPECT_EQ(mine.plan.max_lr, 0.001);
  EXPECT_EQ(mine.samples, 64);
  const LrResume theirs = resume_lr(other, state, {.use_checkpoint_opt_param_scheduler = true});
  EXPECT_EQ(theirs.plan.max_lr, 0.003);
  EXPECT_EQ(theirs.samples, 64);
  EXPECT_THROW(resume_lr(other, state,
                         {.override_opt_param_scheduler = true, .use_checkpoint_opt_param_scheduler = true}),
               ConfigError);
}

TEST(LrState, AcceptsAMegatronStateWithoutOurOwnKeys) {
  auto state = lr_state(some_plan(), 64);
  for (const char* key : {"init_lr", "wsd_decay_steps", "wsd_decay_style"}) state.erase(key);
  EXPECT_EQ(resume_lr(some_plan(), state, {}).plan.wsd_decay_samples, 40);
}

TEST(LrState, ReportsADamagedState) {
  auto state = lr_state(some_plan(), 64);
  state.erase("min_lr");
  EXPECT_THROW(resume_lr(some_plan(), state, {}), DataError);
  state = lr_state(some_plan(), 64);
  state["lr_decay_style"] = "sideways";
  EXPECT_THROW(resume_lr(some_plan(), state, {}), DataError);
  state = lr_state(some_plan(), -1);
  EXPECT_THROW(resume_lr(some_plan(), state, {}), DataError);
  EXPECT_THROW(resume_lr(some_plan(), nlohmann::json(), {}), DataError);
}

}  // namespace
}  // namespace colonnade::train
