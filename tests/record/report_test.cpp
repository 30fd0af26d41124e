// report.html: its contents, from the run's files, and without network access.
#include "colonnade/record/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>

#include "colonnade/base/files.h"

namespace colonnade::record {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

RunSummary some_run() {
  return {.title = "gpt <tiny> on 2 ranks",
          .facts = {{"device", "cpu"}},
          .ranks = {{.rank = 0,
                     .coordinates = "pp 0",
                     .blocks = "embedding, layer 0",
                     .parameters = 1'500'000,
                     .planned = {{30'000'000, 39'000'000, 25'000'000, 26'000'000, 0}},
                     .measured = {{31'000'000, 40'000'000, 25'000'000, 27'000'000, 28'000'000}}},
                    {.rank = 1,
                     .coordinates = "pp 1",
                     .blocks = "layer 1, output",
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
  const std::string page = make_report({some_run()}, some_steps(), {{.iteration = 50, .loss = 1.25}});
  for (const char* part :
       {"Loss", "validation", "Tokens per second", "Peak memory", "forward-backward", "60.0%",
        "Pipeline of one step", "<svg id=\"pipeline\">", "layer 1, output", "1.50M", "40.0 MB",
        "num_layers: 2", "prefers-color-scheme:dark", "1.2500", "device: cpu"})
    EXPECT_THAT(page, HasSubstr(part));
}

TEST(Report, ShowsTheMemoryOfEachRankAndPhase) {
  const std::string page = make_report({some_run()}, some_steps(), {});
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
  EXPECT_THAT(page, HasSubstr("width:50.0%")) << "rank 1 relative to rank 0";
}

/// The page's text from `from` on, up to the next `to`.
std::string between(const std::string& page, const std::string& from, const std::string& to) {
  const std::size_t begin = page.find(from);
  return begin == std::string::npos ? "" : page.substr(begin, page.find(to, begin) - begin);
}

TEST(Report, ResumedRunShowsEverySession) {
  RunSummary first = some_run(), second = some_run();
  first.first_step = 1;
  first.last_step = 30;
  first.began = "2026-11-21 13:04";
  first.facts = {{"layout", "tensor 2"}};
  second.first_step = 26;
  second.last_step = 50;
  second.facts = {{"layout", "data 2"}};
  second.times = {{8, 1, 1, 0, 0, 0}};
  second.ranks[0].blocks = "everything";
  second.pipeline_svg.clear();
  const std::string page = make_report({first, second}, some_steps(), {});
  const std::string overview = between(page, "<h2>Sessions</h2>", "</table>");
  EXPECT_THAT(overview,
              HasSubstr("<td>2026-11-21 13:04</td><td>steps 1 to 30, repeated later from step 26</td>"
                        "<td>tensor 2</td><td class=\"n\">2</td><td class=\"n\">10.0 s</td>"));
  EXPECT_THAT(overview, HasSubstr("<td>steps 26 to 50</td><td>data 2</td>"));
  const std::string one = between(page, "Session 1,", "</details>");
  for (const char* part : {"embedding, layer 0", "60.0%", "<svg id=\"pipeline\">", "40.0 MB", "tensor 2"})
    EXPECT_THAT(one, HasSubstr(part));
  const std::string two = between(page, "Session 2,", "</details>");
  for (const char* part : {"everything", "80.0%", "40.0 MB", "data 2"}) EXPECT_THAT(two, HasSubstr(part));
  EXPECT_THAT(two, Not(HasSubstr("<svg id=\"pipeline\">")));
  EXPECT_THAT(page, HasSubstr("class='mark'")) << "the curves mark the resume";
  EXPECT_THAT(make_report({first}, some_steps(), {}), Not(HasSubstr("Session")));
}

TEST(Report, TilesShowValidationWithATestSplit) {
  const std::string page = make_report({some_run()}, some_steps(),
                                       {{.iteration = 25, .loss = 1.75},
                                        {.iteration = 50, .loss = 1.25},
                                        {.iteration = 50, .set = "test", .loss = 1.5}});
  EXPECT_THAT(page, HasSubstr("<b>1.2500</b><span>validation loss</span>"));
  EXPECT_THAT(page, HasSubstr("<b>3.49</b><span>validation perplexity</span>"));
  EXPECT_THAT(page, HasSubstr("<b>1.5000</b><span>test loss</span>"));
}

TEST(Report, DrawsSentenceOrderLossWherePresent) {
  auto steps = some_steps();
  const std::string none = make_report({some_run()}, steps, {{.iteration = 50, .loss = 1.25}});
  EXPECT_THAT(none, Not(HasSubstr("entence-order")));
  for (StepRecord& step : steps) step.extra_losses = {{"sop_loss", 0.5}};
  const std::string page = make_report({some_run()}, steps,
                                       {{.iteration = 25, .loss = 1.75, .sop_loss = 0.6},
                                        {.iteration = 50, .loss = 1.25, .sop_loss = 0.4321}});
  EXPECT_THAT(page, HasSubstr("Sentence-order loss"));
  EXPECT_THAT(page, HasSubstr("<b>0.4321</b><span>validation sentence-order loss</span>"));
  const std::string chart = page.substr(page.find("Sentence-order loss"));
  const std::string drawn = chart.substr(0, chart.find("Tokens per second"));
  EXPECT_THAT(drawn, HasSubstr("training"));
  EXPECT_THAT(drawn, HasSubstr("validation"));
}

TEST(Report, DrawsEachValidationSet) {
  const std::string page = make_report({some_run()}, some_steps(),
                                       {{.iteration = 25, .set = "validation-books", .loss = 1.75},
                                        {.iteration = 25, .set = "validation-code", .loss = 0.75},
                                        {.iteration = 50, .set = "validation-books", .loss = 1.25},
                                        {.iteration = 50, .set = "validation-code", .loss = 0.5},
                                        {.iteration = 50, .set = "test", .loss = 2.5}});
  for (const char* tile :
       {"<b>1.2500</b><span>validation-books loss</span>", "<b>0.5000</b><span>validation-code loss</span>",
        "<b>2.5000</b><span>test loss</span>"})
    EXPECT_THAT(page, HasSubstr(tile));
  const std::string chart = page.substr(page.find("<div class=\"charts\">"));
  const std::string drawn = chart.substr(0, chart.find("Tokens per second"));
  for (const char* line : {"training", "validation-books", "validation-code"})
    EXPECT_THAT(drawn, HasSubstr(line));
  EXPECT_THAT(drawn, Not(HasSubstr("test")));
}

TEST(Report, NeedsNoNetworkAndEscapesText) {
  const std::string page = make_report({some_run()}, some_steps(), {});
  const std::string without_names = std::regex_replace(page, std::regex("http://www.w3.org/[0-9]+/svg"), "");
  EXPECT_THAT(without_names, Not(HasSubstr("http")));
  EXPECT_THAT(page, Not(HasSubstr("src=")));
  EXPECT_THAT(page, Not(HasSubstr("<tiny>")));
  EXPECT_THAT(page, HasSubstr("gpt &lt;tiny&gt;"));
}

TEST(Report, RunWithoutStepsHasANote) {
  EXPECT_THAT(make_report({{.title = "new"}}, {}, {}), HasSubstr("nothing recorded yet"));
}

TEST(Report, IsMadeFromTheRunsFiles) {
  const RunFolder folder{fs::path(testing::TempDir()) / "colonnade_report_test"};
  fs::remove_all(folder.root);
  make_run_folder(folder);
  {
    MetricsFile metrics(folder.metrics(), 0);
    for (const auto& r : some_steps()) metrics.append(r);
    MetricsFile(folder.validation(), 0).append(EvalRecord{.iteration = 50, .loss = 1.25});
  }
  write_report(folder, {some_run()});
  EXPECT_EQ(read_file(folder.report()),
            make_report({some_run()}, some_steps(), {{.iteration = 50, .loss = 1.25}}));
  fs::remove_all(folder.root);
}

}  // namespace
}  // namespace colonnade::record
