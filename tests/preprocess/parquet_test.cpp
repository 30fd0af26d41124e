// Parquet rows in preprocess and --sft: equal to the same rows as JSON lines, for all writer options; errors
// with row and column, truncated files and flipped bits, bounded memory. The files are made by
// tests/preprocess/parquet_vectors.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <map>

#include "colonnade/base/error.h"
#include "colonnade/corpus/text_reader.h"
#include "colonnade/data/index_cache.h"
#include "colonnade/data/indexed/indexed_dataset.h"
#include "colonnade/data/samples/sft/sft_conversations.h"
#include "colonnade/preprocess/preprocess.h"
#include "colonnade/preprocess/training_texts.h"
#include "support/files.h"

namespace colonnade::preprocess {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

fs::path vector(const std::string& name) { return test::vector_path("parquet/" + name); }

class ParquetTest : public ::testing::Test {
 protected:
  ParquetTest() {
    options_.output_prefix = folder_ / "out";
    options_.json_keys = {"numbers", "parts"};
    options_.append_eod = true;
  }

  /// Contents of all output files by name.
  std::map<std::string, std::string> run(const std::vector<fs::path>& inputs, int workers = 2,
                                         std::int64_t chunk = 1 << 20) {
    options_.inputs = inputs;
    options_.workers = workers;
    options_.chunk_bytes = chunk;
    skipped_.clear();
    preprocess::PreprocessEvents events;
    events.skipped = [this](const std::string& why) { skipped_.push_back(why); };
    progress_ = preprocess::preprocess(options_, *tokenizer_, events);
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::directory_iterator(folder_ / ""))
      if (entry.path().filename().string().starts_with("out")) {
        files[entry.path().filename().string()] = read_file(entry.path());
        fs::remove(entry.path());
      }
    return files;
  }
  std::string fault(const fs::path& input, const std::vector<std::string>& keys) {
    options_.json_keys = keys;
    return test::message_of<DataError>([&] { run({input}); });
  }
  fs::path written(const std::string& bytes) {
    const fs::path path = folder_ / "in.parquet";
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }

  test::TempFolder folder_;
  std::unique_ptr<tokenizers::Tokenizer> tokenizer_ =
      tokenizers::make_tokenizer({.type = "NullTokenizer", .vocab_size = 256});
  preprocess::PreprocessOptions options_;
  preprocess::PreprocessProgress progress_;
  std::vector<std::string> skipped_;
};

std::vector<std::string> all_texts(const fs::path& file) {
  std::vector<std::string> texts;
  const tokenizers::NextText next = preprocess::read_texts({file}, "text");
  while (const auto text = next()) texts.emplace_back(*text);
  return texts;
}

void write_bytes(const fs::path& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary) << bytes;
}

TEST_F(ParquetTest, GivesTheSameBytesAsJsonLinesForAllWriterOptions) {
  const auto expected = run({vector("rows.jsonl")});
  ASSERT_EQ(expected.size(), 4U);
  const std::vector<std::string> texts = all_texts(vector("rows.jsonl"));
  ASSERT_EQ(texts.size(), 200U);
  for (const char* name :
       {"snappy", "zstd_v2", "gzip_large", "none_small_pages", "brotli_delta", "lz4_dictionary", "required",
        "empty_groups", "lists_bag", "lists_two_levels", "lists_bare"}) {
    const fs::path file = vector(std::string(name) + ".parquet");
    for (const int workers : {1, 2, 4}) EXPECT_TRUE(run({file}, workers, 300) == expected) << name << workers;
    EXPECT_TRUE(run({file}) == expected) << name;
    EXPECT_EQ(progress_.documents, 200);
    EXPECT_EQ(progress_.file_bytes, static_cast<std::int64_t>(fs::file_size(file)));
    if (std::string(name) != "required" && !std::string(name).starts_with("lists")) {
      EXPECT_TRUE(all_texts(file) == texts) << name;
    }
  }
  options_.partitions = 3;
  options_.keep_sequential = true;
  const auto parted = run({vector("rows.jsonl")});
  EXPECT_TRUE(run({vector("snappy.parquet")}) == parted);
}

TEST_F(ParquetTest, CanBeMixedWithOtherInputs) {
  const auto expected = run({vector("rows.jsonl"), vector("rows.jsonl")});
  EXPECT_TRUE(run({vector("no_groups.parquet"), vector("snappy.parquet"), vector("no_rows.parquet"),
                   vector("rows.jsonl"), vector("no_groups.parquet")},
                  2, 200) == expected);
}

