// Settings filled from the values of a checkpoint or folder: unset ones, and conflicts.
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

TEST(Fill, NegatedShorthandConflictsWithACheckpoint) {
  config::Run r = parse(shell("gpt --no-swiglu"));
  try {
    fill(r, {{"activation", "swiglu"}}, "run/step_1");
    FAIL() << "the checkpoint's activation was used";
  } catch (const ConfigError& e) {
    EXPECT_THAT(e.what(),
                HasSubstr("--activation must agree with run/step_1; got gelu-tanh from the command line"));
  }
  EXPECT_TRUE(r.invalid_keys.contains("activation")) << "no further errors about it";
  try {
    fill(r, {{"model", "t5"}}, "run/step_1");
    FAIL() << "the checkpoint's model was used";
  } catch (const ConfigError& e) {
    EXPECT_STREQ(e.what(),
                 "model must agree with run/step_1; got gpt from the command line and t5 there; "
                 "write t5 instead");
  }
}

TEST(Fill, BertIsBidirectionalWithABinaryHeadByDefault) {
  const Model m = parse(shell("bert")).model;
  EXPECT_TRUE(m.bidirectional && m.lm_head_transform && m.bert_binary_head);
  const Model without = parse(shell("bert --bert-no-binary-head")).model;
  EXPECT_TRUE(without.bidirectional && without.lm_head_transform && !without.bert_binary_head);
  EXPECT_FALSE(parse(shell("gpt")).model.bidirectional);
  config::Run filled;
  fill(filled, {{"bert_binary_head", "false"}, {"model", "bert"}}, "a file");
  EXPECT_TRUE(filled.model.bidirectional);
  EXPECT_FALSE(filled.model.bert_binary_head) << "the model is set first, whatever the key order";
  set(filled, "model", "gpt");
  EXPECT_EQ(filled.model, Model());
  config::Run typed = parse(shell("--bert-no-binary-head"));
  EXPECT_THROW(fill(typed, {{"bert_binary_head", "true"}, {"model", "bert"}}, "a file"), ConfigError);
  EXPECT_TRUE(typed.model.bidirectional);
  EXPECT_FALSE(typed.model.bert_binary_head);
}

TEST(Fill, InvalidWordsAreMarkedAndDoNotConflict) {
  Parsed parsed = parse_all(shell("--num-layers x --lr --bf16=maybe --seed 3"));
  EXPECT_EQ(parsed.faults.size(), 3U);
  for (const char* key : {"num_layers", "lr", "params_dtype"})
    EXPECT_TRUE(parsed.run.invalid_keys.contains(key)) << key;
  EXPECT_FALSE(parsed.run.invalid_keys.contains("seed"));
  EXPECT_TRUE(is_from_command_line(parsed.run, "seed"));
  EXPECT_NO_THROW(fill(parsed.run, {{"num_layers", "4"}}, "run/step_1"));
}

TEST(Fill, FillsUnsetSettingsAndReportsConflicts) {
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
        AllOf(HasSubstr("--num-layers must agree with hf/config.json; got 4 from the command line and 6 "
                        "there; remove --num-layers"),
              HasSubstr("--activation must agree with hf/config.json; got swiglu"),
              ::testing::Not(HasSubstr("hidden"))));
  }
}

/// As in Megatron's load_args_from_checkpoint: keys with force=True replace given values, others do not.
TEST(Fill, UseCheckpointArgsReplacesGivenValues) {
  config::Run r = parse(
      shell("gpt --use-checkpoint-args --swiglu --rotary-base 20000 --disable-bias-linear --num-experts 4 "
            "--moe-router-topk 2 --position-embedding-type rope --num-layers 4"));
  fill(r,
       {{"activation", "gelu"},
        {"rotary_base", "500000.0"},
        {"add_bias_linear", "true"},
        {"num_experts", "8"},
        {"moe_router_topk", "2"},
        {"position_embedding_type", "rope"},
        {"num_layers", "4"}},
       "run/step_1");
  EXPECT_EQ(r.model.activation, Activation::kGeluErf);
  EXPECT_EQ(r.model.rotary_base, 5e5);
  EXPECT_TRUE(r.model.add_bias_linear);
  EXPECT_EQ(r.model.moe.num_experts, 8);
  EXPECT_THAT(
      r.notes,
      ::testing::UnorderedElementsAre(
          "--activation: --use-checkpoint-args takes gelu from run/step_1; got swiglu from the command line",
          "--rotary-base: --use-checkpoint-args takes 500000 from run/step_1; got 20000 from the command line",
          "--disable-bias-linear: --use-checkpoint-args takes false from run/step_1; got true from the command "
          "line",
          "--num-experts: --use-checkpoint-args takes 8 from run/step_1; got 4 from the command line"));
  EXPECT_FALSE(r.given.contains("moe_router_topk")) << "set by the checkpoint now";
  EXPECT_THROW(fill(r, {{"num_layers", "6"}}, "run/step_1"), ConfigError) << "Megatron keeps the given size";
  EXPECT_EQ(r.model.num_layers, 4);
}

TEST(Fill, ReplacedSettingsAreThoseThatMegatronForces) {
  config::Run r;
  EXPECT_FALSE(checkpoint_wins(r, "activation"));
  r.checkpoint.use_checkpoint_args = true;
  for (const char* forced :
       {"num_query_groups", "position_embedding_type", "rotary_percent", "rotary_interleaved", "add_qkv_bias",
        "untie_embeddings_and_output_weights", "layernorm_zero_centered_gamma", "normalization",
        "attention_dropout", "hidden_dropout", "mtp_num_layers", "moe_layer_freq", "moe_ffn_hidden_size",
        "moe_router_pre_softmax", "moe_shared_expert_intermediate_size", "moe_router_score_function",
        "moe_router_enable_expert_bias", "moe_router_topk_scaling_factor"}) {
    EXPECT_TRUE(checkpoint_wins(r, forced)) << forced;
    EXPECT_EQ(setting(forced).key, forced);
  }
  for (const char* given : {"hidden_size", "ffn_hidden_size", "seq_length", "num_attention_heads",
                            "kv_channels", "max_position_embeddings", "moe_token_dispatcher_type", "lr"})
    EXPECT_FALSE(checkpoint_wins(r, given)) << given;
}

TEST(Fill, NegatedSwitchIsNamedByItsOffFlag) {
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
        fmt::format("{0} must agree with run/step_1; got true from the command line and false there; remove "
                    "{0}",
                    flag));
}

}  // namespace
}  // namespace colonnade::config
