// Names and config.json of BERT: heads, copies, switches. Its tensors and the round trip: names_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "models/names_support.h"

namespace colonnade::models::hf {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace)
using testing::HasSubstr;

TEST(BertNames, FollowTheArchitecture) {
  EXPECT_THAT(config_error("bert", {{"hidden_act", "relu"}}), HasSubstr("hidden_act must be gelu; got relu"));
  EXPECT_THAT(config_error("bert", {{"is_decoder", true}}), HasSubstr("is_decoder must be false"));
  EXPECT_THAT(config_error("bert", {{"architectures", {"BertModel"}}}),
              HasSubstr("must be BertForMaskedLM or BertForPreTraining; got BertModel"));
  auto config = config_in("bert");
  EXPECT_FALSE(run_from(config).model.bert_binary_head);
  config["architectures"] = {"BertForPreTraining"};
  const auto run = run_from(config);
  EXPECT_TRUE(run.model.bert_binary_head);
  EXPECT_EQ(config_of(run.model).at("architectures"), config.at("architectures"));
  EXPECT_EQ(names_of(run).count("cls.seq_relationship.weight"), 1U);
  EXPECT_EQ(settings_of(config, "x").at("model"), "bert");
  config["architectures"] = {"BertForMaskedLM"};
  EXPECT_EQ(settings_of(config, "x", {"bert.pooler.dense.weight"}).at("bert_binary_head"), "false");
  EXPECT_EQ(settings_of(config, "x", {"cls.seq_relationship.weight"}).at("bert_binary_head"), "true");
}

TEST(BertNames, IgnoreTensorsOfOtherHeads) {
  const auto run = run_of("bert");
  EXPECT_TRUE(tensor_diff(run.model, {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias",
                                      "bert.embeddings.position_ids", "bert.pooler.dense.weight",
                                      "cls.seq_relationship.bias"})
                  .unknown.empty());
  EXPECT_EQ(tensor_diff(run.model, {"bert.encoder.layer.2.output.LayerNorm.weight"}).unknown.size(), 1U);
}

TEST(BertNames, UntiedOutputLayersStoreTheirBiasTwice) {
  auto config = config_in("bert");
  EXPECT_TRUE(copies_to_save(run_from(config).model).empty());
  config["tie_word_embeddings"] = false;
  const auto run = run_from(config);
  const auto copies = copies_to_save(run.model);
  ASSERT_EQ(copies.size(), 1U);
  EXPECT_EQ(copies[0].name, "cls.predictions.decoder.bias") << "the one that Transformers uses";
  EXPECT_EQ(copies[0].original, "cls.predictions.bias");
  EXPECT_TRUE(names_of(run).contains("cls.predictions.bias"));
  EXPECT_TRUE(copies_to_save(run_of("gpt2").model).empty());
}

TEST(BertNames, FamilyFollowsEverySetting) {
  const config::Model bert = run_of("bert").model;
  const auto with = [&](const std::function<void(config::Model&)>& edit) {
    config::Model other = bert;
    edit(other);
    return family_of(other);
  };
  EXPECT_EQ(with([](config::Model& m) { m.bert_binary_head = true; }), family_of_type("bert"));
  EXPECT_EQ(with([](config::Model& m) { m.apply_residual_connection_post_layernorm = false; }), nullptr);
  EXPECT_EQ(with([](config::Model& m) { m.num_tokentypes = 0; }), nullptr);
  EXPECT_EQ(with([](config::Model& m) { m.activation = config::Activation::kGeluTanh; }), nullptr);
  EXPECT_EQ(with([](config::Model& m) { m.output_layer_bias = false; }), nullptr);
  config::Model gpt2 = run_of("gpt2").model;
  EXPECT_EQ(family_of(gpt2), family_of_type("gpt2"));
  gpt2.apply_residual_connection_post_layernorm = true;
  EXPECT_EQ(family_of(gpt2), nullptr) << "GPT-2 is pre-LN";
}

}  // namespace
}  // namespace colonnade::models::hf
