// Punkt sentences: equal to NLTK's for real and random texts, blocks of a million characters, incomplete
// models.
#include "colonnade/preprocess/punkt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "colonnade/base/error.h"
#include "support/files.h"

namespace colonnade::preprocess {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> copies(const std::vector<std::string_view>& views) {
  return {views.begin(), views.end()};
}

TEST(Punkt, MatchesNltk) {
  const Punkt plain(test::vector_path("punkt"), false), keeping(test::vector_path("punkt"), true);
  std::ifstream file(test::vector_path("punkt/sentences.jsonl"));
  std::string line;
  std::getline(file, line);  // description of the vectors
  int texts = 0, sentences = 0;
  while (std::getline(file, line)) {
    const auto entry = nlohmann::json::parse(line);
    const std::string text = entry[0];
    const std::vector<std::string> expected = entry[1], expected_keeping = entry[2];
    EXPECT_EQ(copies(plain.split(text)), expected) << text;
    EXPECT_EQ(copies(keeping.split(text)), expected_keeping) << text;
    ++texts;
    sentences += static_cast<int>(expected.size());
    if (testing::Test::HasFailure()) break;
  }
  EXPECT_GT(texts, 2000);
  EXPECT_GT(sentences, 2 * texts);
}

TEST(Punkt, ProcessesBlocksOfAMillionCharacters) {
  const Punkt punkt(test::vector_path("punkt"), false);
  std::string text;
  for (int i = 0; i < 400000; ++i) text += "ä";
  text += ". ";
  for (int i = 0; i < 599998; ++i) text += "ö";  // the block ends here, inside a word
  text += "ü. The end.";
  const auto sentences = punkt.split(text);
  ASSERT_EQ(sentences.size(), 4U);
  EXPECT_EQ(sentences[0].size(), 800001U);
  EXPECT_EQ(sentences[1].size(), 2U * 599998);
  EXPECT_EQ(sentences[2], "ü.");
  EXPECT_EQ(sentences[3], "The end.");
}

TEST(Punkt, RejectsIncompleteModels) {
  const test::TempFolder folder;
  for (const char* name :
       {"abbrev_types.txt", "collocations.tab", "sent_starters.txt", "ortho_context.tab"}) {
    EXPECT_THAT(test::message_of<DataError>([&] { Punkt(folder / "", false); }),
                testing::AllOf(HasSubstr(name), HasSubstr("nltk.downloader punkt_tab")));
    std::ofstream(folder / name).close();
  }
  EXPECT_EQ(Punkt(folder / "", false).split("One. Two.").size(), 2U);
  std::ofstream(folder / "collocations.tab") << "one\n";
  EXPECT_THAT(test::message_of<DataError>([&] { Punkt(folder / "", false); }), HasSubstr("two fields"));
  std::ofstream(folder / "collocations.tab") << "one\ttwo\n";
  std::ofstream(folder / "ortho_context.tab") << "one\tx\n";
  EXPECT_THAT(test::message_of<DataError>([&] { Punkt(folder / "", false); }), HasSubstr("must be a number"));
}

}  // namespace
}  // namespace colonnade::preprocess
