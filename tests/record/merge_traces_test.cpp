// Merging of Chrome traces: processes, times, flows.
#include "colonnade/record/merge_traces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"

namespace colonnade::record {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class MergeTraces : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  /// A trace in Kineto's form with one operator, its flow and its GPU kernel.
  [[nodiscard]] RankTrace trace(int rank, int process, std::int64_t base_ns, const std::string& op) const {
    const fs::path file = folder_ / fmt::format("rank-{}.json", rank);
    std::ofstream(file) << fmt::format(
        R"({{"schemaVersion": 1, "deviceProperties": [{{"id": 0, "name": "GPU"}}],
"displayTimeUnit": "ms", "baseTimeNanoseconds": {0}, "traceEvents": [
{{"ph": "X", "cat": "cpu_op", "name": "{1}", "pid": {2}, "tid": 77, "ts": 100.5, "dur": 3,
  "args": {{"Input Dims": [[2, 3], []]}}}},
{{"ph": "s", "id": 5, "pid": {2}, "tid": 77, "ts": 101, "cat": "ac2g", "name": "ac2g"}},
{{"ph": "X", "cat": "kernel", "name": "kernel of {1}", "pid": 0, "tid": 7, "ts": 104, "dur": 2}},
{{"name": "process_name", "ph": "M", "ts": 1, "pid": {2}, "tid": 0, "args": {{"name": "colonnade"}}}},
{{"name": "thread_name", "ph": "M", "ts": 1, "pid": {2}, "tid": 77, "args": {{"name": "main"}}}},
{{"ph": "X", "cat": "Trace", "ts": 1, "dur": 9, "pid": "Spans", "tid": "PyTorch Profiler", "name": "span"}}],
"traceName": "x"}})",
        base_ns, op, process);
    return {rank, fmt::format("rank {} (tp {})", rank, rank), file};
  }

  const fs::path folder_ = fs::path(testing::TempDir()) / "colonnade_merge_traces_test";
};

TEST_F(MergeTraces, RanksAreProcessesOfOneTrace) {
  const fs::path out = folder_ / "trace.json";
  const std::int64_t count = merge_traces(
      {trace(0, 4321, 1'000'000'000, "aten::mm"), trace(3, 4321, 1'000'002'000, "aten::add")}, out);
  const json merged = json::parse(read_file(out));
  EXPECT_EQ(merged["traceEvents"].size(), static_cast<std::size_t>(count));
  EXPECT_EQ(merged["baseTimeNanoseconds"], 1'000'000'000);
  std::map<int, std::vector<std::string>> names;
  std::map<int, std::string> processes;
  for (const json& e : merged["traceEvents"]) {
    const int rank = e["pid"];
    if (e["name"] == "process_name")
      processes[rank] = e["args"]["name"];
    else if (e["ph"] == "X")
      names[rank].push_back(e["name"]);
    if (e["ph"] == "s") {
      EXPECT_EQ(e["id"], fmt::format("{}.5", rank));
    }
    if (e["name"] == "aten::mm") {
      EXPECT_EQ(e["ts"], 100.5);
      EXPECT_EQ(e["args"]["Input Dims"], json::parse("[[2, 3], []]"));
      EXPECT_EQ(e["tid"], 77);
    }
    if (e["name"] == "aten::add") {
      EXPECT_EQ(e["ts"], 102.5) << "2000 ns after the first rank's base";
    }
  }
  EXPECT_THAT(processes,
              testing::ElementsAre(testing::Pair(0, "rank 0 (tp 0)"), testing::Pair(3, "rank 3 (tp 3)")));
  EXPECT_THAT(names[0], testing::ElementsAre("aten::mm", "kernel of aten::mm"));
  EXPECT_THAT(names[3], testing::ElementsAre("aten::add", "kernel of aten::add"));
  EXPECT_FALSE(fs::exists(out.string() + ".part"));
}

TEST_F(MergeTraces, AFileThatIsNoTraceIsNamed) {
  const RankTrace good = trace(0, 1, 0, "aten::mm");
  const fs::path out = folder_ / "trace.json";
  for (const char* text : {"{\"traceEvents\": [{\"ph\": \"X\"", "{\"a\": 1}", ""}) {
    std::ofstream(folder_ / "bad.json") << text;
    try {
      merge_traces({good, {1, "rank 1", folder_ / "bad.json"}}, out);
      FAIL() << text;
    } catch (const DataError& e) {
      EXPECT_THAT(e.what(), testing::HasSubstr("bad.json: must be a Chrome trace of a rank"));
    }
    EXPECT_FALSE(fs::exists(out));
    EXPECT_FALSE(fs::exists(out.string() + ".part"));
  }
}

TEST(ProcessNames, HaveTheCoordinates) {
  EXPECT_THAT(
      process_names({{.rank = 0, .coordinates = "tp 0, pp 0"}, {.rank = 1, .coordinates = "tp 1, pp 0"}}),
      testing::ElementsAre("rank 0 (tp 0, pp 0)", "rank 1 (tp 1, pp 0)"));
}

}  // namespace
}  // namespace colonnade::record
