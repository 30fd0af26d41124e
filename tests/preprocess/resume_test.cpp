// Preprocessing that is killed at many points and resumed: the output equals that of an uninterrupted run,
// and no temporary file remains.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <isa-l/igzip_lib.h>
#include <sys/wait.h>

#include <csignal>
#include <fstream>
#include <functional>
#include <utility>

#include "colonnade/base/error.h"
#include "colonnade/corpus/text_reader.h"
#include "colonnade/data/indexed/indexed_dataset.h"
#include "colonnade/preprocess/preprocess.h"
#include "support/files.h"

namespace colonnade::preprocess {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

/// All files of a folder except the inputs.
std::map<std::string, std::string> outputs_in(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().filename().string().rfind("out", 0) == 0)
      files[entry.path().filename().string()] = read_file(entry.path());
  return files;
}

class ResumeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int file = 0; file < 2; ++file) {
      std::ofstream out(folder_ / fmt::format("in{}.jsonl", file));
      for (int i = 0; i < 150; ++i) {
        out << fmt::format("{{\"text\": \"{} {}\", \"b\": [\"{}\", \"7\"]}}\n", i, file, i % 9);
        if (i % 20 == 7) out << "\nbroken\n";
      }
    }
    options_.inputs = {folder_ / "in0.jsonl", folder_ / "in1.jsonl"};
    options_.output_prefix = folder_ / "out";
    options_.json_keys = {"text", "b"};
    options_.append_eod = true;
    options_.workers = 2;
    options_.chunk_bytes = 700;
    options_.skip_bad_lines = true;
    options_.tokenizer_identity = "null 256";
  }

  /// The output of an uninterrupted run.
  std::map<std::string, std::string> undisturbed() {
    preprocess(options_, *tokenizer_);
    const auto files = outputs_in(folder_ / "");
    for (const auto& [name, bytes] : files) fs::remove(folder_ / name);
    return files;
  }

  /// Runs in a child process that is killed (SIGKILL) after `chunks`; returns false if it completes before.
  bool killed_after(int chunks) {
    const pid_t child = ::fork();
    if (child == 0) {
      options_.resume_seconds = 0;  // a resume point after each chunk
      PreprocessEvents events;
      bool begun = false;  // lines may be counted first
      events.progress = [&begun](const PreprocessProgress&) { begun = true; };
      events.stop = [chunks, &begun, seen = 0]() mutable {
        if (begun && ++seen > chunks) ::kill(::getpid(), SIGKILL);
        return false;
      };
      preprocess(options_, *tokenizer_, events);
      ::_exit(0);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
    return WIFSIGNALED(status);
  }

  test::TempFolder folder_;
  std::unique_ptr<tokenizers::Tokenizer> tokenizer_ =
      tokenizers::make_tokenizer({.type = "NullTokenizer", .vocab_size = 256});
  PreprocessOptions options_;
};

TEST_F(ResumeTest, ProducesTheSameBytesAfterAKillAtAnyPoint) {
  for (const auto& [partitions, sequential] : {std::pair{1, false}, {3, false}, {3, true}}) {
    options_.partitions = partitions;
    options_.keep_sequential = sequential;
    const auto expected = undisturbed();
    for (const int chunks : {0, 1, 4, 9}) {
      ASSERT_TRUE(killed_after(chunks)) << chunks;
      for (const auto& [name, bytes] : outputs_in(folder_ / "")) {
        EXPECT_TRUE(name.ends_with(".part") || name == "out.resume") << name << " looks complete";
        if (name.ends_with(".part"))  // more data may be on disk than the journal says
          std::ofstream(folder_ / name, std::ios::binary | std::ios::app) << "written after the last point";
      }
      int kills = 0;
      while (kills < 2 && killed_after(2)) ++kills;
      EXPECT_EQ(kills, 2);
      options_.workers = 1 + chunks % 4;
      std::string note;
      std::int64_t from = -1;
      PreprocessEvents events;
      events.note = [&note](const std::string& text) { note = text; };
      events.progress = [&from](const PreprocessProgress& p) { from = from < 0 ? p.documents : from; };
      const PreprocessProgress done = preprocess(options_, *tokenizer_, events);
      EXPECT_THAT(note, HasSubstr("resuming after "));
      EXPECT_GT(from, 0);
      EXPECT_EQ(done.documents, 300);
      EXPECT_EQ(done.skipped, 16);
      EXPECT_TRUE(outputs_in(folder_ / "") == expected) << partitions << sequential << " after " << chunks;
      for (const auto& [name, bytes] : outputs_in(folder_ / "")) fs::remove(folder_ / name);
    }
  }
}

