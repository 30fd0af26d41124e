// ledger.jsonl: round trips, resumed and new runs, torn and damaged lines.
#include "colonnade/audit/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/checkpoint/checksum.h"
#include "colonnade/data/indexed/indexed_dataset.h"
#include "colonnade/data/samples/gpt/gpt_batches.h"
#include "colonnade/record/metrics.h"

namespace colonnade::audit {
namespace {

namespace fs = std::filesystem;

class Ledger : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_.root);
    fs::create_directories(folder_.root);
  }
  void TearDown() override { fs::remove_all(folder_.root); }
  static LedgerLine line(std::int64_t step) {
    return {.began = "2026-11-21 13:04:08",
            .began_s = 1'795'266'248,
            .loaded = {step, step * 8},
            .from = "/runs/a/checkpoints/step_00000002",
            .own = false,
            .settings = {{"seed", "7"}, {"split", "1,0,0"}},
            .data = {{"train", {{"permuted", 0}}}},
            .tokenizer = nullptr,
            .files = {{"/data/a.idx", 120, 1234567890123456789, "0123abcd", {"/data/a"}},
                      {"/data/a.bin", 4000, 5, "4567cdef", {"/data/a", "/data/b"}}}};
  }
  void steps(std::int64_t last) const {
    record::MetricsFile file(folder_.metrics(), 0);
    for (std::int64_t i = 1; i <= last; ++i)
      file.append(record::StepRecord{.iteration = i, .consumed_samples = i * 8});
  }
  const record::RunFolder folder_{fs::path(testing::TempDir()) / "colonnade_ledger_test"};
};

TEST_F(Ledger, KeepsTheProgressOfACheckpointWithAnOverriddenIteration) {
  add_to_ledger(folder_, line(0));
  LedgerLine counted = line(0);  // as iteration 0: earlier sessions stay, because they made the weights
  counted.saved = record::ResumePoint{4, 32};
  add_to_ledger(folder_, counted);
  const auto lines = read_ledger(folder_);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[1].loaded.step, 0);
  EXPECT_EQ(lines[1].retained().step, 4);
  EXPECT_EQ(lines[1].retained().samples, 32);
}

TEST_F(Ledger, RoundTrips) {
  add_to_ledger(folder_, line(0));
  steps(5);
  add_to_ledger(folder_, line(2));
  const auto lines = read_ledger(folder_);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_FALSE(lines[0].reached || lines[0].saved);
  EXPECT_EQ(lines[1].retained().step, 2);
  EXPECT_EQ(lines[1].loaded.step, 2);
  EXPECT_EQ(lines[1].loaded.samples, 16);
  EXPECT_EQ(lines[1].reached->step, 5) << "three steps are repeated";
  EXPECT_EQ(lines[1].reached->samples, 40);
  const LedgerLine expected = line(2);
  EXPECT_EQ(lines[1].began, expected.began);
  EXPECT_EQ(lines[1].began_s, expected.began_s);
  EXPECT_EQ(lines[1].from, expected.from);
  EXPECT_FALSE(lines[1].own);
  EXPECT_EQ(lines[1].settings, expected.settings);
  EXPECT_EQ(lines[1].data, expected.data);
  EXPECT_EQ(lines[1].tokenizer, expected.tokenizer);
  EXPECT_EQ(lines[1].files, expected.files);
}

TEST_F(Ledger, OldLedgersDoNotRecordTheDatasetsOfFiles) {
  add_to_ledger(folder_, line(0));
  std::string text = read_file(folder_.ledger());
  for (const char* sets : {R"(,"sets":["/data/a"])", R"(,"sets":["/data/a","/data/b"])"}) {
    const std::size_t at = text.find(sets);
    ASSERT_NE(at, std::string::npos) << text;
    text.erase(at, std::string(sets).size());
  }
  std::ofstream(folder_.ledger()) << text;
  const auto lines = read_ledger(folder_);
  ASSERT_EQ(lines[0].files.size(), 2U);
  EXPECT_TRUE(lines[0].files[0].sets.empty());
  EXPECT_EQ(lines[0].files[1].xxh3_128, "4567cdef");
}

TEST_F(Ledger, NewRunRenamesTheLedgerOfAnother) {
  add_to_ledger(folder_, line(0));
  add_to_ledger(folder_, line(2));
  add_to_ledger(folder_, line(0));
  EXPECT_EQ(read_ledger(folder_).size(), 1U);
  EXPECT_TRUE(fs::exists(folder_.ledger().string() + ".1"));
}

TEST_F(Ledger, TornLineIsLeftOut) {
  add_to_ledger(folder_, line(0));
  std::ofstream(folder_.ledger(), std::ios::app) << R"({"version": 2, "beg)";
  EXPECT_EQ(read_ledger(folder_).size(), 1U);
  add_to_ledger(folder_, line(4));
  const auto lines = read_ledger(folder_);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[1].loaded.step, 4);
}

TEST_F(Ledger, DamageIsReported) {
  const auto message = [&](const std::string& text) -> std::string {
    std::ofstream(folder_.ledger()) << text;
    try {
      (void)read_ledger(folder_);
    } catch (const DataError& e) {
      return e.what();
    }
    return "nothing";
  };
  EXPECT_THAT(message(""), testing::HasSubstr("must hold a session"));
  EXPECT_THAT(message("{\"version\": 2}\n"), testing::HasSubstr(":1: each line must be a session in JSON"));
  EXPECT_THAT(message("{\"version\": 1}\n"), testing::HasSubstr("version 1"));
  EXPECT_THAT(message("[1]\n"), testing::HasSubstr("ledger.jsonl:1: "));
  fs::remove(folder_.ledger());
  try {
    (void)read_ledger(folder_);
    FAIL();
  } catch (const DataError& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("got a folder without it"));
  }
}

