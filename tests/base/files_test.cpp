// Whole-file reads, maps and atomic writes: what is there after success and after failure.
#include "colonnade/base/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "colonnade/base/error.h"

namespace colonnade {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Files : public testing::Test {
 protected:
  Files() { fs::create_directories(folder_); }
  ~Files() override { fs::remove_all(folder_); }
  /// Names in the folder, besides `file`.
  [[nodiscard]] int others(const fs::path& file) const {
    int count = 0;
    for (const auto& entry : fs::directory_iterator(folder_)) count += entry.path() == file ? 0 : 1;
    return count;
  }

  const fs::path folder_ =
      fs::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(Files, AnAtomicWriteReplacesTheWholeFileAndLeavesNothingElse) {
  const fs::path file = folder_ / "a.txt";
  write_file_atomically(file, "a long first text");
  write_file_atomically(file, std::string("\0two", 4));
  EXPECT_EQ(read_file(file), std::string("\0two", 4));
  EXPECT_EQ(others(file), 0);
}

TEST_F(Files, FoldersAreMadeDownToTheLast) {
  create_folders(folder_ / "a/b/c");
  create_folders(folder_ / "a/b/c");
  create_folders(folder_ / "a/d/");
  EXPECT_TRUE(fs::is_directory(folder_ / "a/b/c"));
  EXPECT_TRUE(fs::is_directory(folder_ / "a/d"));
  write_file_atomically(folder_ / "file", "");
  EXPECT_THROW(create_folders(folder_ / "file/e"), fs::filesystem_error);
}

TEST_F(Files, AWriteThatFailsKeepsTheOldFileAndNamesThePath) {
  const fs::path taken = folder_ / "taken";
  fs::create_directories(taken / "inside");
  try {
    write_file_atomically(taken, "text");
    FAIL() << "a folder was replaced by a file";
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), HasSubstr(taken.string()));
  }
  EXPECT_TRUE(fs::exists(taken / "inside"));
  EXPECT_EQ(others(taken), 0);
  EXPECT_THROW(write_file_atomically(folder_ / "absent" / "a.txt", "text"), Error);
}

TEST_F(Files, AMapHoldsTheBytesAndMoves) {
  const fs::path file = folder_ / "map";
  write_file_atomically(file, "bytes");
  MappedFile map(file);
  MappedFile moved = std::move(map);
  ASSERT_EQ(moved.bytes().size(), 5U);
  EXPECT_EQ(moved.bytes()[4], std::byte{'s'});
  EXPECT_EQ(map.bytes().size(), 0U);  // NOLINT(bugprone-use-after-move): what a moved-from map promises
  write_file_atomically(folder_ / "empty", "");
  EXPECT_EQ(MappedFile(folder_ / "empty").bytes().size(), 0U);
}

TEST_F(Files, WhatCannotBeReadIsADataErrorWithItsPath) {
  const fs::path absent = folder_ / "absent";
  for (const auto& read : {+[](const fs::path& path) { (void)read_file(path); },
                           +[](const fs::path& path) { (void)MappedFile(path); }}) {
    try {
      read(absent);
      FAIL() << "a file that is not there was read";
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(), HasSubstr(absent.string() + ": cannot be opened; No such file"));
    }
  }
  EXPECT_THROW((void)read_file(folder_), DataError);
  EXPECT_THROW(sync_path(absent), Error);
}

TEST_F(Files, EntriesComeByNameAndAFolderThatCannotBeReadIsNamed) {
  for (const char* name : {"b", "a", "c"}) write_file_atomically(folder_ / name, "");
  fs::create_directory(folder_ / "d");
  std::vector<std::string> names;
  for (const auto& entry : entries_of(folder_)) names.push_back(entry.path().filename());
  EXPECT_THAT(names, testing::ElementsAre("a", "b", "c", "d"));
  EXPECT_TRUE(entries_of(folder_ / "d").empty());
  for (const auto& [path, reason] :
       {std::pair{folder_ / "a", "Not a directory"}, {folder_ / "no", "No such file"}}) {
    try {
      (void)entries_of(path);
      FAIL() << path;
    } catch (const Error& error) {
      EXPECT_THAT(
          error.what(),
          testing::AllOf(HasSubstr(path.string() + ": the system must be able to read it; got " + reason),
                         HasSubstr("check its rights, disk or network")));
    }
  }
}

}  // namespace
}  // namespace colonnade