TEST_F(ResumeTest, ResumesInCompressedInput) {
  const auto expected = undisturbed();
  const std::string text = read_file(folder_ / "in0.jsonl");
  std::string packed(text.size() + 1000, '\0');
  isal_zstream stream;
  isal_deflate_stateless_init(&stream);
  stream.gzip_flag = IGZIP_GZIP;
  stream.end_of_stream = 1;
  stream.next_in = reinterpret_cast<std::uint8_t*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<std::uint32_t>(text.size());
  stream.next_out = reinterpret_cast<std::uint8_t*>(packed.data());
  stream.avail_out = static_cast<std::uint32_t>(packed.size());
  ASSERT_EQ(isal_deflate_stateless(&stream), COMP_OK);
  std::ofstream(folder_ / "in0.jsonl", std::ios::binary) << packed.substr(0, stream.total_out);
  ASSERT_TRUE(killed_after(9));
  preprocess(options_, *tokenizer_);
  EXPECT_TRUE(outputs_in(folder_ / "") == expected);
}

TEST_F(ResumeTest, StopsOnRequestAndResumes) {
  const auto expected = undisturbed();
  options_.resume_seconds = 1000;  // only the request makes a resume point
  PreprocessEvents events;
  events.stop = [seen = 0]() mutable { return ++seen == 7; };
  EXPECT_THROW(preprocess(options_, *tokenizer_, events), StopRequested);
  events.stop = {};
  std::string note;
  events.note = [&note](const std::string& text) { note = text; };
  preprocess(options_, *tokenizer_, events);
  EXPECT_THAT(note, HasSubstr("resuming after "));
  EXPECT_TRUE(outputs_in(folder_ / "") == expected);
}

TEST_F(ResumeTest, StartsOverWithOtherSettingsOrInputs) {
  using Change = std::function<void()>;
  const std::vector<Change> changes{[&] { options_.append_eod = false; },
                                    [&] {
                                      options_.json_keys = {"b", "text"};
                                    },
                                    [&] { options_.partitions = 2; },
                                    [&] { options_.keep_sequential = true; },
                                    [&] { options_.longest_line = 1000; },
                                    [&] { options_.tokenizer_identity = "another"; },
                                    [&] { options_.inputs.pop_back(); },
                                    [&] { std::ofstream(folder_ / "in0.jsonl", std::ios::app) << "{}\n"; }};
  for (const Change& change : changes) {
    ASSERT_TRUE(killed_after(3));
    change();
    std::string note;
    PreprocessEvents events;
    events.note = [&note](const std::string& text) { note = text; };
    preprocess(options_, *tokenizer_, events);
    EXPECT_THAT(note, HasSubstr("starting over"));
    const auto files = outputs_in(folder_ / "");
    for (const auto& [name, bytes] : files) fs::remove(folder_ / name);
    EXPECT_TRUE(undisturbed() == files);
  }
}

