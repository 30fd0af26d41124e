// `colonnade preprocess` as a real process: killed and restarted, stopped, with invalid
// lines; `colonnade data merge`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <fstream>

#include "program.h"
#include "support/vectors.h"

namespace colonnade::e2e {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class Preprocess : public testing::Test {
 protected:
  /// Writes about 27 MB: as many chunks.
  void SetUp() override {
    std::ofstream out(folder_ / "in.jsonl");
    for (int i = 0; i < 120000; ++i) {
      out << R"({"text": ")" << i % 1000;
      for (int k = 0; k < 60; ++k) out << " " << (i * k) % 1000;
      out << "\"}\n";
    }
  }
  Words command(const std::string& prefix, const Words& more = {}) const {
    return colonnade(Words{"preprocess", "--input", (folder_ / "in.jsonl").string(), "--output-prefix",
                           (folder_ / prefix).string(), "--tokenizer-type", "NullTokenizer", "--vocab-size",
                           "1001", "--append-eod"} +
                     more);
  }
  std::int64_t journal_bytes(const std::string& prefix) const {
    std::error_code missing;
    const auto size = fs::file_size(folder_ / (prefix + ".resume"), missing);
    return missing ? 0 : static_cast<std::int64_t>(size);
  }
  void expect_equal(const std::string& a, const std::string& b) const {
    for (const char* end : {"_text_document.bin", "_text_document.idx"})
      EXPECT_TRUE(read_text(folder_ / (a + end)) == read_text(folder_ / (b + end))) << a << end;
  }
  /// Names in the folder that start with the prefix.
  std::vector<std::string> names(const std::string& prefix) const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_.path()))
      if (const std::string name = entry.path().filename().string(); name.rfind(prefix, 0) == 0)
        found.push_back(name);
    std::sort(found.begin(), found.end());
    return found;
  }

  TempFolder folder_;
};

TEST_F(Preprocess, EndsWithTheSameBytesAfterKillsAtSeveralPoints) {
  ASSERT_EQ(run(command("whole")).code, 0);
  for (int kill = 0; kill < 4; ++kill) {
    const std::int64_t before = journal_bytes("killed");
    Program program(command("killed", {"--resume-interval", "0"}));
    ASSERT_TRUE(program.wait_until([&] { return journal_bytes("killed") >= before + 300; }));
    program.send(SIGKILL);
    EXPECT_EQ(program.finish().code, 128 + SIGKILL);
    for (const std::string& name : names("killed"))
      EXPECT_TRUE(name.ends_with(".part") || name.ends_with(".resume")) << name << " looks complete";
  }
  const Result last = run(command("killed", {"--workers", "1"}));
  EXPECT_EQ(last.code, 0) << last.text;
  EXPECT_THAT(last.text, AllOf(HasSubstr("resuming after "), HasSubstr("done: 120000 documents")));
  expect_equal("killed", "whole");
  EXPECT_EQ(names("killed").size(), 2U);
}

TEST_F(Preprocess, SignalEndsItWithCode5AndItResumes) {
  ASSERT_EQ(run(command("whole")).code, 0);
  Program program(command("stopped", {"--resume-interval", "0"}));
  ASSERT_TRUE(program.wait_until([&] { return journal_bytes("stopped") >= 600; }));
  program.send(SIGTERM);
  const Result stopped = program.finish();
  EXPECT_EQ(stopped.code, 5) << stopped.text;
  EXPECT_THAT(stopped.text, HasSubstr("the same command resumes there"));
  const Result last = run(command("stopped"));
  EXPECT_EQ(last.code, 0) << last.text;
  EXPECT_THAT(last.text, HasSubstr("resuming after "));
  expect_equal("stopped", "whole");
  EXPECT_EQ(names("stopped").size(), 2U);
}

TEST_F(Preprocess, InvalidLinesStopItOrAreCounted) {
  std::ofstream(folder_ / "in.jsonl", std::ios::app) << "{\"text\": \"1\xff\"}\n"
                                                     << std::string(3 << 20, ' ') << "x\n";
  const Result stopped = run(command("x", {"--max-document-mb", "1"}));
  EXPECT_EQ(stopped.code, 3) << stopped.text;
  EXPECT_THAT(stopped.text,
              AllOf(HasSubstr("in.jsonl line 120001 must be a JSON object; got 'bytes that are not UTF-8'"),
                    HasSubstr("--on-error skip skips such lines")));
  EXPECT_TRUE(names("x").empty());
  const Result skipped = run(command("x", {"--on-error", "skip", "--max-document-mb", "1"}));
  EXPECT_EQ(skipped.code, 0) << skipped.text;
  EXPECT_THAT(skipped.text, AllOf(HasSubstr("skipped: "), HasSubstr("line 120001 must "),
                                  HasSubstr("line 120002 must be at most 1048576"),
                                  HasSubstr("done: 120000 documents"), HasSubstr("skipped 2 lines")));
}

