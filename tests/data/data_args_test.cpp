// Data paths read from files.
#include "colonnade/data/data_args.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "colonnade/base/error.h"
#include "support/files.h"

namespace colonnade::data {
namespace {

using ::testing::HasSubstr;
using Words = std::vector<std::string>;

class DataArgsTest : public ::testing::Test {
 protected:
  [[nodiscard]] config::Data read_words(const std::string& text) const {
    write_file_atomically(folder_ / "words", text);
    config::Data data;
    data.data_args_path = folder_ / "words";
    return with_data_args(data);
  }
  [[nodiscard]] config::Data read_json(const std::string& text) const {
    write_file_atomically(folder_ / "splits.json", text);
    config::Data data;
    data.per_split_data_args_path = folder_ / "splits.json";
    return with_data_args(data);
  }
  [[nodiscard]] std::string error_message(const std::string& json) const {
    return test::message_of<ConfigError>([&] { (void)read_json(json); });
  }

  test::TempFolder folder_;
};

TEST_F(DataArgsTest, ReadWordsBecomeTheDataPath) {
  const config::Data read = read_words("0.3 books\n\n\t0.7\r\nweb/part  \n");
  EXPECT_EQ(read.data_path, (Words{"0.3", "books", "0.7", "web/part"}));
  EXPECT_EQ(read.data_args_path, "");
}

TEST_F(DataArgsTest, ReadWordsOfEachSplit) {
  const config::Data read =
      read_json(R"({"train": [0.25, "a", "0.75", "b"], "valid": "1 c 2 d", "test": null})");
  EXPECT_EQ(read.train_data_path, (Words{"0.25", "a", "0.75", "b"}));
  EXPECT_EQ(read.valid_data_path, (Words{"1", "c", "2", "d"}));
  EXPECT_TRUE(read.test_data_path.empty());
  EXPECT_EQ(read.per_split_data_args_path, "");
}

TEST_F(DataArgsTest, KeepSettingsWithNoneOrSeveralSources) {
  config::Data data;
  EXPECT_EQ(with_data_args(data), data);
  data.data_path = {"a"};
  EXPECT_EQ(with_data_args(data), data);
  data.data_args_path = folder_ / "missing";
  EXPECT_EQ(with_data_args(data), data);  // a rule rejects both
  data.data_path.clear();
  data.per_split_data_args_path = folder_ / "missing";
  EXPECT_EQ(with_data_args(data), data);
}

TEST_F(DataArgsTest, ReportBadFiles) {
  EXPECT_THAT(test::message_of<ConfigError>([&] { (void)read_words(" \n"); }),
              HasSubstr("--data-args-path must name a file with the words of --data-path; got none in"));
  config::Data data;
  data.data_args_path = folder_ / "missing";
  EXPECT_THAT(test::message_of<ConfigError>([&] { (void)with_data_args(data); }),
              HasSubstr("--data-args-path must name a file"));
  data.data_args_path = "/dev/zero";
  EXPECT_THAT(test::message_of<ConfigError>([&] { (void)with_data_args(data); }),
              HasSubstr("/dev/zero, which is no file"));
  EXPECT_THAT(error_message("{"), HasSubstr("--per-split-data-args-path must be a JSON object; got no JSON"));
  EXPECT_THAT(error_message("[1]"), HasSubstr("got array"));
  EXPECT_THAT(error_message(R"({"train": ["a"], "valid": ["b"]})"), HasSubstr("got no 'test'"));
  EXPECT_THAT(error_message(R"({"train": ["a"], "valid": null, "test": null, "dev": "b"})"),
              HasSubstr("got 'dev'"));
  EXPECT_THAT(error_message(R"({"train": [["a"]], "valid": null, "test": null})"),
              HasSubstr("train must be a list of strings and numbers; got array"));
  EXPECT_THAT(error_message(R"({"train": 3, "valid": null, "test": null})"),
              HasSubstr("a list, a string or null; got number"));
  EXPECT_THAT(error_message(R"({"train": null, "valid": [], "test": ""})"),
              HasSubstr("must name data; got none"));
  EXPECT_THAT(error_message(std::string(100000, '[')), HasSubstr("got no JSON"));
}

}  // namespace
}  // namespace colonnade::data
