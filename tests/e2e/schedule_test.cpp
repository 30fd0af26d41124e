// Learning rate and weight decay that the loop gives to the optimizer, in real runs.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "program.h"

namespace colonnade::e2e {
namespace {

namespace fs = std::filesystem;

Words steps(int last, const fs::path& save, const Words& more) {
  return small_gpt() +
         Words{"--eval-iters", "0", "--train-iters", std::to_string(last), "--save", save.string()} + more;
}

// The loss scale is too large at first and doubles after every finite step: updates and skipped
// steps alternate.
TEST(Schedule, RateDoesNotChangeInSkippedSteps) {
  const TempFolder folder;
  const Words scale{"--fp16", "--initial-loss-scale", "8388608", "--hysteresis",
                    "1",      "--loss-scale-window",  "1"};
  const Result first = run(colonnade(steps(6, folder.path(), scale)));
  ASSERT_EQ(first.code, 0) << first.text;
  const Result rest =
      run(colonnade(steps(10, folder.path(), scale + Words{"--load", folder.path().string()})));
  ASSERT_EQ(rest.code, 0) << rest.text;
  const auto lines = metrics(folder.path());
  ASSERT_EQ(lines.size(), 10U);
  int updates = 0, skipped_before = 0, skipped_after = 0;
  for (const auto& line : lines) {
    // --lr 1e-3 decays linearly to 0 over the 8 updates of --lr-decay-iters.
    EXPECT_NEAR(line.at("learning_rate"), 1e-3 * (1 - updates / 8.0), 1e-12)
        << "iteration " << line.at("iteration");
    if (!line.at("skipped").get<bool>())
      ++updates;
    else
      ++(updates == 0 ? skipped_before : skipped_after);
  }
  EXPECT_GE(updates, 3);
  EXPECT_GE(skipped_before, 2);
  EXPECT_GE(skipped_after, 2);
}

TEST(Schedule, ResumedRunFollowsTheSelectedSchedule) {
  const TempFolder folder;
  const auto go_on = [&](int last, const Words& more) {
    const Result result =
        run(colonnade(steps(last, folder.path(), Words{"--load", folder.path().string()} + more)));
    EXPECT_EQ(result.code, 0) << result.text;
  };
  go_on(2, {});
  go_on(3, {"--lr", "5e-4", "--override-opt-param-scheduler"});
  go_on(4, {"--lr", "1e-3", "--use-checkpoint-opt-param-scheduler"});
  const auto lines = metrics(folder.path());
  ASSERT_EQ(lines.size(), 4U);
  const std::array<double, 4> highest{1e-3, 1e-3, 5e-4, 5e-4};
  for (std::size_t i = 0; i < lines.size(); ++i)
    EXPECT_NEAR(lines[i].at("learning_rate"), highest.at(i) * (1 - static_cast<double>(i) / 8), 1e-12) << i;
}

/// Learned position embeddings after --seq-length: no token ever uses them, so Adam changes them by
/// lr * weight decay * value only.
std::vector<float> unused_positions(const fs::path& run_folder, int step) {
  const auto name = "checkpoints/step_0000000" + std::to_string(step) + "/model.safetensors";
  const auto all = read_tensor<float>(run_folder / name, "transformer.wpe.weight");
  return {all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2), all.end()};
}

TEST(Schedule, WeightDecayFollowsTheRamp) {
  const TempFolder folder;
  const Words constant{"--max-position-embeddings", "64",      "--lr", "0.01", "--save-interval", "1",
                       "--lr-decay-style",          "constant"};
  ASSERT_EQ(run(colonnade(steps(1, folder / "drawn", constant + Words{"--weight-decay", "0"}))).code, 0);
  const std::vector<float> drawn = unused_positions(folder / "drawn", 1);
  ASSERT_EQ(drawn.size(), 32U * 64U);
  struct Ramp {
    const char* style;
    std::array<double, 3> decay;  ///< of 1 to 7, after none, one and two of three steps
  };
  for (const Ramp& ramp : {Ramp{"linear", {1, 3, 5}}, Ramp{"cosine", {1, 2.5, 5.5}}}) {
    const Result result =
        run(colonnade(steps(3, folder / ramp.style,
                            constant + Words{"--weight-decay-incr-style", ramp.style, "--start-weight-decay",
                                             "1", "--end-weight-decay", "7"})));
    ASSERT_EQ(result.code, 0) << result.text;
    double kept = 1;
    for (int step = 1; step <= 3; ++step) {
      kept *= 1 - 0.01 * ramp.decay.at(static_cast<std::size_t>(step - 1));
      const std::vector<float> now = unused_positions(folder / ramp.style, step);
      for (std::size_t i = 0; i < drawn.size(); ++i)
        ASSERT_NEAR(now[i], kept * drawn[i], 1e-6 * std::fabs(drawn[i])) << ramp.style << " step " << step;
    }
  }
}

}  // namespace
}  // namespace colonnade::e2e