TEST_F(Preprocess, EveryInputMustExistAndFoldersAreRead) {
  fs::create_directory(folder_ / "texts");
  write_text(folder_ / "texts/b.jsonl", "{\"text\": \"1\"}\n");
  write_text(folder_ / "texts/a.jsonl", "{\"text\": \"2\"}\n");
  const std::string folder = (folder_ / "texts").string();
  const Words flags{"--tokenizer-type", "NullTokenizer",         "--vocab-size", "9",
                    "--output-prefix",  (folder_ / "x").string()};
  const auto with = [&](const Words& more) { return run(colonnade(Words{"preprocess"} + flags + more)); };
  const Result read = with({"--input", folder});
  EXPECT_EQ(read.code, 0) << read.text;
  EXPECT_EQ(read_text(folder_ / "x_text_document.bin"), std::string("\2\0\1\0", 4));
  const Result missing = with({"--input", folder + "/a.jsonl", folder + "/nosuch.jsonl"});
  EXPECT_EQ(missing.code, 3) << missing.text;
  EXPECT_THAT(missing.text, HasSubstr("nosuch.jsonl: --input must name a file; got no such file"));
  const Result pipe = with({"--input", "/dev/null"});
  EXPECT_EQ(pipe.code, 2) << pipe.text;
  const Result trained = run(colonnade({"tokenizer", "train", "--input", folder + "/a.jsonl", folder + "/no",
                                        "--output-prefix", (folder_ / "t").string(), "--vocab-size", "300"}));
  EXPECT_EQ(trained.code, 3) << trained.text;
  EXPECT_THAT(trained.text, HasSubstr("/no: --input must name a file"));
  const Result unnamed = with({"--input", folder, "--output-prefix", "", "--log-interval", "0"});
  EXPECT_EQ(unnamed.code, 2) << unnamed.text;
  EXPECT_THAT(unnamed.text, HasSubstr("--output-prefix must not be empty"));
  EXPECT_THAT(with({"--input", folder, "--log-interval", "0"}).text,
              HasSubstr("--log-interval must be an integer, 1 or more; got '0'"));
}

TEST_F(Preprocess, UnreadableFolderIsNamed) {
  const fs::path closed = folder_ / "closed";
  fs::create_directory(closed);
  write_text(closed / "a.jsonl", "{\"text\": \"1\"}\n");
  for (const auto& [rights, input] : {std::pair{fs::perms::owner_exec, closed},
                                      {fs::perms::owner_exec, closed / "*.jsonl"},
                                      {fs::perms::owner_read, closed / "a.jsonl"},
                                      {fs::perms::owner_read, closed}}) {
    fs::permissions(closed, rights);
    const Result result = run(
        as_plain_user(colonnade({"preprocess", "--tokenizer-type", "NullTokenizer", "--vocab-size", "9",
                                 "--output-prefix", (folder_ / "x").string(), "--input", input.string()})));
    fs::permissions(closed, fs::perms::owner_all);
    EXPECT_EQ(result.code, 1) << result.text;
    EXPECT_THAT(result.text,
                AllOf(HasSubstr("closed"), HasSubstr(" must be readable; got Permission "
                                                     "denied; check its permissions, disk or network")));
  }
}

TEST_F(Preprocess, MegatronsFlagsReportTheirEffect) {
  write_text(folder_ / "in.jsonl", "{\"text\": \"1 2\"}\n");
  const Result taken =
      run(command("x", {"--padded-vocab-size", "1024", "--vocab-extra-ids", "100", "--chat-template",
                        "{{ 1 }}", "--trust-remote-code", "--use-gigatoken", "--null-tokenizer-eod-id",
                        "1000", "--null-tokenizer-pad-id", "-1"}));
  EXPECT_EQ(taken.code, 0) << taken.text;
  EXPECT_THAT(taken.text, AllOf(HasSubstr("--padded-vocab-size: has no effect on the output"),
                                HasSubstr("--vocab-extra-ids: has no effect on the output"),
                                HasSubstr("--chat-template: has no effect on the output"),
                                HasSubstr("--trust-remote-code: code in a tokenizer folder is never run"),
                                HasSubstr("--use-gigatoken: token ids do not depend on")));
  EXPECT_EQ(read_text(folder_ / "x_text_document.bin"), std::string("\1\0\2\0\xe8\3", 6));
  const Result refused = run(command(
      "x", {"--tokenizer-special-tokens", "<a>", "--tokenizer-sentencepiece-legacy",
            "--no-tokenizer-sentencepiece-ignore-extra-whitespaces", "--tokenizer-metadata", "m.json"}));
  EXPECT_EQ(refused.code, 2) << refused.text;
  EXPECT_THAT(refused.text,
              AllOf(HasSubstr("--tokenizer-special-tokens: this version has no special tokens"),
                    HasSubstr("--tokenizer-sentencepiece-legacy: "),
                    HasSubstr("-whitespaces: this version has no whitespace handling that differs from"),
                    HasSubstr("--tokenizer-metadata: "), Not(HasSubstr("such tokenizer"))));
  const Result ids = run(command("x", {"--null-tokenizer-eod-id", "7", "--null-tokenizer-pad-id", "0"}));
  EXPECT_EQ(ids.code, 2) << ids.text;
  EXPECT_THAT(ids.text, AllOf(HasSubstr("--null-tokenizer-eod-id must be the last id, 1000 with"),
                              HasSubstr("--null-tokenizer-pad-id must be -1")));
}