/// Points of finalize() at which a kill can happen: nothing is renamed yet, .bin is, both are, lengths are
/// removed.
TEST_F(ResumeTest, CompletesAfterAKillDuringTheFinalRenames) {
  options_.json_keys = {"text"};
  const auto expected = undisturbed();
  const fs::path bin = folder_ / "out_text_document.bin", idx = folder_ / "out_text_document.idx";
  const fs::path tokens = bin.string() + ".tokens.part", lengths = bin.string() + ".lengths.part";
  for (int point = 0; point < 4; ++point) {
    // A folder blocks the name of the index: all input is processed, and kept.
    fs::create_directories(idx / "in the way");
    EXPECT_THROW(preprocess(options_, *tokenizer_), ConfigError);
    fs::remove_all(idx);
    ASSERT_TRUE(fs::exists(tokens) && fs::exists(lengths) && fs::exists(folder_ / "out.resume"));
    if (point >= 1) fs::rename(tokens, bin);
    if (point >= 2) std::ofstream(idx, std::ios::binary) << expected.at("out_text_document.idx");
    if (point >= 3) fs::remove(lengths);
    preprocess(options_, *tokenizer_);
    EXPECT_TRUE(outputs_in(folder_ / "") == expected) << point;
    for (const auto& [name, bytes] : expected) fs::remove(folder_ / name);
  }
}

// A resume point is a row: earlier rows are not read again, except those of its row group.
TEST_F(ResumeTest, ResumesInParquetAfterAKillAtAnyPoint) {
#ifndef COLONNADE_PARQUET
  GTEST_SKIP() << "built without Parquet";
#endif
  options_.inputs = {test::vector_path("parquet/snappy.parquet"),
                     test::vector_path("parquet/zstd_v2.parquet")};
  options_.json_keys = {"numbers", "parts"};
  const auto expected = undisturbed();
  for (const int chunks : {1, 4, 9}) {
    int kills = 0;
    while (killed_after(chunks)) ++kills;
    EXPECT_GT(kills, chunks < 9 ? 2 : 1);
    EXPECT_TRUE(outputs_in(folder_ / "") == expected) << chunks;
    for (const auto& [name, bytes] : expected) fs::remove(folder_ / name);
  }
}

TEST_F(ResumeTest, RejectsASecondProcessAndTruncatedTemporaryFiles) {
  int tried = 0;
  PreprocessEvents events;
  events.progress = [&](const PreprocessProgress& progress) {
    if (progress.documents == 0 || tried++ > 0) return;
    EXPECT_THAT(test::message_of<ConfigError>([&] { preprocess(options_, *tokenizer_); }),
                HasSubstr("only one process may write a data set"));
  };
  preprocess(options_, *tokenizer_, events);
  EXPECT_GT(tried, 0);
  for (const auto& [name, bytes] : outputs_in(folder_ / "")) fs::remove(folder_ / name);

  ASSERT_TRUE(killed_after(9));
  fs::resize_file(folder_ / "out_b_document.bin.lengths.part", 8);
  EXPECT_THAT(test::message_of<DataError>([&] { preprocess(options_, *tokenizer_); }),
              HasSubstr("delete the .resume file next to it to start over"));
  fs::remove(folder_ / "out.resume");
  EXPECT_EQ(preprocess(options_, *tokenizer_).documents, 300);
}

// An earlier data set under the same prefix is never mistaken for the output of the killed run.
TEST_F(ResumeTest, KeepsAnEarlierDatasetIfTemporaryFilesAreMissing) {
  options_.json_keys = {"text"};
  preprocess(options_, *tokenizer_);
  const auto earlier = outputs_in(folder_ / "");
  options_.append_eod = false;
  const std::string bin = "out_text_document.bin";
  for (const auto& gone :
       {std::vector<std::string>{"tokens"}, {"lengths"}, {"documents"}, {"tokens", "lengths", "documents"}}) {
    ASSERT_TRUE(killed_after(4));
    for (const std::string& what : gone)
      ASSERT_TRUE(fs::remove(folder_ / (bin + "." + what + ".part"))) << what;
    const auto left = outputs_in(folder_ / "");
    EXPECT_THAT(test::message_of<DataError>([&] { preprocess(options_, *tokenizer_); }),
                HasSubstr("got no such file; delete the .resume file next to it to start over"));
    EXPECT_TRUE(outputs_in(folder_ / "") == left) << gone.size();
    for (const auto& [name, bytes] : earlier) EXPECT_TRUE(left.at(name) == bytes) << name;
    fs::remove(folder_ / "out.resume");
  }

  // All input is processed and no file renamed yet.
  const fs::path idx = folder_ / "out_text_document.idx";
  fs::remove(idx);
  fs::create_directories(idx / "in the way");
  EXPECT_THROW(preprocess(options_, *tokenizer_), ConfigError);
  fs::remove_all(idx);
  for (const auto& [name, bytes] : earlier) std::ofstream(folder_ / name, std::ios::binary) << bytes;
  for (const char* what : {"tokens", "lengths"}) {
    ASSERT_TRUE(fs::remove(folder_ / (bin + "." + what + ".part"))) << what;
    EXPECT_THAT(test::message_of<DataError>([&] { preprocess(options_, *tokenizer_); }),
                HasSubstr("delete the .resume file next to it to start over"));
    for (const auto& [name, bytes] : earlier) EXPECT_TRUE(read_file(folder_ / name) == bytes) << what << name;
  }
}

