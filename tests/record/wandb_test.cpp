// Offline runs of Weights & Biases: framing, and reading by the datastore of the real package.
#include "colonnade/record/wandb.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "colonnade/base/files.h"
#include "colonnade/config/parse.h"
#include "colonnade/config/schema.h"
#include "colonnade/record/crc.h"
#include "colonnade/record/recorder.h"
#include "record/wandb_reader.h"
#include "support/vectors.h"

namespace colonnade::record {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::ElementsAre;

class WandbRuns : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_.root);
    fs::create_directories(folder_.root);
  }
  void TearDown() override { fs::remove_all(folder_.root); }

  /// The records of a file as the real package reads them.
  [[nodiscard]] json read_by_wandb(const fs::path& file) const {
    const fs::path script = folder_.root / "reader.py";
    std::ofstream(script) << test::kWandbReader;
    const fs::path python = fs::path(test::sources()) / ".venv/bin/python";
    const std::string command = fmt::format("{} {} {} 2>&1", python.string(), script.string(), file.string());
    const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
    std::string text(1 << 22, '\0');
    text.resize(std::fread(text.data(), 1, text.size(), pipe.get()));
    const std::size_t result = text.find("[{");
    EXPECT_NE(result, std::string::npos) << "wandb must read the file; run `tools/setup.sh test`\n" << text;
    return result == std::string::npos ? json::array() : json::parse(text.substr(result));
  }

  /// The only .wandb file below the folder for each session, in order of creation.
  [[nodiscard]] std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::recursive_directory_iterator(folder_.root / "wandb"))
      if (entry.path().extension() == ".wandb") found.push_back(entry.path());
    std::ranges::sort(found, {}, [](const fs::path& path) { return fs::last_write_time(path); });
    return found;
  }

  const RunFolder folder_{fs::path(testing::TempDir()) / "colonnade_wandb_test"};
};

// The check value of the CRC catalogue (CRC-32/ISO-HDLC).
TEST(Crc32, MatchesThePublishedValue) { EXPECT_EQ(crc32("123456789"), 0xcbf43926U); }

TEST(WandbFrames, DoNotCrossBlocks) {
  EXPECT_EQ(wandb_header(), std::string(":W&B\xe1\xbe\0", 7));
  EXPECT_EQ(wandb_frames("abc", 7).size(), 7U + 3);
  EXPECT_EQ(wandb_frames("abc", 7)[6], 1) << "full";
  const std::string padded = wandb_frames("abc", 32768 - 6);
  EXPECT_EQ(padded.substr(0, 6), std::string(6, '\0'));
  EXPECT_EQ(padded.size(), 6U + 7 + 3);
  const std::string split = wandb_frames(std::string(40000, 'x'), 7);
  EXPECT_EQ(split.size(), 40000U + 2 * 7);
  EXPECT_EQ(split[6], 2) << "first";
  EXPECT_EQ(split[32768 - 7 + 6], 4) << "last";
}