TEST_F(Preprocess, WritesNoDatasetWithoutTokens) {
  write_text(folder_ / "in.jsonl", "");
  const Result empty = run(command("x"));
  EXPECT_EQ(empty.code, 3) << empty.text;
  EXPECT_THAT(empty.text, HasSubstr("a data set must hold tokens; got 0 documents"));
  write_text(folder_ / "in.jsonl", "{\"text\": \"1 2\", \"title\": \"\"}\n");
  const Result titles = run(command("x", {"--json-keys", "text", "title"}));
  EXPECT_EQ(titles.code, 3) << titles.text;
  EXPECT_THAT(titles.text, HasSubstr("got 1 documents without any under the key 'title'"));
  EXPECT_TRUE(names("x").empty());
}

TEST_F(Preprocess, ReportsItsProgress) {
  const Result result = run(command("x", {"--log-interval", "1", "--workers", "1"}));
  EXPECT_EQ(result.code, 0) << result.text;
  EXPECT_THAT(result.text, AllOf(HasSubstr("MB/s"), HasSubstr("% read, "), HasSubstr(" left)")));
}

TEST_F(Preprocess, MergedPartitionsEqualOneRun) {
  ASSERT_EQ(run(command("x", {"--partitions", "3"})).code, 0);
  fs::create_directory(folder_ / "parts");
  for (const std::string name : {"0", "1", "2"})
    for (const char* end : {".bin", ".idx"})
      fs::rename(folder_ / ("x_" + name + "_text_document" + end), folder_ / ("parts/" + name + end));
  const Result merged = run(colonnade({"data", "merge", "--input", (folder_ / "parts").string(),
                                       "--output-prefix", (folder_ / "y_text_document").string()}));
  EXPECT_EQ(merged.code, 0) << merged.text;
  EXPECT_THAT(merged.text, HasSubstr("done: 3 data sets, 120000 documents"));
  expect_equal("x", "y");
  const Result none = run(colonnade({"data", "merge", "--input", (folder_ / "nosuch").string(),
                                     "--output-prefix", (folder_ / "z").string()}));
  EXPECT_EQ(none.code, 3) << none.text;
  EXPECT_THAT(none.text, AllOf(HasSubstr("no such file"), Not(HasSubstr(".cpp"))));
}

// Also checks that a module in the current folder, which is untrusted, is not loaded.
TEST(PreprocessParquet, MissingModuleIsReported) {
  const TempFolder folder;
  fs::create_directories(folder / "alone/libexec");
  fs::create_directory(folder / "here");
  fs::copy_file(COLONNADE_EXECUTABLE, folder / "alone/colonnade");
  fs::copy_file(fs::path(COLONNADE_EXECUTABLE).parent_path() / "libexec/colonnade",
                folder / "alone/libexec/colonnade");
  write_text(folder / "here/libcolonnade_parquet.so", "no module");
  const Words words{"preprocess",       "--input",      test::vectors() + "/parquet/snappy.parquet",
                    "--output-prefix",  "rows",         "--json-keys",
                    "numbers",          "--vocab-size", "256",
                    "--tokenizer-type", "NullTokenizer"};
  const Result result = run(Words{(folder / "alone/colonnade").string()} + words, {}, folder / "here");
  EXPECT_EQ(result.code, 2) << result.text;
  EXPECT_THAT(
      result.text,
      AllOf(HasSubstr("Parquet: libcolonnade_parquet.so of this version must be next to the program; got "),
            HasSubstr("No such file or directory; run tools/setup.sh"), Not(HasSubstr(".cpp"))));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder / "here"), {}), 1) << "no output";
}

}  // namespace
}  // namespace colonnade::e2e
