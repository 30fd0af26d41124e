// Audits of runs with sessions, steps and data made by the test.
#include "colonnade/audit/audit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "colonnade/audit/ledger.h"
#include "colonnade/base/error.h"
#include "colonnade/base/log.h"
#include "colonnade/config/parse.h"
#include "colonnade/data/indexed/indexed_dataset.h"
#include "colonnade/job/prepare.h"
#include "colonnade/record/metrics.h"

namespace colonnade::audit {
namespace {

namespace fs = std::filesystem;
using json = nlohmann::ordered_json;
using testing::HasSubstr;

/// Documents of 10 tokens; token i of document d is 10 d + i + `more`.
void write_documents(const std::string& prefix, std::int32_t count, std::int32_t more = 0) {
  data::IndexedDatasetBuilder builder(prefix, data::TokenType::kInt32);
  for (std::int32_t d = 0; d < count; ++d) {
    std::vector<std::int32_t> ids;
    for (std::int32_t at = 0; at < 10; ++at) ids.push_back(10 * d + at + more);
    builder.add_document(ids, std::vector<std::int32_t>{10});
  }
  builder.finalize();
}

class Audit : public testing::Test {
 protected:
  void SetUp() override {
    log::set_level(log::Level::kError);
    fs::remove_all(root_);
    fs::create_directories(root_);
    write_documents((root_ / "a").string(), 40);
  }
  void TearDown() override {
    fs::remove_all(root_);
    log::set_level(log::Level::kInfo);
  }

  [[nodiscard]] config::Run settings(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words{"gpt",
                                   "--data-path",
                                   (root_ / "a").string(),
                                   "--seq-length",
                                   "8",
                                   "--vocab-size",
                                   "400",
                                   "--split",
                                   "1,0,0",
                                   "--train-iters",
                                   "8",
                                   "--eval-iters",
                                   "0",
                                   "--global-batch-size",
                                   "4",
                                   "--micro-batch-size",
                                   "1"};
    words.insert(words.end(), more.begin(), more.end());
    return config::parse(words);
  }

  /// Records steps `first` to `last` of 4 samples each, those in `skipped` without an update.
  void session(const std::string& name, const config::Run& run, std::int64_t first, std::int64_t last,
               const std::vector<std::int64_t>& skipped = {}, const std::string& from = "") const {
    const record::RunFolder folder{root_ / name};
    const record::ResumePoint loaded{first - 1, (first - 1) * 4};
    const auto splits = job::open_batches(run, nullptr, {.done = {loaded.step, loaded.samples}});
    write_session(folder, run, splits, {.loaded = loaded, .from = from});
    record::MetricsFile metrics(folder.metrics(), loaded.step);
    for (std::int64_t i = first; i <= last; ++i)
      metrics.append(record::StepRecord{.iteration = i,
                                        .consumed_samples = i * 4,
                                        .skipped = std::ranges::find(skipped, i) != skipped.end()});
  }

  /// A session whose checkpoint of step `saved` counts as `iteration`, up to step `last`.
  void counted(const std::string& name, const config::Run& run, std::int64_t saved, std::int64_t iteration,
               std::int64_t last) const {
    const record::RunFolder folder{root_ / name};
    const record::ResumePoint loaded{iteration, iteration * 4};
    const auto splits = job::open_batches(run, nullptr, {.done = {loaded.step, loaded.samples}});
    write_session(folder, run, splits,
                  {.loaded = loaded,
                   .saved = record::ResumePoint{saved, saved * 4},
                   .from = (folder.checkpoints() / fmt::format("step_{:08}", saved)).string()});
    record::MetricsFile metrics(folder.metrics(), std::min(saved, iteration));
    for (std::int64_t i = iteration + 1; i <= last; ++i)
      metrics.append(record::StepRecord{.iteration = i, .consumed_samples = i * 4});
  }

  [[nodiscard]] json of(const std::string& name, const AuditOptions& options = {}) const {
    return audit(root_ / name, options);
  }

