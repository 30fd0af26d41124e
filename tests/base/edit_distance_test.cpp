// Edit distances against hand-computed values, and the threshold of suggestions.
#include "colonnade/base/edit_distance.h"

#include <gtest/gtest.h>

#include <vector>

namespace colonnade {
namespace {

TEST(EditDistance, CountsInsertionsDeletionsAndReplacements) {
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("abc", ""), 3U);
  EXPECT_EQ(edit_distance("same", "same"), 0U);
}

TEST(EditDistance, SuggestsOnlyWordsWithinTheThreshold) {
  const std::vector<std::string> verbs{"pretrain", "preprocess", "plan"};
  EXPECT_EQ(nearest_word("pretrian", verbs), "pretrain");
  EXPECT_EQ(nearest_word("plna", verbs), "plan");
  EXPECT_EQ(nearest_word("serve-all-now", verbs), "");
  EXPECT_EQ(nearest_word("tp", std::vector<std::string>{"lr"}), "") << "no letter in common";
  EXPECT_EQ(nearest_word("", std::vector<std::string>{"lr"}), "");
}

}  // namespace
}  // namespace colonnade