TEST_F(ParquetTest, AReaderResumesAtAnyChunk) {
  for (const char* name : {"snappy.parquet", "none_small_pages.parquet", "empty_groups.parquet"}) {
    const corpus::LineLimits limits{.columns = {.names = {"text", "parts"}}};
    corpus::LineReader whole(vector(name), 5, limits);
    std::vector<corpus::LineChunk> chunks;
    for (corpus::LineChunk chunk; whole.next(chunk);) chunks.push_back(chunk);
    ASSERT_GT(chunks.size(), 100U);
    for (std::size_t i = 0; i + 1 < chunks.size(); i += 7) {
      corpus::LineReader rest(vector(name), 5, limits, chunks[i].end);
      corpus::LineChunk chunk;
      ASSERT_TRUE(rest.next(chunk));
      EXPECT_EQ(chunk.text, chunks[i + 1].text) << name << i;
      EXPECT_EQ(chunk.begin.line, chunks[i + 1].begin.line);
    }
    corpus::LineChunk none;
    EXPECT_FALSE(corpus::LineReader(vector(name), 5, limits, chunks.back().end).next(none));
  }
}

TEST_F(ParquetTest, RowsWithoutTextAreReportedAndSkippedByTheirNumber) {
  EXPECT_THAT(
      fault(vector("nulls.parquet"), {"numbers"}),
      HasSubstr("nulls.parquet row 2: the key 'numbers' must be a string or a list of strings; got null"));
  options_.skip_bad_lines = true;
  options_.json_keys = {"numbers"};
  run({vector("nulls.parquet")});
  EXPECT_THAT(skipped_, ElementsAre(HasSubstr("row 2: "), HasSubstr("row 4: ")));
  EXPECT_EQ(progress_.documents, 4);
  options_.json_keys = {"numbers", "parts"};
  run({vector("nulls.parquet")}, 1, 1);
  EXPECT_THAT(skipped_, ElementsAre(HasSubstr("row 2: "), HasSubstr("row 3: "), HasSubstr("row 4: "),
                                    HasSubstr("row 5: ")));
  options_.json_keys = {"numbers"};
  run({vector("not_utf8.parquet")});
  EXPECT_THAT(skipped_, ElementsAre(AllOf(HasSubstr("row 2 must "), HasSubstr("bytes that are not UTF-8"))));
  options_.json_keys = {"numbers", "titles"};
  options_.skip_bad_lines = false;
  EXPECT_THAT(test::message_of<DataError>([&] { run({vector("snappy.parquet")}); }),
              HasSubstr("snappy.parquet row 1 must have the key 'titles'"));
}

/// Rows of columns of any type as JSON lines.
std::string lines_of(const std::string& name, const std::vector<std::string>& columns) {
  std::string all;
  corpus::LineReader lines(vector(name), 100, {.columns = {.names = columns, .texts_only = false}});
  for (corpus::LineChunk chunk; lines.next(chunk);) all += chunk.text;
  return all;
}

TEST_F(ParquetTest, GroupsInOlderListsAreItemsOrWrappersByParquetsRules) {
  EXPECT_EQ(
      lines_of("lists_of_groups.parquet", {"array", "named", "other", "deep", "structs"}),
      R"({"array":[{"a":"1"},{"a":null}],"named":[{"a":"1"},{"a":null}],"other":["1",null],"deep":[["1","2"],[]],)"
      R"("structs":[{"items":["3"]}]})"
      "\n"
      R"({"array":[],"named":null,"other":null,"deep":null,"structs":[]})"
      "\n");
}

TEST_F(ParquetTest, NumbersKeepTheirValuesInChatMessages) {
  EXPECT_EQ(lines_of("numbers.parquet", {"tiny", "small", "whole", "unsigned", "long", "large_unsigned",
                                         "single", "double", "truth"}),
            R"({"tiny":-128,"small":0,"whole":-2147483648,"unsigned":0,"long":-9223372036854775808,)"
            R"("large_unsigned":0,"single":3.0,"double":-0.0,"truth":true})"
            "\n"
            R"({"tiny":127,"small":255,"whole":2147483647,"unsigned":4294967295,"long":9223372036854775807,)"
            R"("large_unsigned":18446744073709551615,"single":0.25,"double":0.1,"truth":false})"
            "\n"
            R"({"tiny":null,"small":null,"whole":null,"unsigned":null,"long":null,)"
            R"("large_unsigned":null,"single":null,"double":null,"truth":null})"
            "\n");
  EXPECT_THAT(test::message_of<DataError>([] { lines_of("not_finite.parquet", {"double"}); }),
              HasSubstr("not_finite.parquet: numbers must be finite; got inf in a row; write another value"));
  for (const auto& [column, type] : std::map<std::string, std::string>{{"bytes", "BYTE_ARRAY"},
                                                                       {"time", "Timestamp"},
                                                                       {"date", "Date"},
                                                                       {"clock", "Time"},
                                                                       {"half", "Float16"},
                                                                       {"pairs", "Map"},
                                                                       {"decimal", "Decimal"}})
    EXPECT_THAT(test::message_of<DataError>([&, name = column] { lines_of("types.parquet", {name}); }),
                AllOf(HasSubstr("types.parquet: the column '" + column +
                                "' must be of strings, numbers, booleans, lists and structs; got " + type),
                      HasSubstr("; cast it, or name another column")));
}

