// Whole-file reads, maps and atomic writes: file contents after success and after failure.
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
  /// Number of entries in the folder other than `file`.
  [[nodiscard]] int count_others(const fs::path& file) const {
    int count = 0;
    for (const auto& entry : fs::directory_iterator(folder_)) count += entry.path() == file ? 0 : 1;
    return count;
  }

  const fs::path folder_ =
      fs::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(Files, AtomicWriteReplacesTheFileAndLeavesNoTemporary) {
  const fs::path file = folder_ / "a.txt";
  write_file_atomically(file, "a long first text");
  write_file_atomically(file, std::string("\0two", 4));
  EXPECT_EQ(read_file(file), std::string("\0two", 4));
  EXPECT_EQ(count_others(file), 0);
}

TEST_F(Files, CreateFoldersCreatesAllMissingParents) {
  create_folders(folder_ / "a/b/c");
  create_folders(folder_ / "a/b/c");
  create_folders(folder_ / "a/d/");
  EXPECT_TRUE(fs::is_directory(folder_ / "a/b/c"));
  EXPECT_TRUE(fs::is_directory(folder_ / "a/d"));
  write_file_atomically(folder_ / "file", "");
  EXPECT_THROW(create_folders(folder_ / "file/e"), fs::filesystem_error);
}

TEST_F(Files, FailedWriteKeepsTheOldFileAndNamesThePath) {
  const fs::path occupied = folder_ / "occupied";
  fs::create_directories(occupied / "inside");
  try {
    write_file_atomically(occupied, "text");
    FAIL() << "a folder was replaced by a file";
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), HasSubstr(occupied.string()));
  }
  EXPECT_TRUE(fs::exists(occupied / "inside"));
  EXPECT_EQ(count_others(occupied), 0);
  EXPECT_THROW(write_file_atomically(folder_ / "absent" / "a.txt", "text"), Error);
}

TEST_F(Files, MappedFileHoldsTheBytesAndIsMovable) {
  const fs::path file = folder_ / "map";
  write_file_atomically(file, "bytes");
  MappedFile map(file);
  MappedFile moved = std::move(map);
  ASSERT_EQ(moved.bytes().size(), 5U);
  EXPECT_EQ(moved.bytes()[4], std::byte{'s'});
  EXPECT_EQ(map.bytes().size(), 0U);  // NOLINT(bugprone-use-after-move): a moved-from map is empty
  write_file_atomically(folder_ / "empty", "");
  EXPECT_EQ(MappedFile(folder_ / "empty").bytes().size(), 0U);
}

TEST_F(Files, UnreadableFilesThrowDataErrorWithTheirPath) {
  const fs::path absent = folder_ / "absent";
  for (const auto& read : {+[](const fs::path& path) { (void)read_file(path); },
                           +[](const fs::path& path) { (void)MappedFile(path); }}) {
    try {
      read(absent);
      FAIL() << "a missing file was read";
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(), HasSubstr(absent.string() + ": cannot be opened; No such file"));
    }
  }
  EXPECT_THROW((void)read_file(folder_), DataError);
  EXPECT_THROW(sync_path(absent), Error);
}

TEST_F(Files, EntriesAreSortedAndUnreadableFoldersAreNamed) {
  for (const char* name : {"b", "a", "c"}) write_file_atomically(folder_ / name, "");
  fs::create_directory(folder_ / "d");
  std::vector<std::string> names;
  for (const auto& entry : sorted_entries(folder_)) names.push_back(entry.path().filename());
  EXPECT_THAT(names, testing::ElementsAre("a", "b", "c", "d"));
  EXPECT_TRUE(sorted_entries(folder_ / "d").empty());
  for (const auto& [path, reason] :
       {std::pair{folder_ / "a", "Not a directory"}, {folder_ / "no", "No such file"}}) {
    try {
      (void)sorted_entries(path);
      FAIL() << path;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::AllOf(HasSubstr(path.string() + " must be readable; got " + reason),
                                               HasSubstr("check its permissions, disk or network")));
    }
  }
}

}  // namespace
}  // namespace colonnade
