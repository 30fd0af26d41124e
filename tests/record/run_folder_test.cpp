// Choice, creation and ownership of run folders.
#include "colonnade/record/run_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "colonnade/base/error.h"

namespace colonnade::record {
namespace {

namespace fs = std::filesystem;

TEST(RunFolder, IsTheRequestedOne) {
  const RunFolder folder = choose_run_folder("a/b");
  EXPECT_EQ(folder.metrics(), "a/b/metrics.jsonl");
  EXPECT_EQ(folder.checkpoints(), "a/b/checkpoints");
}

TEST(RunFolder, WithoutANameIsANewOneNamedByTheTime) {
  const fs::path here = fs::current_path();
  const fs::path scratch = fs::path(testing::TempDir()) / "colonnade_run_folder_test";
  fs::remove_all(scratch);
  fs::create_directories(scratch);
  fs::current_path(scratch);
  const RunFolder first = choose_run_folder("");
  EXPECT_THAT(first.root.string(),
              testing::ContainsRegex("^runs/[0-9]{4}-[0-9]{2}-[0-9]{2}_[0-9]{2}-[0-9]{2}-[0-9]{2}$"));
  EXPECT_NE(choose_run_folder("").root, first.root) << "two runs of one second";
  make_run_folder(first);
  EXPECT_TRUE(fs::is_directory(first.checkpoints()));
  fs::current_path(here);
  fs::remove_all(scratch);
}

class OwnedFolderTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::path(testing::TempDir()) / "owned-XXXXXX").string();
    scratch_ = ::mkdtemp(name.data());
    run_ = scratch_ / "a/run";
  }
  void TearDown() override { fs::remove_all(scratch_); }
  /// The error, or "".
  std::string fault(const std::optional<std::vector<std::int64_t>>& steps_seen = std::nullopt) const {
    try {
      const OwnedFolder owned(run_, steps_seen, {.grace_s = 0.1});
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  }
  fs::path scratch_, run_;
};

TEST_F(OwnedFolderTest, HasOneOwner) {
  const OwnedFolder owned(run_, std::nullopt);
  EXPECT_TRUE(fs::is_directory(owned.folder().checkpoints()));
  EXPECT_THAT(fault(),
              testing::AllOf(testing::HasSubstr("--save: one process at a time"),
                             testing::HasSubstr(run_.string() + ", held by host "),
                             testing::HasSubstr("wait for that run, stop it, or choose another folder")));
}

TEST_F(OwnedFolderTest, CreatedAndEmptyFolderIsRemoved) {
  { const OwnedFolder owned(run_, std::nullopt); }
  EXPECT_FALSE(fs::exists(run_));
  fs::create_directories(run_);
  { const OwnedFolder owned(run_, std::nullopt); }
  EXPECT_TRUE(fs::exists(run_)) << "it existed before";
  fs::remove_all(run_);
  {
    const OwnedFolder owned(run_, std::nullopt);
    fs::create_directories(run_ / "checkpoints/step_00000002");
  }
  EXPECT_TRUE(fs::exists(run_ / "checkpoints/step_00000002"));
  EXPECT_FALSE(fs::exists(run_ / "owner.txt"));
}

TEST_F(OwnedFolderTest, CheckpointsOfAnotherRunAreDetected) {
  fs::create_directories(run_ / "checkpoints/step_00000002");
  EXPECT_EQ(fault({{2}}), "");
  EXPECT_THAT(fault({{}}), testing::HasSubstr("with checkpoints up to step 2 now, and no checkpoint when the "
                                              "settings were read"));
  EXPECT_EQ(fault(), "") << "unknown";
}

TEST(RunFolder, FailureToCreateItIsAConfigError) {
  try {
    make_run_folder({"/proc/run"});
    FAIL() << "made a folder in /proc";
  } catch (const ConfigError& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("/proc/run"));
  }
}

}  // namespace
}  // namespace colonnade::record
