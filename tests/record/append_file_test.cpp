// Records stay complete when the disk is full, and the program continues.
#include "colonnade/record/append_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <string>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"

namespace colonnade::record {
namespace {

namespace fs = std::filesystem;

TEST(AppendFile, AppendsToAnExistingFile) {
  const fs::path path = fs::path(testing::TempDir()) / "colonnade_append_test";
  fs::remove(path);
  AppendFile(path).append("one ");
  AppendFile(path).append("two");
  EXPECT_EQ(read_file(path), "one two");
  fs::remove(path);
}

// A file size limit simulates a full disk: the write is short.
TEST(AppendFile, DropsARecordCompletelyWhenTheDiskIsFull) {
  const fs::path path = fs::path(testing::TempDir()) / "colonnade_append_full_test";
  fs::remove(path);
  AppendFile file(path);
  const std::string whole(10000, 'w');
  file.append(whole);
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const rlimit tight{10005, old.rlim_max};
  setrlimit(RLIMIT_FSIZE, &tight);
  testing::internal::CaptureStderr();
  file.append("abcdefghij");
  file.append("klmnopqrst");
  const std::string warning = testing::internal::GetCapturedStderr();
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, before);
  EXPECT_EQ(read_file(path), whole);
  EXPECT_THAT(warning, testing::HasSubstr("the run continues"));
  EXPECT_EQ(warning.find("the run continues"), warning.rfind("the run continues")) << "only one warning";
  file.append("after");
  EXPECT_EQ(read_file(path), whole + "after");
  fs::remove(path);
}

TEST(AppendFile, ReportsWhyAFileCannotBeOpened) { EXPECT_THROW(AppendFile("/proc/no/such/file"), Error); }

}  // namespace
}  // namespace colonnade::record
