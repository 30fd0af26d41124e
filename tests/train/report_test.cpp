// report.html: what is in it, that it needs no network, and that it is made from the run's files.
#include "colonnade/train/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>

#include "colonnade/base/files.h"

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
                     .planned = {{30'000'000, 39'000'000, 25'000'000, 26'000'000, 0}},
                     .measured = {{31'000'000, 40'000'000, 25'000'000, 27'000'000, 28'000'000}}},
                    {.rank = 1,
                     .place = "pp 1",
                     .owns = "layer 1, output",
                     .parameters = 1'200'000,
                     .planned = {{15'000'000, 20'000'000, 12'000'000, 13'000'000, 0}},
                     .measured = {{15'500'000, 20'000'000, 12'000'000, 0, 0}}}},
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

TEST(Report, ShowsTheMemoryOfEachRankAndPhase) {
  const std::string page = make_report(some_run(), some_steps(), {});
  const auto cells = [](const std::vector<std::string>& texts) {
    std::string row;
    for (const std::string& text : texts) row += "<td class=\"n\">" + text + "</td>";
    return row;
  };
  for (const char* phase : {"start-up", "forward-backward", "optimizer", "evaluate", "checkpoint"})
    EXPECT_THAT(page, HasSubstr(std::string("<th class=\"n\">") + phase + "</th>"));
  EXPECT_THAT(page, HasSubstr("<td class=\"n\">0</td><td>measured</td>" +
                              cells({"31.0 MB", "40.0 MB", "25.0 MB", "27.0 MB", "28.0 MB"})));
  EXPECT_THAT(page, HasSubstr("<td class=\"n\"></td><td>planned</td>" +
                              cells({"30.0 MB", "39.0 MB", "25.0 MB", "26.0 MB", "-"})));
  EXPECT_THAT(page, HasSubstr("<td class=\"n\">1</td><td>measured</td>" +
                              cells({"15.5 MB", "20.0 MB", "12.0 MB", "-", "-"})));
  EXPECT_THAT(page, HasSubstr("width:50.0%")) << "rank 1 beside rank 0";
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

}  // namespace
}  // namespace colonnade::train