// A failing disk or network does not mean that the inputs are bad.
TEST_F(ResumeTest, ResumesAfterAnUnreadableInput) {
  const auto expected = undisturbed();
  options_.resume_seconds = 0;
  const fs::path input = folder_ / "in1.jsonl", away = folder_ / "away";
  for (const bool gone : {true, false}) {
    PreprocessEvents events;
    events.stop = [&, seen = 0]() mutable {
      if (++seen != 2) return false;
      fs::rename(input, away);
      if (!gone) fs::create_directory(input);  // can be opened, but not read
      return false;
    };
    EXPECT_THAT(test::message_of<Error>([&] { preprocess(options_, *tokenizer_, events); }),
                HasSubstr(gone ? "must be an existing file; got No such file"
                               : "must be readable; got Is a directory"));
    EXPECT_TRUE(fs::exists(folder_ / "out.resume"));
    if (!gone) fs::remove(input);
    fs::rename(away, input);
    std::int64_t from = -1;
    events = {};
    events.progress = [&from](const PreprocessProgress& p) { from = from < 0 ? p.documents : from; };
    preprocess(options_, *tokenizer_, events);
    EXPECT_GT(from, 0);
    EXPECT_TRUE(outputs_in(folder_ / "") == expected) << gone;
    for (const auto& [name, bytes] : expected) fs::remove(folder_ / name);
  }
}

TEST_F(ResumeTest, StopsWhileCountingLinesAndWhileMergingPartitions) {
  options_.partitions = 3;
  options_.keep_sequential = true;
  const auto expected = undisturbed();
  bool begun = false;
  std::int64_t documents = 0, asked = 0;
  PreprocessEvents events;
  events.progress = [&](const PreprocessProgress& p) {
    begun = true;
    documents = p.documents;
  };
  events.stop = [&] { return !begun && ++asked == 3; };
  EXPECT_THAT(test::message_of<StopRequested>([&] { preprocess(options_, *tokenizer_, events); }),
              HasSubstr("lines were counted; the same command counts them again"));
  EXPECT_FALSE(begun);
  EXPECT_TRUE(outputs_in(folder_ / "").empty());

  asked = 0;
  events.stop = [&] { return documents == 300 && ++asked == 3; };  // first asked after the last chunk
  EXPECT_THAT(test::message_of<StopRequested>([&] { preprocess(options_, *tokenizer_, events); }),
              HasSubstr("while partitions were merged"));
  EXPECT_FALSE(fs::exists(folder_ / "out_text_document.idx"));
  preprocess(options_, *tokenizer_);
  EXPECT_TRUE(outputs_in(folder_ / "") == expected);
}

// A last line of the journal truncated by a kill or a full disk is ignored.
TEST_F(ResumeTest, UsesTheLastCompleteLineOfTheJournal) {
  const auto expected = undisturbed();
  ASSERT_TRUE(killed_after(8));
  const std::string journal = read_file(folder_ / "out.resume");
  for (const std::size_t cut : {std::size_t{1}, std::size_t{20}}) {
    std::ofstream(folder_ / "out.resume", std::ios::binary) << journal.substr(0, journal.size() - cut);
    ASSERT_TRUE(killed_after(2));
  }
  preprocess(options_, *tokenizer_);
  EXPECT_TRUE(outputs_in(folder_ / "") == expected);
}

}  // namespace
}  // namespace colonnade::preprocess