TEST_F(Ledger, FileStateIsRecorded) {
  const std::string path = folder_.root / "x.idx", tokens = folder_.root / "x.bin";
  std::ofstream(path) << "abc";
  std::ofstream(tokens) << "abc";
  const DataFile file = file_now(path);
  EXPECT_EQ(file.bytes, 3U);
  EXPECT_EQ(file.xxh3_128, "06b05ab6733a618578af5f94892f3950") << "XXH3-128 of abc";
  EXPECT_EQ(file_now(tokens).xxh3_128, file.xxh3_128) << "it is small";
  EXPECT_THROW((void)file_now(folder_.root / "none.idx"), DataError);
}

TEST_F(Ledger, LargeBinIsReadAtBothEndsAndBetween) {
  const std::string path = folder_.root / "x.bin";
  std::string bytes(3'000'000, 'a');
  const auto sum = [&] {
    std::ofstream(path, std::ios::binary) << bytes;
    return file_now(path).xxh3_128;
  };
  const std::string before = sum();
  for (const std::size_t at : {std::size_t{0}, std::size_t{1'500'000}, bytes.size() - 1}) {
    // Blocks are less than 50,000 bytes apart.
    const std::size_t begin = std::min(at, bytes.size() - 50'000),
                      length = at == 0 || at + 1 == bytes.size() ? 1 : 50'000;
    const std::string was = bytes;
    bytes.replace(length == 1 ? at : begin, length, length, 'b');
    EXPECT_NE(sum(), before) << at;
    bytes = was;
  }
  EXPECT_EQ(sum(), before);
  bytes[2'000'000] = 'b';
  const checkpoint::FileChecksum whole = checkpoint::file_checksum(path);
  EXPECT_NE(file_now(path).xxh3_128, whole.xxh3_128) << "it is not read in full";
}

TEST_F(Ledger, ResumedSessionWarnsOfChangedFiles) {
  const auto a = (folder_.root / "a").string();
  const std::vector<std::int32_t> ids(100, 7);
  const auto write = [&](std::int32_t first) {
    data::IndexedDatasetBuilder builder(a, data::TokenType::kInt32);
    std::vector<std::int32_t> text = ids;
    text[0] = first;
    builder.add_document(text, std::vector<std::int32_t>{100});
    builder.finalize();
  };
  config::Run run;
  run.data.data_path = {a};
  run.data.split = "1,0,0";
  run.training.seq_length = 16;
  run.training.global_batch_size = 4;
  run.training.train_samples = 8;
  const auto session = [&](std::int64_t step) {
    const data::Splits splits = data::open_gpt_batches(run.data, run.training, {});
    const std::string from = step > 0 ? (folder_.checkpoints() / "step").string() : "";
    testing::internal::CaptureStderr();
    write_session(folder_, run, splits, {.loaded = {step, step * 4}, .from = from});
    return testing::internal::GetCapturedStderr();
  };
  write(1);
  EXPECT_EQ(session(0), "");
  EXPECT_EQ(session(2), "");
  write(2);
  EXPECT_THAT(session(2), testing::AllOf(testing::HasSubstr("a: changed since the session of 20"),
                                         testing::HasSubstr(", which made the checkpoint: a.bin "),
                                         testing::HasSubstr("sample indices continue")));
  EXPECT_EQ(session(4), "") << "made from this data";
  EXPECT_THAT(session(2), testing::HasSubstr("a: changed since"))
      << "the checkpoint was made from the other data";
  write(1);
  EXPECT_EQ(session(2), "") << "data and checkpoint agree";
  EXPECT_EQ(read_ledger(folder_).back().files.at(0).sets, std::vector{a});
  EXPECT_THAT(session(0), testing::Not(testing::HasSubstr("changed since"))) << "a new run";
}

TEST_F(Ledger, SessionDidNotMakeAnEarlierCheckpoint) {
  const LedgerLine session{.began_s = 1000, .loaded = {2, 8}};
  const std::string gone = (folder_.root / "gone").string(), made = (folder_.root / "step_00000004").string();
  EXPECT_FALSE(started_after(session, gone, 4));
  EXPECT_TRUE(started_after(session, gone, 2)) << "it started from this checkpoint";
  fs::create_directories(made);
  std::ofstream(fs::path(made) / "manifest.json") << "{}";
  EXPECT_FALSE(started_after(session, made, 4)) << "made today";
  EXPECT_TRUE(started_after({.began_s = 1LL << 33, .loaded = {2, 8}}, made, 4));
}

TEST_F(Ledger, SessionThatCannotBeRecordedMustNotStart) {
  add_to_ledger(folder_, line(0));
  fs::remove(folder_.ledger());
  fs::create_directories(folder_.ledger() / "in the way");
  for (const std::int64_t step : {0, 2}) {
    try {
      add_to_ledger(folder_, line(step));
      FAIL() << step;
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), testing::AllOf(testing::HasSubstr("must record this session"),
                                           testing::HasSubstr("--save")));
    }
  }
}

}  // namespace
}  // namespace colonnade::audit