TEST_F(ParquetTest, UnsupportedColumnsAreReportedWithTheirType) {
  options_.skip_bad_lines = true;  // a file, not a row
  for (const auto& [column, type] :
       std::map<std::string, std::string>{{"whole", "INT64"},
                                          {"bytes", "BYTE_ARRAY"},
                                          {"time", "Timestamp"},
                                          {"record", "struct"},
                                          {"deep", "List"},
                                          {"wholes", "INT64 in 'wholes.list.element'"},
                                          {"pairs", "Map"},
                                          {"tiny", "Int(bitWidth=8, isSigned=true)"},
                                          {"unsigned", "Int(bitWidth=32, isSigned=false)"},
                                          {"large_unsigned", "Int(bitWidth=64, isSigned=false)"},
                                          {"half", "Float16"},
                                          {"single", "FLOAT"},
                                          {"double", "DOUBLE"},
                                          {"truth", "BOOLEAN"},
                                          {"date", "Date"},
                                          {"clock", "Time"},
                                          {"decimal", "Decimal"}})
    EXPECT_THAT(
        fault(vector("types.parquet"), {column}),
        AllOf(HasSubstr("types.parquet: the column '" + column + "' must be a string or a list of strings"),
              HasSubstr(type)));
  EXPECT_THAT(fault(vector("types.parquet"), {"text"}),
              HasSubstr("must have a column 'text'; got whole, bytes, time, record"));
  corpus::LineChunk chunk;
  EXPECT_THAT(
      test::message_of<DataError>([&] { corpus::LineReader(vector("snappy.parquet"), 5).next(chunk); }),
      HasSubstr("must be lines of text; got Parquet"));
}

/// Reads all rows; returns whether the file is readable. A damaged one must throw DataError.
bool can_read(const fs::path& path) {
  try {
    corpus::LineReader lines(path, 1 << 16,
                             {.longest = 1 << 20, .columns = {.names = {"numbers", "text", "parts"}}});
    std::int64_t seen = 0;
    for (corpus::LineChunk chunk; lines.next(chunk);) seen += chunk.end.line - chunk.begin.line;
    EXPECT_GE(seen, 0);
    return true;
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(),
                testing::AnyOf(HasSubstr(path.string() + ": "), HasSubstr(path.string() + " must ")));
    return false;
  }
}

TEST_F(ParquetTest, FilesTruncatedAnywhereAreRejected) {
  const std::string bytes = read_file(vector("checked.parquet"));
  EXPECT_TRUE(can_read(written(bytes)));
  for (std::size_t size = 4; size < bytes.size(); ++size)
    EXPECT_FALSE(can_read(written(bytes.substr(0, size)))) << size;
  // A missing middle with an intact footer.
  for (std::size_t begin = 4; begin < bytes.size() / 2; begin += 97)
    EXPECT_FALSE(can_read(written(bytes.substr(0, begin) + bytes.substr(begin + 60)))) << begin;
}

// Checksums detect a flipped bit in a page; without them the text may differ, but nothing worse happens.
TEST_F(ParquetTest, FlippedBitsGiveAnErrorOrOtherRows) {
  for (const char* name : {"checked.parquet", "unchecked.parquet"}) {
    const std::string bytes = read_file(vector(name));
    int rejected = 0;
    for (std::size_t i = 4; i < bytes.size(); ++i) {
      std::string flipped = bytes;
      flipped[i] = static_cast<char>(flipped[i] ^ (1 << (i % 8)));
      if (!can_read(written(flipped))) ++rejected;
    }
    EXPECT_GT(rejected, 300) << name;
  }
}

// Another worker must not continue with the broken reader: this crashed once.
TEST_F(ParquetTest, DamageIsRejectedWithSeveralWorkers) {
  const std::string bytes = read_file(vector("snappy.parquet"));
  int rejected = 0;
  for (std::size_t i = 4; i < bytes.size() - 12; i += 301) {
    std::string flipped = bytes;
    flipped[i] = static_cast<char>(flipped[i] ^ 1);
    const std::string fault = test::message_of<DataError>([&] { run({written(flipped)}, 4, 100); });
    if (fault.empty()) continue;
    EXPECT_THAT(fault, HasSubstr(".parquet"));
    ++rejected;
  }
  EXPECT_GT(rejected, 10);
}