  /// How often samples [0, end) of the run start each document, from their tokens; 0 for one of which they
  /// read other tokens only.
  [[nodiscard]] static std::map<std::int64_t, int> read(const config::Run& run, std::int64_t end) {
    const auto splits = job::open_batches(run, nullptr, {});
    std::map<std::int64_t, int> begun;
    for (std::int64_t i = 0; i < end; ++i)
      for (const std::int64_t token : splits[0]->get(i, 1).tokens)
        begun[token / 10] += token % 10 == 0 ? 1 : 0;
    return begun;
  }

  const fs::path root_ = fs::path(testing::TempDir()) / "colonnade_audit_test";
};

TEST_F(Audit, RunResumedFromAnOlderCheckpoint) {
  const config::Run run = settings();
  session("run", run, 1, 5, {2});
  session("run", run, 4, 6, {6});
  session("run", run, 4, 8);
  const json a = of("run");
  EXPECT_EQ(a["steps"], 8);
  EXPECT_EQ(a["samples"], 32);
  ASSERT_EQ(a["sessions"].size(), 3U);
  EXPECT_EQ(a["sessions"][0]["samples"], (json{0, 11}));
  EXPECT_EQ(a["sessions"][0]["lost_samples"], (json{12, 19}));
  EXPECT_EQ(a["sessions"][1]["steps"], nullptr);
  EXPECT_EQ(a["sessions"][1]["lost_samples"], (json{12, 23}));
  EXPECT_EQ(a["sessions"][2]["steps"], (json{4, 8}));
  EXPECT_EQ(a["computed_again"],
            json::parse(R"([{"samples": [12, 19], "times": 3}, {"samples": [20, 23], "times": 2}])"));
  EXPECT_EQ(a["lost"].size(), 0U);
  EXPECT_EQ(a["skipped"], json::parse(R"({"steps": 1, "ranges": [[4, 7]]})")) << "step 6 was repeated";
  EXPECT_EQ(a["unrecorded"].size(), 0U);
  ASSERT_EQ(a["data_sets"].size(), 1U);
  const json& set = a["data_sets"][0];
  const auto begun = read(run, 32);
  EXPECT_EQ(set["samples"], 32);
  EXPECT_EQ(set["tokens"], 256);
  EXPECT_DOUBLE_EQ(set["epochs"], 256.0 / 400);
  EXPECT_EQ(set["sequences"], 40);
  EXPECT_EQ(set["read"], begun.size());
  EXPECT_EQ(set["read_again"], 0);
  EXPECT_EQ(set["first_again"], nullptr);
  EXPECT_FALSE(data_changed(a));
  const std::string text = audit_text(a);
  for (const char* line :
       {"8 steps, 32 samples", "samples 12 to 19 were computed 3 times; the weights contain the last",
        "1 steps were skipped: samples 4 to 7", "all 2 unchanged", "none of its steps are in the weights"})
    EXPECT_THAT(text, HasSubstr(line));
}

TEST_F(Audit, SessionStartedAfterACheckpointDidNotMakeIt) {
  const config::Run run = settings();
  const fs::path made = root_ / "run/checkpoints/step_00000004";
  session("run", run, 1, 4);
  fs::create_directories(made);
  std::ofstream(made / "manifest.json") << "{}";
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  session("run", run, 3, 6, {}, (root_ / "run/checkpoints/step_00000002").string());  // saves nothing
  session("run", run, 5, 8, {}, made.string());
  const json a = of("run");
  ASSERT_EQ(a["sessions"].size(), 3U);
  EXPECT_EQ(a["sessions"][0]["steps"], (json{1, 4}));
  EXPECT_EQ(a["sessions"][0]["lost_samples"], nullptr);
  EXPECT_EQ(a["sessions"][1]["steps"], nullptr);
  EXPECT_EQ(a["sessions"][2]["steps"], (json{5, 8}));
}

TEST_F(Audit, CheckpointMayCountAsALaterIteration) {
  const config::Run run = settings();
  session("run", run, 1, 4);
  counted("run", run, 2, 3, 5);
  const json a = of("run");
  ASSERT_EQ(a["sessions"].size(), 2U);
  EXPECT_EQ(a["sessions"][0]["steps"], (json{1, 2}));
  EXPECT_EQ(a["sessions"][0]["samples"], (json{0, 7}));
  EXPECT_EQ(a["sessions"][0]["lost_samples"], (json{8, 15}));
  EXPECT_EQ(a["sessions"][0]["counted"], nullptr);
  EXPECT_EQ(a["sessions"][1]["steps"], (json{4, 5}));
  EXPECT_EQ(a["sessions"][1]["samples"], (json{12, 19}));
  EXPECT_EQ(a["sessions"][1]["counted"], (json{{"step", 2}, {"as", 3}}));
  EXPECT_EQ(a["computed_again"], json::parse(R"([{"samples": [12, 15], "times": 2}])"));
  EXPECT_EQ(a["lost"], json::parse("[[8, 11]]"));
  EXPECT_EQ(a["unrecorded"].size(), 0U) << "there is no step 3";
  EXPECT_EQ(a["data_sets"][0]["samples"], 16);
  EXPECT_THAT(audit_text(a), HasSubstr("step_00000002, whose step 2 counts as 3"));
  const json shown = of("run", {.samples = std::pair<std::int64_t, std::int64_t>{4, 13}})["shown"];
  ASSERT_EQ(shown.size(), 6U) << "samples 8 to 11 are in no session";
  EXPECT_EQ(shown[0]["step"], 2);
  EXPECT_EQ(shown[5]["step"], 4);
}

TEST_F(Audit, CheckpointMayCountAsAnEarlierIteration) {
  const config::Run run = settings();
  session("run", run, 1, 4);
  counted("run", run, 4, 2, 4);
  const json a = of("run");
  ASSERT_EQ(a["sessions"].size(), 2U);
  EXPECT_EQ(a["sessions"][0]["samples"], (json{0, 15}));
  EXPECT_EQ(a["sessions"][0]["lost_samples"], nullptr);
  EXPECT_EQ(a["sessions"][1]["steps"], (json{3, 4}));
  EXPECT_EQ(a["sessions"][1]["samples"], (json{8, 15}));
  EXPECT_EQ(a["computed_again"], json::parse(R"([{"samples": [8, 15], "times": 2, "held": 2}])"));
  EXPECT_EQ(a["unrecorded"], json::parse("[[3, 4]]")) << "their lines are of the later session";
  EXPECT_EQ(a["data_sets"][0]["samples"], 24);
  EXPECT_THAT(audit_text(a),
              HasSubstr("samples 8 to 15 were computed 2 times; the weights contain 2 of them"));
}

TEST_F(Audit, LostSamplesThatWereNotRepeated) {
  session("run", settings(), 1, 8);
  session("run", settings(), 3, 4);
  const json a = of("run");
  EXPECT_EQ(a["samples"], 16);
  EXPECT_EQ(a["computed_again"], json::parse(R"([{"samples": [8, 15], "times": 2}])"));
  EXPECT_EQ(a["lost"], json::parse("[[16, 31]]"));
}

TEST_F(Audit, RepeatedSequences) {
  const config::Run run = settings({"--train-iters", "40", "--dataloader-type", "cyclic"});
  session("run", run, 1, 40);
  const json set = of("run")["data_sets"][0];
  const auto begun = read(run, 160);
  int most = 0;
  for (const auto& [document, times] : begun) most = std::max(most, times);
  EXPECT_GT(most, 2) << "the test needs repeated data";
  EXPECT_EQ(set["read_again"],
            std::ranges::count_if(begun, [](const auto& each) { return each.second > 1; }));
  EXPECT_EQ(set["most"], most);
}

TEST_F(Audit, ParentRunInAnotherFolderIsIncluded) {
  session("a", settings(), 1, 6);
  const fs::path step = root_ / "a/checkpoints/step_00000004";
  session("b", settings(), 5, 8, {}, step.string());
  const json a = of("b");
  EXPECT_EQ(a["sessions"].size(), 2U);
  EXPECT_EQ(a["sessions"][0]["samples"], (json{0, 15}));
  EXPECT_EQ(a["sessions"][0]["lost_samples"], nullptr) << "they are in the weights of a";
  EXPECT_EQ(a["data_sets"][0]["samples"], 32);
  fs::remove(root_ / "a/ledger.jsonl");
  const json alone = of("b");
  EXPECT_EQ(alone["before"], (json{{"samples", {0, 15}}, {"from", step.string()}}));
  EXPECT_EQ(alone["data_sets"][0]["samples"], 16);
}

TEST_F(Audit, LaterSessionMayResumeFromAnotherRun) {
  session("a", settings(), 1, 6);
  session("b", settings(), 1, 3);
  session("b", settings(), 5, 8, {}, (root_ / "a/checkpoints/step_00000004").string());
  const json a = of("b");
  ASSERT_EQ(a["sessions"].size(), 3U);
  EXPECT_EQ(a["sessions"][0]["run"], (root_ / "a").string());
  EXPECT_EQ(a["sessions"][0]["samples"], (json{0, 15}));
  EXPECT_EQ(a["sessions"][1]["steps"], nullptr) << "b's own first steps are not in the weights";
  EXPECT_EQ(a["sessions"][1]["lost_samples"], (json{0, 11}));
  EXPECT_EQ(a["sessions"][2]["samples"], (json{16, 31}));
  EXPECT_EQ(a["computed_again"], json::parse(R"([{"samples": [0, 11], "times": 2}])"));
  EXPECT_EQ(a["before"], nullptr);
  EXPECT_EQ(a["unrecorded"].size(), 0U);
  EXPECT_EQ(a["data_sets"][0]["samples"], 32);
  fs::remove(root_ / "a/ledger.jsonl");
  const json alone = of("b");
  EXPECT_EQ(alone["before"]["samples"], (json{0, 15})) << "they were not computed by b's first session";
}

TEST_F(Audit, RunMayReturnToItsFolder) {
  session("a", settings(), 1, 8);
  session("b", settings(), 4, 6, {}, (root_ / "a/checkpoints/step_00000003").string());
  session("a", settings(), 7, 8, {}, (root_ / "b/checkpoints/step_00000006").string());
  const json a = of("a");
  ASSERT_EQ(a["sessions"].size(), 3U);
  EXPECT_EQ(a["sessions"][0]["steps"], (json{1, 3}));
  EXPECT_EQ(a["sessions"][0]["lost_samples"], (json{12, 31}));
  EXPECT_EQ(a["sessions"][1]["steps"], (json{4, 6}));
  EXPECT_EQ(a["sessions"][1]["run"], (root_ / "b").string());
  EXPECT_EQ(a["sessions"][2]["steps"], (json{7, 8}));
}

TEST_F(Audit, PathsMayBeRelativeAndFoldersMayMove) {
  const fs::path here = fs::current_path();
  fs::current_path(root_);
  session("a", settings(), 1, 6);
  session("b", settings(), 5, 6, {}, "a/../a/checkpoints/step_00000004");
  session("b", settings(), 6, 8, {}, "b/checkpoints/step_00000005");
  fs::current_path(here);
  fs::rename(root_ / "b", root_ / "moved");
  const json a = of("moved");
  EXPECT_EQ(a["sessions"].size(), 3U);
  EXPECT_EQ(a["sessions"][1]["from"], (root_ / "a/checkpoints/step_00000004").string());
  EXPECT_EQ(a["before"], nullptr);
  EXPECT_EQ(a["data_sets"][0]["samples"], 32);
}

TEST_F(Audit, ChecksumsOfUnchangedFilesAreReused) {
  const auto stamp = fs::file_time_type::clock::now() - std::chrono::hours(1);
  const auto sums = [this] {
    session("run", settings(), 1, 1);
    return read_ledger({root_ / "run"}).back().files;
  };
  for (const char* name : {"a.idx", "a.bin"}) fs::last_write_time(root_ / name, stamp);
  const auto before = sums();
  write_documents((root_ / "a").string(), 40, 1);
  for (const char* name : {"a.idx", "a.bin"}) fs::last_write_time(root_ / name, stamp);
  EXPECT_EQ(sums(), before) << "equal size and time: files are not read";
  fs::last_write_time(root_ / "a.bin", stamp + std::chrono::seconds(1));
  EXPECT_NE(sums()[0].xxh3_128, before[0].xxh3_128) << "another modification time";
}

TEST_F(Audit, DescribesTheDocumentsOfSamples) {
  const config::Run run = settings();
  session("run", run, 1, 8);
  const json a = of("run", {.samples = std::pair<std::int64_t, std::int64_t>{5, 9}});
  ASSERT_EQ(a["shown"].size(), 5U);
  const auto splits = job::open_batches(run, nullptr, {});
  for (std::int64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(a["shown"][i]["sample"], 5 + i);
    EXPECT_EQ(a["shown"][i]["step"], (5 + i) / 4 + 1);
    std::vector<std::int64_t> tokens;
    for (const json& piece : a["shown"][i]["pieces"]) {
      EXPECT_EQ(piece["tokens"][0], 10 * piece["sequence"].get<int>() + piece["offset"].get<int>());
      for (const json& token : piece["tokens"]) tokens.push_back(token);
    }
    tokens.pop_back();  // a label
    EXPECT_EQ(tokens, splits[0]->get(5 + i, 1).tokens);
  }
  EXPECT_THAT(audit_text(a), HasSubstr("sample 5 (step 2) of "));
  EXPECT_THROW((void)of("run", {.samples = std::pair<std::int64_t, std::int64_t>{30, 32}}), ConfigError);
  EXPECT_THROW((void)of("run", {.samples = std::pair<std::int64_t, std::int64_t>{-1, 2}}), ConfigError);
}

TEST_F(Audit, ChangedDataIsReported) {
  session("run", settings(), 1, 4);
  write_documents((root_ / "a").string(), 40);
  const json same = of("run");
  EXPECT_EQ(same["files"][0]["state"], "written again");
  EXPECT_FALSE(data_changed(same));
  EXPECT_EQ(same["data_sets"].size(), 1U);
  write_documents((root_ / "a").string(), 40, 1);
  const json other = of("run", {.samples = std::pair<std::int64_t, std::int64_t>{0, 1}});
  EXPECT_EQ(other["files"][0]["state"], "changed") << "same size, other tokens";
  EXPECT_EQ(other["files"][1]["state"], "written again");
  EXPECT_EQ(other["problems"].size(), 1U) << "reported once, though the data is used twice";
  EXPECT_THAT(audit_text(other), HasSubstr("a.bin: changed; same size, other contents"));
  write_documents((root_ / "a").string(), 41);
  const json changed = of("run");
  EXPECT_TRUE(data_changed(changed));
  EXPECT_EQ(changed["files"][1]["state"], "changed");
  EXPECT_EQ(changed["data_sets"].size(), 0U);
  EXPECT_THAT(changed["problems"][0].get<std::string>(), HasSubstr("its datasets cannot be counted"));
  EXPECT_EQ(changed["samples"], 16) << "results that need no data remain";
  fs::remove(root_ / "a.bin");
  EXPECT_THAT(audit_text(of("run")), HasSubstr("a.bin: missing"));
}

TEST_F(Audit, StepsWithoutALineAreListed) {
  session("run", settings(), 1, 3);
  const record::RunFolder folder{root_ / "run"};
  std::ofstream(folder.metrics(), std::ios::app)
      << record::to_json_line(record::StepRecord{.iteration = 6, .consumed_samples = 24})
      << "\n{\"iteration\": 7, \"cons";
  const json a = of("run");
  EXPECT_EQ(a["steps"], 6);
  EXPECT_EQ(a["unrecorded"], json::parse("[[4, 5]]"));
  EXPECT_EQ(a["data_sets"][0]["samples"], 24);
  fs::remove(folder.metrics());
  EXPECT_EQ(of("run")["samples"], 0);
}

TEST_F(Audit, SamplesOfASkippedStepAfterAMissingLineAreUnknown) {
  session("run", settings(), 1, 3);
  std::ofstream(record::RunFolder{root_ / "run"}.metrics(), std::ios::app)
      << record::to_json_line(record::StepRecord{.iteration = 5, .consumed_samples = 20, .skipped = true})
      << '\n';
  const json a = of("run");
  EXPECT_EQ(a["skipped"], json::parse(R"({"steps": 1, "ranges": []})"));
  EXPECT_THAT(audit_text(a), testing::HasSubstr("their samples are unknown"));
}

TEST_F(Audit, FolderWithoutALedgerIsRejected) { EXPECT_THROW((void)of("nothing"), DataError); }

}  // namespace
}  // namespace colonnade::audit
