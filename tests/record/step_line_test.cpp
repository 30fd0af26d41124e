// The log line of a step: its contents and aligned columns.
#include "colonnade/record/step_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace colonnade::record {
namespace {

using testing::HasSubstr;

StepRecord record() {
  return {.iteration = 12,
          .lm_loss = 6.12344,
          .grad_norm = 0.9131,
          .learning_rate = 3e-4,
          .step_ms = 45.62,
          .tokens_per_second = 12345,
          .tflops_per_device = 0.123,
          .peak_memory_bytes = 1234567890,
          .peak_memory_rank = 3};
}

TEST(StepLine, HasEveryGlobalValue) {
  EXPECT_EQ(step_line(record(), {.last_iteration = 1000, .seconds_left = 750}),
            " step   12/1000 | loss  6.1234 | grad norm   0.913 | lr 3.00e-04 |  12.3k tok/s |     45.6 ms | "
            "  0.12 TFLOP/s"
            " | mem  1.23 GB (rank 3) | left  0:12:30");
}

TEST(StepLine, KeepsItsColumns) {
  StepRecord late = record();
  late.iteration = 999;
  late.lm_loss = 10.5;
  late.grad_norm = 123.456;
  late.step_ms = 123456.7;
  late.tokens_per_second = 3;
  late.peak_memory_bytes = 999;
  const StepLineOptions options{.last_iteration = 1000};
  const std::string a = step_line(record(), options), b = step_line(late, options);
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i] == '|', b[i] == '|') << "at column " << i << "\n" << a << "\n" << b;
  }
}

TEST(StepLine, ShowsUnusualValuesOnlyWhenPresent) {
  StepRecord r = record();
  EXPECT_THAT(step_line(r, {}), testing::Not(HasSubstr("skipped")));
  r.skipped = true;
  r.mfu = 0.421;
  r.num_zeros = 7;
  r.global_batch_size = 768;
  r.extra_losses = {{"mtp_loss", 2.5}};
  r.layer_metrics = {
      {"expert_balance", {1.5, 2.25}}, {"expert_least", {0.5, 0}}, {"dropped_tokens", {0, 0.125}}};
  const std::string line = step_line(r, {.show_loss_scale = true});
  for (const char* part : {"skipped", "(42.1%)", "zeros 7", "batch 768", "mtp_loss 2.5000", "scale",
                           "expert_balance 2.25", "dropped_tokens 0.12"})
    EXPECT_THAT(line, HasSubstr(part));
}

TEST(StepLine, UsesColorOnlyOnRequest) {
  EXPECT_THAT(step_line(record(), {}), testing::Not(HasSubstr("\x1b")));
  EXPECT_THAT(step_line(record(), {.color = true}), HasSubstr("\x1b["));
}

TEST(EvalLine, ShowsLossAndPerplexity) {
  EXPECT_EQ(eval_line({.iteration = 100, .loss = 5.4321, .seconds = 3.21}, false),
            " validation at step 100 | loss 5.4321 | perplexity 228.63 | 3.2 s");
  EXPECT_EQ(eval_line({.iteration = 100, .loss = 5.4321, .seconds = 3.21, .sop_loss = 0.69312}, false),
            " validation at step 100 | loss 5.4321 | perplexity 228.63 | sop_loss 0.6931 | 3.2 s");
}

TEST(ShortForms, AreReadable) {
  EXPECT_EQ(short_number(0), "0.00");
  EXPECT_EQ(short_number(999.4), "999");
  EXPECT_EQ(short_number(999.6), "1.00k");
  EXPECT_EQ(short_number(45.67e6), "45.7M");
  EXPECT_EQ(short_bytes(0), "0.00 B");
  EXPECT_EQ(short_bytes(24'000'000'000), "24.0 GB");
  EXPECT_EQ(short_time(3723.4), "1:02:03");
  EXPECT_EQ(short_time(101 * 3600), "4 d 5 h");
}

}  // namespace
}  // namespace colonnade::record
