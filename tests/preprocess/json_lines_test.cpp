// Accepted JSON lines, the same as Python's json.loads accepts, and errors that name the line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/preprocess/preprocess.h"
#include "support/files.h"

namespace colonnade::preprocess {
namespace {

using ::testing::HasSubstr;

class JsonLinesTest : public ::testing::Test {
 protected:
  /// Bytes of PREFIX_text_document.bin after preprocessing `text`.
  std::string run(const std::string& text, int workers = 1, std::int64_t chunk = 1 << 20) {
    std::ofstream(folder_ / "in.jsonl", std::ios::binary) << text;
    preprocess::preprocess({.inputs = {folder_ / "in.jsonl"},
                            .output_prefix = folder_ / "out",
                            .append_eod = true,
                            .workers = workers,
                            .chunk_bytes = chunk},
                           *tokenizer_);
    return read_file(folder_ / "out_text_document.bin");
  }

  test::TempFolder folder_;
  std::unique_ptr<tokenizers::Tokenizer> tokenizer_ =
      tokenizers::make_tokenizer({.type = "NullTokenizer", .vocab_size = 256});
};

TEST_F(JsonLinesTest, ReportsTheFirstBrokenLineAndLeavesNoOutput) {
  const std::string good = "{\"text\": \"1\"}\n";
  const std::vector<std::pair<std::string, std::string>> broken{
      {"{\"text\": \"1\"", "must be a JSON object"},
      {"{\"text\": \"1", "must be a JSON object"},
      {"[1]", "must be a JSON object"},
      {"\xef\xbb\xbf{\"text\": \"1\"}", "got a byte order mark (U+FEFF) before it; remove it with sed"},
      {"{\"text\": \"1\"} x", "must be a JSON object"},
      {"{\"txt\": \"1\"}", "must have the key 'text'"},
      {"{\"text\": 1}", "must be a string"},
      {"{\"text\": \"300\"}", "got '300'"},
      {"{\"text\": \"\\ud800\"}", "must be a JSON object"}};
  for (const auto& [line, what] : broken) {
    std::string text;
    for (int i = 0; i < 50; ++i) text += good;
    text += "\n" + line + "\n";
    for (int i = 0; i < 50; ++i) text += line + "\n";
    for (const int workers : {1, 4}) {
      const std::string message = test::message_of<DataError>([&] { run(text, workers, 64); });
      EXPECT_THAT(message, testing::ContainsRegex("in\\.jsonl line 52(:| must) ")) << line;
      EXPECT_THAT(message, HasSubstr(what)) << line;
      EXPECT_EQ(folder_.num_files(), 1U) << line;
    }
  }
}

TEST_F(JsonLinesTest, TheLastOfEqualKeysCounts) {
  EXPECT_EQ(run("{\"text\": \"1 2\", \"a\": {\"text\": \"3\"}, \"te\\u0078t\": \"7\"}\n"),
            std::string("\7\0\xff\0", 4));
}

// Numbers that Python's json.loads accepts, but simdjson may not.
TEST_F(JsonLinesTest, NumbersUnderOtherKeysAreIgnored) {
  for (const char* number :
       {"123456789012345678901234567890", "-123456789012345678901234567890", "1e999", "-1.5E+999", "NaN",
        "Infinity", "-Infinity", "[1, -0, [1e999,NaN]]", "{\"n\":NaN}"})
    EXPECT_EQ(run(fmt::format("{{\"a\\\"1e999\": {}, \"text\": \"7 8\", \"z\": {}}}\n", number, number)),
              std::string("\7\0\x8\0\xff\0", 6))
        << number;
  for (const char* broken : {"01", "1.", ".5", "1e", "+1", "--1", "-", "1 2", "-NaN", "NaNs", "nan", "inf",
                             "0x1", "1e999]", "1\"2\"", "NaN, 5: 1", "tru"})
    EXPECT_THAT(test::message_of<DataError>(
                    [&] { run(fmt::format("{{\"big\": 1e999, \"a\": {}, \"text\": \"7\"}}\n", broken)); }),
                HasSubstr("must be a JSON object"))
        << broken;
  EXPECT_THAT(test::message_of<DataError>([&] { run("{\"text\": NaN}\n"); }), HasSubstr("must be a string"));
}

}  // namespace
}  // namespace colonnade::preprocess
