// Expansion of --input, and messages for unsupported files.
#include "colonnade/corpus/input_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "colonnade/base/error.h"
#include "colonnade/corpus/text_reader.h"
#include "support/files.h"

namespace colonnade::corpus {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

class InputFilesTest : public ::testing::Test {
 protected:
  void write(const std::string& name, std::string_view bytes) {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
  }
  /// Expanded files of the names, relative to the folder.
  std::vector<std::string> files(const std::vector<std::string>& names) {
    std::vector<std::string> paths, found;
    for (const std::string& name : names) paths.push_back(folder_ / name);
    for (const fs::path& file : input_files(paths)) found.push_back(file.lexically_relative(folder_ / ""));
    return found;
  }
  /// All lines of a file.
  std::string read(const std::string& name) {
    LineReader reader(folder_ / name, 1000);
    LineChunk chunk;
    std::string text;
    while (reader.next(chunk)) text += chunk.text;
    return text;
  }

  test::TempFolder folder_;
};

TEST_F(InputFilesTest, FilesPatternsAndFoldersAreExpandedInOrder) {
  for (const char* name : {"b.jsonl", "a.jsonl", "notes.txt", "[a].jsonl"}) write(name, "{}");
  fs::create_directories(folder_ / "in/deep.jsonl");
  for (const char* name : {"in/2.jsonl.gz", "in/1.parquet", "in/3.jsonl.zst", "in/0.txt"}) write(name, "{}");
  EXPECT_THAT(files({"b.jsonl", "a.jsonl"}), ElementsAre("b.jsonl", "a.jsonl"));
  EXPECT_THAT(files({"[ab].jsonl", "notes.txt"}), ElementsAre("a.jsonl", "b.jsonl", "notes.txt"));
  EXPECT_THAT(files({"[a].jsonl"}), ElementsAre("[a].jsonl"));
  EXPECT_THAT(files({"in", "a.jsonl"}),
              ElementsAre("in/1.parquet", "in/2.jsonl.gz", "in/3.jsonl.zst", "a.jsonl"));
}

TEST_F(InputFilesTest, EveryNameMustMatchAFile) {
  write("a.jsonl", "{}");
  EXPECT_THAT(test::message_of<DataError>([&] {
                files({"a.jsonl", "nosuch*.jsonl"});
              }),
              HasSubstr("nosuch*.jsonl: --input must name a file; got no such file"));
  fs::create_directory(folder_ / "empty");
  write("empty/a.txt", "text");
  EXPECT_THAT(test::message_of<DataError>([&] {
                files({"a.jsonl", "empty"});
              }),
              AllOf(HasSubstr("empty: a folder of --input must hold .jsonl"), HasSubstr("/empty/*'")));
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(test::message_of<ConfigError>([&] { files({"pipe"}); }), HasSubstr("got a pipe or a device"));
}

TEST_F(InputFilesTest, IoErrorsAreReportedWithTheirReason) {
  fs::create_symlink("loop", folder_ / "loop");
  for (const char* name : {"loop", "loop/a.jsonl", "loop/*.jsonl"})
    EXPECT_THAT(test::message_of<Error>([&] { files({name}); }),
                AllOf(HasSubstr(std::string(name) + " must be readable; got Too many levels"),
                      HasSubstr("check its permissions")));
  write("file", "");
  EXPECT_THAT(test::message_of<Error>([&] { (void)line_files_in(folder_ / "file"); }),
              HasSubstr("file must be readable; got Not a directory"));
}

TEST_F(InputFilesTest, UnsupportedFormatsAreNamed) {
  using namespace std::string_view_literals;
  const std::pair<std::string_view, const char*> formats[] = {
      {"BZh91AY&SY\x01\x02"sv, "got bzip2; decompress it with bunzip2"},
      {"\xfd"
       "7zXZ\0\0"sv,
       "got xz; decompress it with unxz"},
      {"PK\x03\x04\x14"sv, "got zip; decompress it with unzip"},
      {"\xff\xfe{\0"sv, "got UTF-16 text; convert it with iconv"}};
  for (const auto& [bytes, message] : formats) {
    write("in", bytes);
    EXPECT_THAT(test::message_of<DataError>([&] { read("in"); }), HasSubstr(message));
  }
  write("in", "BZh9 is text\n");
  EXPECT_EQ(read("in"), "BZh9 is text\n");
}

TEST_F(InputFilesTest, TrailingBytesOfAGzipFileAreRejectedUnlessTheyAreZeros) {
  // Python: gzip.compress(b"1\n", mtime=0)
  const std::string packed(
      "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\x33\xe4\x02\x00\x53\xfc\x51\x67\x02\x00\x00\x00", 22);
  write("in", packed + std::string(600'000, '\0') + packed);
  EXPECT_EQ(read("in"), "1\n1\n");
  for (const char* trailing : {"x", "garbage that is longer than the head of a member"}) {
    write("in", packed + trailing);
    EXPECT_THAT(test::message_of<DataError>([&] { read("in"); }),
                HasSubstr("must be gzip data to its end; got other bytes after it"));
  }
}

}  // namespace
}  // namespace colonnade::corpus
