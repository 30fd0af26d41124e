// Where a run leaves its files.
#include "colonnade/train/run_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "colonnade/base/error.h"

namespace colonnade::train {
namespace {

namespace fs = std::filesystem;

TEST(RunFolder, IsTheOneThatWasAskedFor) {
  const RunFolder folder = choose_run_folder("a/b");
  EXPECT_EQ(folder.metrics(), "a/b/metrics.jsonl");
  EXPECT_EQ(folder.checkpoints(), "a/b/checkpoints");
}

TEST(RunFolder, WithoutANameIsAFreeOneNamedByTheTime) {
  const fs::path here = fs::current_path();
  const fs::path scratch = fs::path(testing::TempDir()) / "colonnade_run_folder_test";
  fs::remove_all(scratch);
  fs::create_directories(scratch);
  fs::current_path(scratch);
  const RunFolder first = choose_run_folder("");
  EXPECT_THAT(first.root.string(),
              testing::ContainsRegex("^runs/[0-9]{4}-[0-9]{2}-[0-9]{2}_[0-9]{2}-[0-9]{2}-[0-9]{2}$"));
  EXPECT_FALSE(fs::exists(first.root));
  make_run_folder(first);
  EXPECT_TRUE(fs::is_directory(first.checkpoints()));
  EXPECT_NE(choose_run_folder("").root, first.root);
  fs::current_path(here);
  fs::remove_all(scratch);
}

TEST(RunFolder, ThatCannotBeMadeIsAFaultOfTheSettings) {
  try {
    make_run_folder({"/proc/run"});
    FAIL() << "made a folder in /proc";
  } catch (const ConfigError& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("/proc/run"));
  }
}

}  // namespace
}  // namespace colonnade::train
