// The executable follows the curve recorded with Megatron Core 0.16.1: weights, data order, schedule
// and numbers as a user gets them from the command line.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "../support/recorded_curve.h"
#include "program.h"

namespace colonnade::e2e {
namespace {

const std::string kVectors = COLONNADE_VECTORS;

/// The settings of vectors/trajectory/manifest.json.
Words settings(const TempFolder& folder) {
  return {"pretrain",
          "gpt",
          "--pretrained-checkpoint",
          kVectors + "/trajectory/llama",
          "--data-path",
          kVectors + "/indexed/gpt_uint16",
          "--split",
          "1,0,0",
          "--seed",
          "1235",
          "--tokenizer-type",
          "NullTokenizer",
          "--vocab-size",
          "1152",
          "--data-cache-path",
          (folder / "cache").string(),
          "--micro-batch-size",
          "2",
          "--global-batch-size",
          "8",
          "--seq-length",
          "64",
          "--train-iters",
          "40",
          "--lr",
          "0.003",
          "--min-lr",
          "0.0003",
          "--lr-decay-style",
          "cosine",
          "--lr-warmup-iters",
          "5",
          "--weight-decay",
          "0.1",
          "--adam-beta1",
          "0.9",
          "--adam-beta2",
          "0.95",
          "--clip-grad",
          "1.0",
          "--hidden-dropout",
          "0",
          "--attention-dropout",
          "0",
          "--eval-iters",
          "0",
          "--save-interval",
          "40",
          "--save",
          (folder / "run").string()};
}

/// As it was recorded: nine digits.
std::string nine_digits(double value) { return fmt::format("{:.9g}", value); }

/// Tolerances of the manifest: steps 1-10 loss 1e-6 and norm 1e-5, all 40 loss 1e-5 and norm 1e-3; the rate
/// to its recorded digits.
void expect_follows(const std::vector<nlohmann::json>& lines, const std::string& name) {
  const auto recorded = test::recorded_curve(name);
  ASSERT_EQ(recorded.size(), 40U);
  ASSERT_EQ(lines.size(), recorded.size());
  for (std::size_t i = 0; i < recorded.size(); ++i) {
    const double loss_bound = i < 10 ? 1e-6 : 1e-5;
    const double norm_bound = i < 10 ? 1e-5 : 1e-3;
    EXPECT_NEAR(lines[i].at("lm_loss"), recorded[i].loss, loss_bound * recorded[i].loss) << "step " << i + 1;
    EXPECT_NEAR(lines[i].at("grad_norm"), recorded[i].grad_norm, norm_bound * recorded[i].grad_norm)
        << "step " << i + 1;
    EXPECT_EQ(nine_digits(lines[i].at("learning_rate")), nine_digits(recorded[i].lr)) << "step " << i + 1;
  }
}

TEST(CliTrajectory, OneRankFollowsTheRecordedCurve) {
  const TempFolder folder;
  const Result result = run(colonnade(settings(folder)));
  ASSERT_EQ(result.code, 0) << result.text;
  expect_follows(metrics(folder / "run"), "tp1");
}

TEST(CliTrajectory, FourRanksFollowTheRecordedCurve) {
  const TempFolder folder;
  const Words layout{"--tensor-model-parallel-size", "2", "--pipeline-model-parallel-size", "2"};
  const Result result = run(launch(4, folder.path(), settings(folder) + layout));
  ASSERT_EQ(result.code, 0) << result.text;
  expect_follows(metrics(folder / "run"), "tp2_pp2");
}

}  // namespace
}  // namespace colonnade::e2e
