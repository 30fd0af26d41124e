// Traces of --profile, times and memory by rank, of runs of two ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "program.h"

namespace colonnade::e2e {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;

/// Names of the ranges of our own by process id.
std::map<int, std::set<std::string>> ranges_of(const fs::path& trace) {
  std::map<int, std::set<std::string>> names;
  const json parsed = json::parse(read_text(trace));
  for (const json& event : parsed.at("traceEvents"))
    if (event.value("cat", "") == "user_annotation") names[event.at("pid")].insert(event.at("name"));
  return names;
}

Words short_run(const TempFolder& folder, const Words& more) {
  return small_gpt() + Words{"--train-iters", "4", "--eval-iters", "0", "--save", (folder / "run").string()} +
         more;
}

TEST(Profile, OneTracePerRankAndOneOfAll) {
  const TempFolder folder;
  const Result result = run(
      launch(2, folder.path(),
             short_run(folder, {"--pipeline-model-parallel-size", "2", "--profile", "--profile-step-start",
                                "2", "--profile-step-end", "4", "--use-pytorch-profiler"})));
  ASSERT_EQ(result.code, 0) << result.text;
  EXPECT_THAT(result.text, HasSubstr("profile of 2 ranks"));
  const fs::path traces = folder / "run/torch_profile";
  const auto merged = ranges_of(traces / "trace.json");
  ASSERT_EQ(merged.size(), 2U) << "a process per rank";
  for (const int rank : {0, 1}) {
    const std::string stage = std::to_string(rank);
    const Words expected{"ProfilerStep#2",
                         "ProfilerStep#3",
                         "forward micro-batch 0 stage " + stage,
                         "backward micro-batch 3 stage " + stage,
                         "gradient sync",
                         "optimizer"};
    EXPECT_THAT(merged.at(rank), IsSupersetOf(expected));
    EXPECT_FALSE(merged.at(rank).contains("ProfilerStep#1"));
    EXPECT_FALSE(merged.at(rank).contains("ProfilerStep#4"));
    const auto own = ranges_of(traces / ("rank-" + stage + ".json"));
    ASSERT_EQ(own.size(), 1U);
    EXPECT_EQ(own.begin()->second, merged.at(rank));
  }
  EXPECT_TRUE(merged.at(0).contains("send pipeline / send activation / stage 0 micro-batch 0 (pp)"));
  EXPECT_TRUE(merged.at(1).contains("wait recv pipeline / receive activation / stage 1 micro-batch 0 (pp)"));
  std::vector<std::string> processes;
  const json parsed = json::parse(read_text(traces / "trace.json"));
  for (const json& event : parsed.at("traceEvents"))
    if (event.at("name") == "process_name") processes.push_back(event.at("args").at("name"));
  EXPECT_THAT(processes, ElementsAre(HasSubstr("rank 0 (tp 0, pp 0"), HasSubstr("rank 1 (tp 0, pp 1")));
}

TEST(Profile, OnlyTheRequestedRanks) {
  const TempFolder folder;
  const Result result = run(launch(2, folder.path(),
                                   short_run(folder, {"--profile", "--profile-step-start", "1",
                                                      "--profile-step-end", "2", "--profile-ranks", "1"})));
  ASSERT_EQ(result.code, 0) << result.text;
  EXPECT_FALSE(fs::exists(folder / "run/torch_profile/rank-0.json"));
  EXPECT_TRUE(fs::exists(folder / "run/torch_profile/rank-1.json"));
  EXPECT_EQ(ranges_of(folder / "run/torch_profile/trace.json").size(), 1U);
}

TEST(Profile, FaultsAreReportedTogether) {
  const TempFolder folder;
  const Result result = run(colonnade(
      short_run(folder, {"--profile", "--profile-step-start", "3", "--profile-step-end", "3",
                         "--profile-ranks", "0", "2", "--record-memory-history", "--device", "cpu"})));
  EXPECT_EQ(result.code, 2);
  for (const char* id : {"[profile-steps]", "[profile-ranks]", "[memory-history]"})
    EXPECT_THAT(result.text, HasSubstr(id));
  EXPECT_FALSE(fs::exists(folder / "run"));
}

TEST(Profile, TimesAndMemoryOfRanksAreReported) {
  const TempFolder folder;
  const Result result =
      run(launch(2, folder.path(),
                 short_run(folder, {"--log-interval", "2", "--timing-log-level", "2", "--timing-log-option",
                                    "all", "--log-memory-interval", "3"})));
  ASSERT_EQ(result.code, 0) << result.text;
  EXPECT_THAT(result.text, HasSubstr(" times of ranks in ms | data "));
  EXPECT_THAT(result.text, HasSubstr(" memory of ranks | now "));
  const auto lines = metrics(folder / "run");
  ASSERT_EQ(lines.size(), 4U);
  for (const json& line : lines) {
    const int step = line.at("iteration");
    EXPECT_EQ(line.contains("ranks.forward_backward_ms"), step % 2 == 0) << step;
    EXPECT_EQ(line.contains("ranks.memory_bytes"), step == 3) << step;
  }
  double sum = 0;
  for (const char* phase : {"data", "forward_backward", "communication", "optimizer"}) {
    const auto times = lines[1].at(std::string("ranks.") + phase + "_ms").get<std::vector<double>>();
    ASSERT_EQ(times.size(), 2U);
    sum += times[0];
  }
  EXPECT_LE(sum, lines[1].at("step_ms").get<double>() * 1.01) << "the phases are parts of the step";
  for (const char* pass : {"ranks.forward_ms", "ranks.backward_ms"})
    for (const double ms : lines[1].at(pass)) EXPECT_GT(ms, 0) << pass;
  const auto peaks = lines[2].at("ranks.peak_memory_bytes").get<std::vector<std::int64_t>>();
  EXPECT_EQ(*std::ranges::max_element(peaks), lines[2].at("peak_memory_bytes"));
}

}  // namespace
}  // namespace colonnade::e2e
