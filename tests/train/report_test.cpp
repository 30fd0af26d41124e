// report.html: what is in it, that it needs no network, and that its charts draw what was recorded.
#include "colonnade/train/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <regex>

#include "colonnade/base/files.h"
#include "colonnade/train/report_charts.h"

namespace colonnade::train {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

RunSummary some_run() {
  return {.title = "gpt <tiny> on 2 ranks",
          .facts = {{"device", "cpu"}},
          .ranks = {{.rank = 0,
                     .place = "pp 0",
                     .owns = "embedding, layer 0",
                     .parameters = 1'500'000,
                     .peak_memory_bytes = 40'000'000},
                    {.rank = 1,
                     .place = "pp 1",
                     .owns = "layer 1, output",
                     .parameters = 1'200'000,
                     .peak_memory_bytes = 20'000'000}},
          .pipeline_svg = "<svg id=\"pipeline\"></svg>",
          .times = {{1, 6, 1, 1, 0, 0}},
          .wall_seconds = 10,
          .settings = "num_layers: 2\n"};
}

std::vector<StepRecord> some_steps() {
  std::vector<StepRecord> steps;
  for (int i = 1; i <= 50; ++i)
    steps.push_back({.iteration = i,
                     .consumed_tokens = i * 512,
                     .lm_loss = 7.0 / i,
                     .grad_norm = 1,
                     .learning_rate = 1e-3,
                     .tokens_per_second = 1000,
                     .peak_memory_bytes = 40'000'000});
  return steps;
}

TEST(Report, ShowsEveryPart) {
  const std::string page = make_report(some_run(), some_steps(), {{.iteration = 50, .loss = 1.25}});
  for (const char* part :
       {"Loss", "validation", "Tokens per second", "Peak memory", "forward-backward", "60.0%",
        "Pipeline of one step", "<svg id=\"pipeline\">", "layer 1, output", "1.50M", "40.0 MB",
        "num_layers: 2", "prefers-color-scheme:dark", "1.2500", "device: cpu"})
    EXPECT_THAT(page, HasSubstr(part));
}

TEST(Report, NeedsNoNetworkAndEscapesText) {
  const std::string page = make_report(some_run(), some_steps(), {});
  const std::string without_names = std::regex_replace(page, std::regex("http://www.w3.org/[0-9]+/svg"), "");
  EXPECT_THAT(without_names, Not(HasSubstr("http")));
  EXPECT_THAT(page, Not(HasSubstr("src=")));
  EXPECT_THAT(page, Not(HasSubstr("<tiny>")));
  EXPECT_THAT(page, HasSubstr("gpt &lt;tiny&gt;"));
}

TEST(Report, OfARunWithoutStepsSaysSo) {
  EXPECT_THAT(make_report({.title = "new"}, {}, {}), HasSubstr("nothing recorded yet"));
}

TEST(Report, IsMadeFromTheRunsOwnFiles) {
  const RunFolder folder{fs::path(testing::TempDir()) / "colonnade_report_test"};
  fs::remove_all(folder.root);
  make_run_folder(folder);
  {
    MetricsFile metrics(folder.metrics(), 0);
    for (const auto& r : some_steps()) metrics.append(r);
    MetricsFile(folder.validation(), 0).append(EvalRecord{.iteration = 50, .loss = 1.25});
  }
  write_report(folder, some_run());
  EXPECT_EQ(read_file(folder.report()),
            make_report(some_run(), some_steps(), {{.iteration = 50, .loss = 1.25}}));
  fs::remove_all(folder.root);
}

TEST(Charts, PutPointsWhereTheyBelong) {
  const std::string svg =
      draw_chart({.title = "t", .series = {{"a", 1, {{0, 0}, {10, 100}}}}, .from_zero = true});
  EXPECT_THAT(svg, HasSubstr("points='58.0,206.0 548.0,19.3 '"));  // 5% of room above the highest
}

TEST(Charts, LeaveOutWhatIsNoNumber) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::string svg = draw_chart({.title = "t", .series = {{"a", 1, {{0, 1}, {1, nan}, {2, 3}}}}});
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(draw_chart({.title = "t", .series = {{"a", 1, {{0, nan}}}}}), HasSubstr("nothing recorded"));
}

TEST(Charts, ThinOutKeepsPeaks) {
  std::vector<std::pair<double, double>> points;
  for (int i = 0; i < 10000; ++i) points.emplace_back(i, i == 5678 ? 100.0 : std::sin(i));
  const auto kept = thin_out(points, 300);
  EXPECT_LE(kept.size(), 600u);
  EXPECT_THAT(kept, testing::Contains(std::pair<double, double>(5678, 100)));
  EXPECT_EQ(kept.back(), points.back());
  EXPECT_TRUE(std::is_sorted(kept.begin(), kept.end()));
}

TEST(Charts, TicksAreRound) {
  EXPECT_THAT(round_ticks(0, 10, 5), testing::ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(round_ticks(4.5, 7.1, 5), testing::ElementsAre(5, 6, 7));
  EXPECT_TRUE(round_ticks(1, 1, 5).empty());
}

}  // namespace
}  // namespace colonnade::train
