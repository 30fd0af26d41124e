// Offline runs of Weights & Biases of real runs, read by the real package.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "program.h"
#include "record/wandb_reader.h"

namespace colonnade::e2e {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

/// The .wandb files below `folder`, oldest first.
std::vector<fs::path> wandb_files(const fs::path& folder) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.path().extension() == ".wandb") found.push_back(entry.path());
  std::ranges::sort(found, {}, [](const fs::path& path) { return written_s(path); });
  return found;
}

json records_of(const fs::path& file) {
  const Result read = run({COLONNADE_PYTHON_BIN "/python", "-c", test::kWandbReader, file.string()});
  const std::size_t begin = read.text.find("[{");
  EXPECT_NE(begin, std::string::npos) << "wandb must read the file; run `tools/setup.sh test`\n" << read.text;
  return begin == std::string::npos ? json::array() : json::parse(read.text.substr(begin));
}

/// Items of the history rows by step; an evaluation's row is joined with its step's.
std::map<int, json> history_of(const json& records) {
  std::map<int, json> rows;
  for (const json& record : records)
    if (record.at("kind") == "history") rows[record.at("step")].update(record.at("items"));
  return rows;
}

TEST(Trackers, OfflineRunHasTheRunItsSettingsAndEveryStep) {
  const TempFolder folder;
  const Result result = run(
      launch(2, folder.path(),
             small_gpt() + Words{"--train-iters", "4", "--eval-interval", "4", "--eval-iters", "1",
                                 "--log-params-norm", "--save", (folder / "run").string(), "--wandb-project",
                                 "books", "--wandb-exp-name", "small", "--wandb-entity", "team",
                                 "--wandb-save-dir", (folder / "tracked").string()}));
  ASSERT_EQ(result.code, 0) << result.text;
  const auto files = wandb_files(folder / "tracked/wandb");
  ASSERT_EQ(files.size(), 1U) << "one rank writes";
  EXPECT_THAT(result.text, HasSubstr("`wandb sync " + files[0].parent_path().string() + "`"));
  const json records = records_of(files[0]);
  const json& started = records.at(1);
  EXPECT_EQ(started.at("project"), "books");
  EXPECT_EQ(started.at("entity"), "team");
  EXPECT_EQ(started.at("name"), "small");
  EXPECT_EQ(started.at("config").at("hidden_size"), 64);
  EXPECT_EQ(started.at("config").at("lr"), 1e-3);
  EXPECT_EQ(started.at("config").at("world_size"), 2);
  const auto rows = history_of(records);
  const auto lines = metrics(folder / "run");
  ASSERT_EQ(rows.size(), lines.size());
  for (const json& line : lines) {
    const json& row = rows.at(line.at("iteration"));
    for (const auto& [tag, key] : std::map<std::string, std::string>{{"lm loss", "lm_loss"},
                                                                     {"grad-norm", "grad_norm"},
                                                                     {"learning-rate", "learning_rate"},
                                                                     {"params-norm", "params_norm"},
                                                                     {"throughput", "tflops_per_device"}})
      EXPECT_EQ(row.at(tag), line.at(key)) << tag;
  }
  EXPECT_EQ(rows.at(4).at("lm loss validation"), validations(folder / "run").at(0).at("loss"));
  EXPECT_EQ(records.back().at("kind"), "exit");
  EXPECT_EQ(records.back().at("code"), 0);
}

TEST(Trackers, AKilledRunKeepsItsStepsAndResumesUnderItsId) {
  const TempFolder folder;
  const auto words = small_gpt() + Words{"--train-iters", "4",   "--eval-iters",    "0",    "--save", "run",
                                         "--load",        "run", "--wandb-project", "books"};
  Program killed(colonnade(words), {{"COLONNADE_FAULT", "at=forward step=4"}}, folder.path());
  EXPECT_EQ(killed.finish().code, 128 + 9);
  const fs::path first = wandb_files(folder / "run/wandb").at(0);
  const json before = records_of(first);
  EXPECT_EQ(history_of(before).size(), 3U);
  EXPECT_NE(before.back().at("kind"), "exit");
  EXPECT_EQ(before.at(1).at("name"), "run") << "the folder's name";
  const Result more = run(colonnade(words), {}, folder.path());
  ASSERT_EQ(more.code, 0) << more.text;
  auto files = wandb_files(folder / "run/wandb");
  ASSERT_EQ(files.size(), 2U);
  std::erase(files, first);
  const json after = records_of(files[0]);
  EXPECT_EQ(after.at(1).at("id"), before.at(1).at("id"));
  const auto rows = history_of(after);
  std::vector<int> steps;
  for (const auto& [step, row] : rows) {
    steps.push_back(step);
    EXPECT_EQ(row.at("lm loss"),
              metrics(folder / "run").at(static_cast<std::size_t>(step) - 1).at("lm_loss"));
  }
  EXPECT_THAT(steps, ElementsAre(1, 2, 3, 4)) << "complete, with the steps before the checkpoint";
}

}  // namespace
}  // namespace colonnade::e2e