/// Peak memory of this process in MB.
std::int64_t peak() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) >> 10;
}

/// Additional peak memory of act() in a child process; fails if act() throws.
template <typename Act>
std::int64_t peak_of(Act&& act) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      const std::int64_t before = peak();
      act();
      const std::int64_t more = peak() - before;
      ::_exit(::write(ends[1], &more, sizeof more) == sizeof more ? 0 : 1);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    ::_exit(1);  // otherwise the child would run the other tests too
  }
  std::int64_t more = 0;
  ::close(ends[1]);
  EXPECT_EQ(::read(ends[0], &more, sizeof more), static_cast<ssize_t>(sizeof more));
  ::close(ends[0]);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  return more;
}

// 500 rows of a megabyte in 500 bytes of file.
TEST_F(ParquetTest, OverlongRowsNeedNoMemory) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers keep freed memory";
#endif
  options_.skip_bad_lines = true;
  options_.json_keys = {"numbers"};
  options_.longest_line = 1 << 16;
  const std::int64_t peak = peak_of([&] {
    run({vector("repeated_megabyte.parquet")});
    if (progress_.documents != 1 || progress_.skipped != 500) ::_exit(1);
  });
  EXPECT_LT(peak, 150);
  run({vector("repeated_megabyte.parquet")});
  EXPECT_THAT(skipped_.front(), HasSubstr("row 1 must be at most 65536 bytes; got 1048590;"));
}

TEST_F(ParquetTest, AFooterThatNeedsTooMuchMemoryIsRejected) {
  const std::string length{0, 0, 0, 2};  // 32 MiB
  write_bytes(folder_ / "wide.parquet", "PAR1" + std::string(std::size_t{33} << 20, '\0') + length + "PAR1");
  EXPECT_THAT(fault(folder_ / "wide.parquet", {"text"}),
              HasSubstr("wide.parquet: a footer must have at most 16 MiB; got 32 MiB; rewrite the file"));
}

TEST_F(ParquetTest, TextThatStartsLikeParquetIsText) {
  write_bytes(folder_ / "essay.txt", "PARENTAL ADVISORY\nPARE\nand so on");
  EXPECT_THAT(all_texts(folder_ / "essay.txt"),
              testing::ElementsAre("PARENTAL ADVISORY", "PARE", "and so on"));
}

TEST_F(ParquetTest, PagesThatNeedTooMuchMemoryAreRejected) {
  EXPECT_THAT(fault(vector("page_of_400_mb.parquet"), {"numbers"}),
              HasSubstr("page_of_400_mb.parquet: pages of the columns must fit 384 MiB of memory"));
}

TEST_F(ParquetTest, ChatMessagesEqualThoseOfJsonLines) {
  fs::create_directory(folder_ / "tok");
  fs::copy_file(test::vector_path("tokenizers/qwen2_bpe.json"), folder_ / "tok/tokenizer.json");
  const auto tokenizer =
      tokenizers::make_tokenizer({.type = "HuggingFaceTokenizer", .model = folder_ / "tok"});
  const chat_template::ChatTemplate chats("all", R"({% for m in messages %}{{ m.role + ': ' + m.content }}
{{ m.get('score', 'none') }} {{ m.seen }} {{ m.count }} {{ m.get('tags', 'none') }}
{% generation %}{{ m.content }}{% endgeneration %}{% endfor %})",
                                          {});
  const auto read = [&](const char* name) {
    return data::Conversations(vector(name).string(), *tokenizer, chats, data::IndexCache({}), "x");
  };
  const data::Conversations lines = read("chat.jsonl");
  ASSERT_EQ(lines.num_sequences(), 40);
  for (const char* name : {"chat.parquet", "chat_two_levels.parquet"}) {
    const data::Conversations rows = read(name);
    ASSERT_EQ(rows.num_sequences(), 40);
    for (std::int64_t i = 0; i < 40; ++i) {
      ASSERT_EQ(rows.length(i), lines.length(i)) << name << i;
      std::vector<std::int64_t> a(static_cast<std::size_t>(lines.length(i))), b(a.size());
      lines.tokens(i, 0, a);
      rows.tokens(i, 0, b);
      EXPECT_EQ(a, b) << name << i;
    }
  }
  EXPECT_THAT(test::message_of<DataError>([&] { read("types.parquet"); }),
              HasSubstr("must have a column 'messages'"));
  fs::create_directory(folder_ / "chats");
  fs::copy_file(vector("chat.parquet"), folder_ / "chats/a.parquet");
  EXPECT_EQ(data::chat_files(folder_ / "chats").size(), 1U);
}

}  // namespace
}  // namespace colonnade::preprocess
