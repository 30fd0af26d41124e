// The list of parameters: published counts, names, cuts, partial gradients, start values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "colonnade/base/error.h"
#include "colonnade/plan/params/gpt.h"
#include "plan/presets.h"

namespace colonnade::plan {
namespace {

std::int64_t count(const config::Model& model) {
  std::int64_t sum = 0;
  for (const ParamSpec& spec : gpt_params(model, {})) sum += spec.numel();
  return sum;
}

std::vector<std::string> names(const config::Model& model) {
  std::vector<std::string> all;
  for (const ParamSpec& spec : gpt_params(model, {})) all.push_back(spec.name);
  return all;
}

TEST(GptParams, CountsAreThePublishedOnes) {
  EXPECT_EQ(count(test::llama3_8b()), 8'030'261'248);
  EXPECT_EQ(count(test::llama3_70b()), 70'553'706'496);
  EXPECT_EQ(count(test::gpt2_124m()), 124'439'808);
  EXPECT_EQ(count(test::gpt3_175b()), 174'604'259'328);
}

TEST(GptParams, NamesAreMegatronsInBlockOrder) {
  config::Model m = test::gpt(1, 8, 2, 16);
  m.qk_layernorm = true;
  EXPECT_THAT(names(m),
              testing::ElementsAre(
                  "embedding.word_embeddings.weight", "embedding.position_embeddings.weight",
                  "decoder.layers.0.input_layernorm.weight", "decoder.layers.0.input_layernorm.bias",
                  "decoder.layers.0.self_attention.linear_qkv.weight",
                  "decoder.layers.0.self_attention.linear_qkv.bias",
                  "decoder.layers.0.self_attention.q_layernorm.weight",
                  "decoder.layers.0.self_attention.q_layernorm.bias",
                  "decoder.layers.0.self_attention.k_layernorm.weight",
                  "decoder.layers.0.self_attention.k_layernorm.bias",
                  "decoder.layers.0.self_attention.linear_proj.weight",
                  "decoder.layers.0.self_attention.linear_proj.bias",
                  "decoder.layers.0.pre_mlp_layernorm.weight", "decoder.layers.0.pre_mlp_layernorm.bias",
                  "decoder.layers.0.mlp.linear_fc1.weight", "decoder.layers.0.mlp.linear_fc1.bias",
                  "decoder.layers.0.mlp.linear_fc2.weight", "decoder.layers.0.mlp.linear_fc2.bias",
                  "decoder.final_layernorm.weight", "decoder.final_layernorm.bias"));
}

TEST(GptParams, SwitchesAddAndRemoveParameters) {
  config::Model m = test::llama3_8b();
  m.num_layers = 1;
  EXPECT_THAT(
      names(m),
      testing::ElementsAre("embedding.word_embeddings.weight", "decoder.layers.0.input_layernorm.weight",
                           "decoder.layers.0.self_attention.linear_qkv.weight",
                           "decoder.layers.0.self_attention.linear_proj.weight",
                           "decoder.layers.0.pre_mlp_layernorm.weight",
                           "decoder.layers.0.mlp.linear_fc1.weight", "decoder.layers.0.mlp.linear_fc2.weight",
                           "decoder.final_layernorm.weight", "output_layer.weight"));
  m.add_qkv_bias = true;
  m.untie_embeddings_and_output_weights = false;
  EXPECT_THAT(names(m), testing::Contains("decoder.layers.0.self_attention.linear_qkv.bias"));
  EXPECT_THAT(names(m), testing::Not(testing::Contains("decoder.layers.0.self_attention.linear_proj.bias")));
  EXPECT_THAT(names(m), testing::Not(testing::Contains("output_layer.weight")));
}

TEST(GptParams, CutsFollowTheHeads) {
  const config::Model m = test::llama3_8b();  // 32 query heads, 8 groups of 128
  const LayerParams layer = layer_params(m, test::layout(16, 16, 1), 5);
  const Shard qkv = shard(layer.attention.qkv.weight, Position::on(Axis::kTp, 3, 16));
  EXPECT_EQ(qkv.shape, (std::vector<std::int64_t>{4 * 128, 4096}));
  ASSERT_EQ(qkv.parts.size(), 3U);
  EXPECT_EQ(qkv.parts[0].global[0], 6 * 128);
  EXPECT_EQ(qkv.parts[1].global[0], (32 + 1) * 128);
  EXPECT_EQ(qkv.parts[1].holders, 2);
  EXPECT_FALSE(qkv.parts[1].owner);
  EXPECT_EQ(qkv.parts[2].global[0], (32 + 8 + 1) * 128);
  EXPECT_EQ(shard(layer.attention.proj.weight, Position::on(Axis::kTp, 3, 16)).shape,
            (std::vector<std::int64_t>{4096, 256}));
  const Shard fc1 = shard(std::get<MlpParams>(layer.mlp).fc1.weight, Position::on(Axis::kTp, 1, 16));
  EXPECT_EQ(fc1.parts.at(1).global[0], 14336 + 896);
  EXPECT_EQ(fc1.parts.at(1).local[0], 896);
  EXPECT_EQ(shard(std::get<MlpParams>(layer.mlp).fc2.weight, Position::on(Axis::kTp, 1, 16)).shape,
            (std::vector<std::int64_t>{4096, 896}));
  EXPECT_THROW(shard(layer.attention.qkv.weight, Position::on(Axis::kTp, 0, 12)), ConfigError);
}

TEST(GptParams, TheVocabularyIsFilledInMemoryOnly) {
  const EmbeddingParams p = embedding_params(test::gpt2_124m(), test::layout(8, 8, 1));
  EXPECT_EQ(p.word.shape[0], 50257);
  EXPECT_EQ(shard(p.word, Position::on(Axis::kTp, 7, 8)).shape[0] * 8,
            51200);  // the next multiple of 128 * 8
  EXPECT_EQ(shard(p.word, Position::on(Axis::kTp, 7, 8)).parts.at(0).length[0], 50257 - 7 * 6400);
}

/// Names of the parameters of one layer, embedding and head whose gradient is partial over tp.
std::set<std::string> partial(const config::Model& model, const config::Parallel& parallel) {
  std::set<std::string> all;
  for (const ParamSpec& spec : gpt_params(model, parallel)) {
    if (spec.partial == AxisSet{Axis::kTp})
      all.insert(spec.name);
    else
      EXPECT_TRUE(spec.partial.empty());
  }
  return all;
}

TEST(GptParams, PartialGradientsFollowSequenceAndHeads) {
  config::Model m = test::gpt(1, 8, 2, 16);
  m.qk_layernorm = true;
  config::Parallel p = test::layout(2, 2, 1);
  const std::set<std::string> heads = {"decoder.layers.0.self_attention.q_layernorm.weight",
                                       "decoder.layers.0.self_attention.q_layernorm.bias",
                                       "decoder.layers.0.self_attention.k_layernorm.weight",
                                       "decoder.layers.0.self_attention.k_layernorm.bias"};
  EXPECT_EQ(partial(m, p), heads);
  p.sequence_parallel = true;
  std::set<std::string> all = heads;
  for (const char* name :
       {"embedding.position_embeddings.weight", "decoder.layers.0.input_layernorm.weight",
        "decoder.layers.0.input_layernorm.bias", "decoder.layers.0.self_attention.linear_proj.bias",
        "decoder.layers.0.pre_mlp_layernorm.weight", "decoder.layers.0.pre_mlp_layernorm.bias",
        "decoder.layers.0.mlp.linear_fc2.bias", "decoder.final_layernorm.weight",
        "decoder.final_layernorm.bias"}) {
    all.insert(name);
  }
  EXPECT_EQ(partial(m, p), all);
  p = test::layout(2, 1, 1);
  p.sequence_parallel = true;  // means nothing for one tensor rank
  EXPECT_TRUE(partial(m, p).empty());
}

TEST(GptParams, StartValuesAndWeightDecay) {
  config::Model m = test::gpt(8, 8, 2, 16);
  m.init_method_std = 0.04;
  m.embedding_init_method_std = 0.5;
  m.untie_embeddings_and_output_weights = true;
  for (const ParamSpec& spec : gpt_params(m, {})) {
    const bool matrix = spec.shape.size() == 2;
    EXPECT_EQ(spec.weight_decay, matrix) << spec.name;
    const auto has = [&](const char* part) { return spec.name.find(part) != std::string::npos; };
    if (!matrix) {
      EXPECT_EQ(spec.init.kind, has("bias") ? InitKind::kZero : InitKind::kOne) << spec.name;
    } else {
      EXPECT_EQ(spec.init.kind, InitKind::kNormal);
      EXPECT_DOUBLE_EQ(spec.init.std, has("embedding")            ? 0.5
                                      : has("proj") || has("fc2") ? 0.01
                                                                  : 0.04)
          << spec.name;
    }
  }
  m.apply_layernorm_1p = true;
  EXPECT_EQ(head_params(m, {}).final_norm.weight.init.kind, InitKind::kZero);
}

TEST(GptParams, RefusesAnIncompleteModel) {
  config::Model m = test::gpt2_124m();
  m.ffn_hidden_size = 0;
  EXPECT_THROW(layer_params(m, {}, 0), Error);
}

}  // namespace
}  // namespace colonnade::plan
