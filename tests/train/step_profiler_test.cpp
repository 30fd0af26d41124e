// Traces of steps on one rank: which steps, which names, which files. Two ranks are in
// tests/e2e/profile_test.cpp.
#include "colonnade/train/step_profiler.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "checkpoint/fixtures.h"
#include "colonnade/base/files.h"
#include "colonnade/comm/trace_range.h"

namespace colonnade::train {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::ElementsAre;

/// Runs steps first..last, each with a named range and a matmul, and returns the names of the ranges in the
/// merged trace, or none if it was not written.
std::vector<std::string> profiled_steps(const config::Profiling& settings, const fs::path& folder,
                                        std::int64_t first, std::int64_t last) {
  StepProfiler profiler(settings, folder, comm::Group(), at::Device(at::kCPU), {"rank 0 (tp 0)"});
  const at::Tensor x = at::ones({4, 4});
  for (std::int64_t step = first; step <= last; ++step) {
    profiler.before_step(step);
    {
      const comm::TraceRange range([&] { return fmt::format("step {}", step); });
      x.mm(x);
    }
    profiler.after_step(step);
  }
  profiler.finish();
  const fs::path merged = folder / "torch_profile/trace.json";
  std::vector<std::string> names;
  if (!fs::exists(merged)) return names;
  const json trace = json::parse(read_file(merged));
  for (const json& event : trace.at("traceEvents"))
    if (event.value("cat", "") == "user_annotation") names.push_back(event["name"]);
  return names;
}

config::Profiling steps(std::int64_t start, std::int64_t end) {
  return {.profile = true, .profile_step_start = start, .profile_step_end = end};
}

TEST(StepProfiler, RecordsTheStepsFromStartToBeforeEnd) {
  const checkpoint::test::TempFolder folder;
  EXPECT_THAT(profiled_steps(steps(2, 4), folder.path() / "a", 1, 5), ElementsAre("step 2", "step 3"));
  EXPECT_THAT(profiled_steps(steps(0, 2), folder.path() / "b", 1, 3), ElementsAre("step 1"));
  EXPECT_THAT(profiled_steps(steps(2, 9), folder.path() / "c", 3, 4), ElementsAre("step 3", "step 4"))
      << "a resumed run that ends early";
  const json trace = json::parse(read_file(folder.path() / "a/torch_profile/rank-0.json"));
  int matmuls = 0;
  for (const json& event : trace["traceEvents"]) matmuls += event.value("name", "") == "aten::mm" ? 1 : 0;
  EXPECT_EQ(matmuls, 2);
}

TEST(StepProfiler, WritesNothingOutsideOfItsSteps) {
  const checkpoint::test::TempFolder folder;
  EXPECT_THAT(profiled_steps(steps(2, 4), folder.path() / "late", 4, 6), ElementsAre());
  EXPECT_THAT(profiled_steps(steps(5, 7), folder.path() / "early", 1, 3), ElementsAre());
  config::Profiling off = steps(1, 3);
  off.profile = false;
  EXPECT_THAT(profiled_steps(off, folder.path() / "off", 1, 3), ElementsAre());
  config::Profiling other_rank = steps(1, 3);
  other_rank.profile_ranks = {1};
  EXPECT_THAT(profiled_steps(other_rank, folder.path() / "other", 1, 3), ElementsAre());
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(StepProfiler, ShapesAreRecordedOnRequest) {
  const checkpoint::test::TempFolder folder;
  for (const bool shapes : {false, true}) {
    config::Profiling settings = steps(1, 2);
    settings.pytorch_profiler_collect_shapes = shapes;
    profiled_steps(settings, folder.path(), 1, 1);
    const json trace = json::parse(read_file(folder.path() / "torch_profile/rank-0.json"));
    for (const json& event : trace["traceEvents"]) {
      if (event.value("name", "") != "aten::mm") continue;
      EXPECT_EQ(event["args"].contains("Input Dims"), shapes);
      if (shapes) {
        EXPECT_EQ(event["args"]["Input Dims"], json::parse("[[4, 4], [4, 4]]"));
      }
    }
  }
}

TEST(StepProfiler, ChakraTracesAreWrittenOnRequest) {
  const checkpoint::test::TempFolder folder;
  config::Profiling settings = steps(1, 2);
  settings.pytorch_profiler_collect_chakra = true;
  profiled_steps(settings, folder.path(), 1, 1);
  const json nodes = json::parse(read_file(folder.path() / "chakra/rank-0.json"))["nodes"];
  int matmuls = 0;
  for (const json& node : nodes) matmuls += node.value("name", "") == "aten::mm" ? 1 : 0;
  EXPECT_EQ(matmuls, 1);
}

TEST(TraceRange, AsksForItsNameOnlyWhileAProfilerRuns) {
  bool asked = false;
  const comm::TraceRange range([&] {
    asked = true;
    return std::string("unused");
  });
  EXPECT_FALSE(asked);
}

}  // namespace
}  // namespace colonnade::train
