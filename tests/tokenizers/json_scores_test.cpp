// Numbers as Hugging Face tokenizers reads them, and segmentations that depend on their last bits.
#include "colonnade/tokenizers/json_scores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "colonnade/base/error.h"
#include "colonnade/tokenizers/tokenizer_json.h"
#include "support/files.h"

namespace colonnade::tokenizers {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename Use>
int for_each_line(const std::string& name, Use&& use) {
  std::ifstream in(test::vector_path("unigram/" + name));
  int count = 0;
  for (std::string line; std::getline(in, line); ++count) use(json::parse(line));
  return count;
}

TEST(JsonScores, NumbersAreRoundedAsInHuggingFace) {
  int inexact = 0;  // numbers that are not the nearest float64
  const int count = for_each_line("numbers.jsonl", [&](const json& line) {
    const auto text = line["text"].get<std::string>();
    const double expected = std::strtod(line["read"].get<std::string>().c_str(), nullptr);
    EXPECT_EQ(serde_json_number(text), expected) << text;
    inexact += expected == std::strtod(text.c_str(), nullptr) ? 0 : 1;
  });
  EXPECT_EQ(count, 2000);
  EXPECT_GT(inexact, 200);
  EXPECT_TRUE(std::isinf(serde_json_number("1e400")));
  EXPECT_TRUE(std::isinf(serde_json_number("1e99999999999999999999999")));
  EXPECT_EQ(serde_json_number("0e99999999999999999999999"), 0);
  EXPECT_EQ(serde_json_number("1e-99999999999999999999999"), 0);
}

TEST(JsonScores, TiesAreBrokenAsInHuggingFace) {
  const auto tokenizer = read_tokenizer_json(test::vector_path("tokenizers/t5_unigram.json"));
  const int count = for_each_line("runs.jsonl", [&](const json& line) {
    std::string text;
    for (int i = 0; i < line["times"].get<int>(); ++i) text += line["text"].get<std::string>();
    EXPECT_EQ(tokenizer->encode(text), line["ids"].get<std::vector<std::int32_t>>())
        << line["times"] << " times " << line["text"];
  });
  EXPECT_EQ(count, 200);
}

TEST(JsonScores, ReadsEscapedKeysAndRejectsWrongFiles) {
  EXPECT_THAT(unigram_scores(R"({"a": 1, "m\u006fdel": {"x": [2], "vocab": [["a", -1.5 ], ["b",2]]}})", "f"),
              ElementsAre(-1.5, 2));
  for (const char* text :
       {"", "{", "[]", R"({"model": 1})", R"({"model": {"vocab": [1]}})",
        R"({"model": {"vocab": [["a", "x"]]}})", R"({"model": {"vocab": [["a"], ["b", 1]]}})"})
    EXPECT_THAT(test::message_of<DataError>([&] { (void)unigram_scores(text, "f: vocab"); }),
                HasSubstr("f: vocab must be tokens and their scores"));
}

}  // namespace
}  // namespace colonnade::tokenizers
