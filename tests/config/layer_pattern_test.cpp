// Lists of layers in Python's words against what Python makes of them.
#include "colonnade/config/layer_pattern.h"

#include <gtest/gtest.h>

#include <string>

namespace colonnade::config {
namespace {

using Numbers = std::vector<std::int64_t>;
using Kinds = std::vector<bool>;

TEST(LayerPattern, ListsAreWhatPythonMakesOfThem) {
  EXPECT_EQ(read_list("[1,0]"), (Numbers{1, 0}));
  EXPECT_EQ(read_list("([0]*3+[1]*2)"), (Numbers{0, 0, 0, 1, 1}));
  EXPECT_EQ(read_list("([0, 1] * 2 + [1]) * 2"), (Numbers{0, 1, 0, 1, 1, 0, 1, 0, 1, 1}));
  EXPECT_EQ(read_list("2*[1]"), (Numbers{1, 1}));
  EXPECT_EQ(read_list("[1]*(1+2)"), (Numbers{1, 1, 1}));
  EXPECT_EQ(read_list("[1]*-1"), Numbers{});
  EXPECT_EQ(read_list("[1,0,]"), (Numbers{1, 0}));
  EXPECT_EQ(read_list("[]"), Numbers{});
  EXPECT_EQ(read_list("1,0, 1"), (Numbers{1, 0, 1})) << "as a list of YAML";
}

TEST(LayerPattern, WhatIsNoListIsNone) {
  for (const char* text :
       {"", "3", "[1", "1]", "[1]+2", "[1]*[1]", "[1]]", "[[1]]", "[,]", "[1 0", "a", ",1", "1,[0]", "1],[0",
        "[1]*", "[1]*9999999999", "[1]*999999999999999999999", "__import__('os')", "[1]**2"})
    EXPECT_EQ(read_list(text), std::nullopt) << text;
  EXPECT_EQ(read_list(std::string(100'000, '(')), std::nullopt);
  EXPECT_EQ(read_list(std::string(100'000, '[')), std::nullopt);
}

TEST(LayerPattern, ANumberMakesEachSoManiethLayerOneOfTheKind) {
  EXPECT_EQ(layers_of_kind("1", 3), (Kinds{true, true, true}));
  EXPECT_EQ(layers_of_kind("2", 5), (Kinds{true, false, true, false, true}));
  EXPECT_EQ(layers_of_kind("([0]*1+[1]*2)", 3), (Kinds{false, true, true}));
  EXPECT_EQ(layers_of_kind("0", 3), std::nullopt);
  EXPECT_EQ(layers_of_kind("-2", 3), std::nullopt);
  EXPECT_EQ(layers_of_kind("[1,0]", 3), std::nullopt) << "another length";
  EXPECT_EQ(layers_of_kind("[1,2]", 2), std::nullopt) << "neither 0 nor 1";
}

}  // namespace
}  // namespace colonnade::config
