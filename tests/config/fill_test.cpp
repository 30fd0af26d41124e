// Settings filled from a checkpoint's or a folder's values: what was not given, and contradictions.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "colonnade/base/error.h"
#include "colonnade/config/parse.h"
#include "config/lines.h"

namespace colonnade::config {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Fill, AShorthandThatIsSwitchedOffContradictsACheckpoint) {
  config::Run r = parse(shell("gpt --no-swiglu"));
  try {
    fill(r, {{"activation", "swiglu"}}, "run/step_1");
    FAIL() << "the checkpoint's activation was taken";
  } catch (const ConfigError& e) {
    EXPECT_THAT(e.what(),
                HasSubstr("--activation: must agree with run/step_1; got gelu-tanh from the command line"));
  }
  EXPECT_TRUE(r.at_fault.contains("activation")) << "nothing more should be said about it";
  try {
    fill(r, {{"model", "t5"}}, "run/step_1");
    FAIL() << "the checkpoint's family was taken";
  } catch (const ConfigError& e) {
    EXPECT_STREQ(e.what(),
                 "model: must agree with run/step_1; got gpt from the command line and t5 there; "
                 "write t5 in its place");
  }
}

TEST(Fill, ABertSeesBothWaysAndHasABinaryHeadUnlessItIsToldOtherwise) {
  const Model m = parse(shell("bert")).model;
  EXPECT_TRUE(m.bidirectional && m.lm_head_transform && m.bert_binary_head);
  const Model without = parse(shell("bert --bert-no-binary-head")).model;
  EXPECT_TRUE(without.bidirectional && without.lm_head_transform && !without.bert_binary_head);
  EXPECT_FALSE(parse(shell("gpt")).model.bidirectional);
  config::Run filled;
  fill(filled, {{"bert_binary_head", "false"}, {"model", "bert"}}, "a file");
  EXPECT_TRUE(filled.model.bidirectional);
  EXPECT_FALSE(filled.model.bert_binary_head) << "the family first, whatever the order of names";
  set(filled, "model", "gpt");
  EXPECT_EQ(filled.model, Model());
  config::Run typed = parse(shell("--bert-no-binary-head"));
  EXPECT_THROW(fill(typed, {{"bert_binary_head", "true"}, {"model", "bert"}}, "a file"), ConfigError);
  EXPECT_TRUE(typed.model.bidirectional);
  EXPECT_FALSE(typed.model.bert_binary_head);
}

TEST(Fill, WordsThatMeanNothingAreMarkedAndFilledByNobodyElsesFault) {
  Parsed parsed = parse_all(shell("--num-layers x --lr --bf16=maybe --seed 3"));
  EXPECT_EQ(parsed.faults.size(), 3U);
  for (const char* key : {"num_layers", "lr", "params_dtype"})
    EXPECT_TRUE(parsed.run.at_fault.contains(key)) << key;
  EXPECT_FALSE(parsed.run.at_fault.contains("seed"));
  EXPECT_TRUE(typed(parsed.run, "seed"));
  EXPECT_NO_THROW(fill(parsed.run, {{"num_layers", "4"}}, "run/step_1"));
}

TEST(Fill, SetsWhatWasNotGivenAndNamesContradictions) {
  config::Run r = parse(shell("--num-layers 4 --hidden-size 64 --swiglu"));
  fill(r,
       {{"num_layers", "4"},
        {"num_attention_heads", "8"},
        {"activation", "swiglu"},
        {"rotary_base", "500000.0"},
        {"untie_embeddings_and_output_weights", "true"},
        {"num_query_groups", "2"},
        {"group_query_attention", "true"}},
       "hf/config.json");
  EXPECT_EQ(r.model.num_attention_heads, 8);
  EXPECT_EQ(r.model.rotary_base, 5e5);
  EXPECT_EQ(r.model.num_query_groups, 2);
  EXPECT_TRUE(r.model.untie_embeddings_and_output_weights);
  try {
    fill(r, {{"num_layers", "6"}, {"activation", "gelu"}, {"hidden_size", "64"}}, "hf/config.json");
    FAIL();
  } catch (const ConfigError& e) {
    EXPECT_THAT(
        e.what(),
        AllOf(HasSubstr("--num-layers: must agree with hf/config.json; got 4 from the command line and 6 "
                        "there; leave --num-layers out"),
              HasSubstr("--activation: must agree with hf/config.json; got swiglu"),
              ::testing::Not(HasSubstr("hidden"))));
  }
}

TEST(Fill, ASwitchThatWasSwitchedOffIsNamedByTheFlagThatDidIt) {
  const auto fault = [](const std::string& flag, const char* value) -> std::string {
    auto bert = parse({"bert", flag});
    try {
      fill(bert, {{"bert_binary_head", value}}, "run/step_1");
    } catch (const ConfigError& e) {
      return e.what();
    }
    return "";
  };
  for (const auto& [flag, value] :
       {std::pair("--bert-no-binary-head", "true"), {"--bert-binary-head", "false"}})
    EXPECT_EQ(
        fault(flag, value),
        fmt::format("{0}: must agree with run/step_1; got true from the command line and false there; leave "
                    "{0} out",
                    flag));
}

}  // namespace
}  // namespace colonnade::config