TEST_F(WandbRuns, AreReadByTheRealPackage) {
  config::Run run = config::parse({"gpt", "--lr", "3e-4", "--num-layers", "12", "--bf16", "--wandb-project",
                                   "books", "--wandb-entity", "team"});
  run.parallel.world_size = 8;
  const WandbRun facts = make_wandb_run(run, folder_, false);
  EXPECT_THAT(facts.folder.filename().string(),
              testing::MatchesRegex("offline-run-[0-9]+_[0-9]+-" + facts.id));
  EXPECT_EQ(facts.name, "colonnade_wandb_test");
  {
    WandbFile file(facts, run);
    file.row(1, {{"lm loss", 0.1 + 0.2}, {"grad-norm", std::numeric_limits<double>::quiet_NaN()}});
    for (int step = 2; step <= 700; ++step)  // several blocks
      file.row(step, {{"lm loss", 1.0 / step}, {"a rather long name of another loss", step * 0.5}});
    file.finish(3);
  }
  const json records = read_by_wandb(facts.folder / fmt::format("run-{}.wandb", facts.id));
  ASSERT_EQ(records.size(), 2U + 2 * 700 + 1);
  for (std::size_t i = 0; i < records.size(); ++i) EXPECT_EQ(records[i]["num"], i + 1);
  EXPECT_EQ(records[0]["kind"], "header");
  const json& started = records[1];
  EXPECT_EQ(started["kind"], "run");
  EXPECT_EQ(started["id"], facts.id);
  EXPECT_EQ(started["project"], "books");
  EXPECT_EQ(started["entity"], "team");
  EXPECT_EQ(started["name"], facts.name);
  EXPECT_EQ(started["config"]["lr"], 3e-4);
  EXPECT_EQ(started["config"]["num_layers"], 12);
  EXPECT_EQ(started["config"]["params_dtype"], "bf16");
  EXPECT_EQ(started["config"]["world_size"], 8);
  EXPECT_TRUE(started["config"]["train_iters"].is_null());
  for (const config::Setting& s : config::schema()) {
    EXPECT_TRUE(s.get == nullptr || started["config"].contains(s.key)) << s.key;
  }
  EXPECT_EQ(records[2]["kind"], "history");
  EXPECT_EQ(records[2]["step"], 1);
  EXPECT_EQ(records[2]["items"]["_step"], 1);
  EXPECT_EQ(records[2]["items"]["lm loss"], 0.1 + 0.2);
  EXPECT_TRUE(records[2]["items"]["grad-norm"].is_null()) << "NaN";
  EXPECT_EQ(records[1400]["kind"], "history");
  EXPECT_EQ(records[1400]["items"]["lm loss"], 1.0 / 700);
  EXPECT_EQ(records[1401]["kind"], "summary");
  EXPECT_EQ(records[1401]["items"]["lm loss"], 1.0 / 700);
  EXPECT_EQ(records[1402]["kind"], "exit");
  EXPECT_EQ(records[1402]["code"], 3);
}

/// Step and loss of the history rows with a training loss.
std::vector<std::pair<int, double>> losses(const json& records) {
  std::vector<std::pair<int, double>> found;
  for (const json& r : records)
    if (r["kind"] == "history" && r["items"].contains("lm loss"))
      found.emplace_back(r["step"], r["items"]["lm loss"]);
  return found;
}

TEST_F(WandbRuns, AResumedRunRepeatsTheKeptStepsUnderItsId) {
  const config::Run run = config::parse({"gpt", "--wandb-project", "books", "--global-batch-size", "8"});
  const auto session = [&](std::int64_t first, std::int64_t last, double loss) {
    Recorder recorder(folder_, run, {first - 1, (first - 1) * 8}, true);
    for (std::int64_t i = first; i <= last; ++i)
      recorder.step({.iteration = i, .consumed_samples = i * 8, .lm_loss = loss, .step_ms = 1}, {}, last);
    recorder.evaluation({.iteration = last, .loss = 7});
  };
  session(1, 3, 5);
  const fs::path first_file = files().front();
  session(3, 4, 4);
  auto both = files();
  ASSERT_EQ(both.size(), 2U);
  std::erase(both, first_file);
  const json before = read_by_wandb(first_file), after = read_by_wandb(both.front());
  EXPECT_THAT(losses(before), ElementsAre(std::pair(1, 5.0), std::pair(2, 5.0), std::pair(3, 5.0)));
  EXPECT_THAT(losses(after),
              ElementsAre(std::pair(1, 5.0), std::pair(2, 5.0), std::pair(3, 4.0), std::pair(4, 4.0)));
  EXPECT_EQ(before[1]["id"], after[1]["id"]);
  EXPECT_EQ(after.back()["kind"], "exit");
  EXPECT_EQ(after[after.size() - 3]["items"]["lm loss validation"], 7);
}

TEST_F(WandbRuns, ANewRunInTheFolderHasANewId) {
  const config::Run run = config::parse({"gpt", "--wandb-project", "books"});
  const std::string id = make_wandb_run(run, folder_, false).id;
  EXPECT_EQ(make_wandb_run(run, folder_, true).id, id);
  EXPECT_NE(make_wandb_run(run, folder_, false).id, id);
}

TEST_F(WandbRuns, AreWrittenOnlyOnRequest) {
  { const Recorder without(folder_, config::parse({"gpt"}), {}, true); }
  EXPECT_FALSE(fs::exists(folder_.root / "wandb"));
  { const Recorder other_rank(folder_, config::parse({"gpt", "--wandb-project", "p"}), {}, false); }
  EXPECT_FALSE(fs::exists(folder_.root / "wandb"));
}

}  // namespace
}  // namespace colonnade::record
