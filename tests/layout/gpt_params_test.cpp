// Parameter lists: published counts, names, sharding, partial gradients, initialization.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "colonnade/base/error.h"
#include "colonnade/config/derive.h"
#include "colonnade/config/parse.h"
#include "colonnade/layout/params/gpt.h"
#include "support/presets.h"
#include "support/vectors.h"

namespace colonnade::layout {
namespace {

std::int64_t count(const config::Model& model) {
  std::int64_t sum = 0;
  for (const ParamSpec& spec : model_params(model, {})) sum += spec.numel();
  return sum;
}

std::vector<std::string> names(const config::Model& model) {
  std::vector<std::string> all;
  for (const ParamSpec& spec : model_params(model, {})) all.push_back(spec.name);
  return all;
}

TEST(GptParams, CountsMatchPublishedModels) {
  EXPECT_EQ(count(test::llama3_8b()), 8'030'261'248);
  EXPECT_EQ(count(test::llama3_70b()), 70'553'706'496);
  EXPECT_EQ(count(test::gpt2_124m()), 124'439'808);
  EXPECT_EQ(count(test::gpt3_175b()), 174'604'259'328);
}

/// Model of a shipped recipe.
config::Model recipe_model(const std::string& name) {
  config::Parsed parsed =
      config::parse_all({"--config", colonnade::test::sources() + "/recipes/" + name + ".yaml"});
  config::derive(parsed.run);
  return parsed.run.model;
}

// Element counts of the checkpoints on Hugging Face.
TEST(GptParams, CountsOfRecipesMatchPublishedModels) {
  EXPECT_EQ(count(recipe_model("llama2-7b")), 6'738'415'616);
  EXPECT_EQ(count(recipe_model("llama2-13b")), 13'015'864'320);
  EXPECT_EQ(count(recipe_model("llama3-8b")), 8'030'261'248);
  EXPECT_EQ(count(recipe_model("llama3-70b")), 70'553'706'496);
  EXPECT_EQ(count(recipe_model("llama3-405b")), 405'853'388'800);
  EXPECT_EQ(count(recipe_model("mixtral-8x7b")), 46'702'792'704);
  EXPECT_EQ(count(recipe_model("mixtral-8x22b")), 140'620'634'112);
  EXPECT_EQ(count(recipe_model("qwen3-235b-a22b")), 235'093'634'560);
  EXPECT_EQ(count(recipe_model("gpt3-175b")), 174'604'259'328);
  config::Model deepseek = recipe_model("deepseek-v3");
  EXPECT_EQ(deepseek.mtp_num_layers, 1);
  deepseek.mtp_num_layers = 0;
  EXPECT_EQ(count(deepseek), 671'026'419'200);
}

// PyTorch's torch.nn.init.xavier_uniform_: bound sqrt(6 / (fan_in + fan_out)).
TEST(GptParams, XavierInitialValuesOfAllMatrices) {
  config::Model model = recipe_model("mixtral-8x7b");
  model.init_method_xavier_uniform = true;
  int matrices = 0;
  for (const ParamSpec& spec : model_params(model, {})) {
    if (spec.shape.size() < 2) {
      EXPECT_NE(spec.init.kind, InitKind::kUniform) << spec.name;
      continue;
    }
    const std::int64_t out = spec.shape[spec.shape.size() - 2], in = spec.shape.back();
    EXPECT_EQ(spec.init.kind, InitKind::kUniform) << spec.name;
    EXPECT_DOUBLE_EQ(spec.init.std, std::sqrt(6.0 / static_cast<double>(in + out))) << spec.name;
    ++matrices;
  }
  EXPECT_EQ(matrices, 32 * 5 + 2) << "qkv, projection, router and two expert matrices per layer, two tables";
  model.embedding_init_method_std = 0.5;
  const ParamSpec words = model_params(model, {}).front();
  EXPECT_EQ(words.init.kind, InitKind::kNormal);
  EXPECT_EQ(words.init.std, 0.5);
}

/// Elements of the word embeddings.
std::int64_t embedding_count(const config::Model& m) { return m.vocab_size * m.hidden_size; }

// The tables of arXiv 2508.10925 (billions) and of arXiv 2503.19786 (millions without embeddings).
TEST(GptParams, CountsOfGptOssAndGemma3MatchPublishedModels) {
  EXPECT_NEAR(static_cast<double>(count(test::gpt_oss(24, 32))), 20.91e9, 0.005e9);
  EXPECT_NEAR(static_cast<double>(count(test::gpt_oss(36, 128))), 116.83e9, 0.005e9);
  const config::Model one = test::gemma3(26, 1152, 6912, 4, 1), four = test::gemma3(34, 2560, 10240, 8, 4);
  EXPECT_EQ(count(one), 999'885'952);
  EXPECT_NEAR(static_cast<double>(count(one) - embedding_count(one)), 698e6, 0.5e6);
  EXPECT_NEAR(static_cast<double>(count(four) - embedding_count(four)), 3209e6, 0.5e6);
}

TEST(GptParams, NamesOfGptOssAndGemma) {
  config::Model m = test::gpt_oss(1, 4);
  EXPECT_THAT(
      names(m),
      testing::IsSupersetOf(
          {"decoder.layers.0.self_attention.core_attention.softmax_offset",
           "decoder.layers.0.self_attention.linear_proj.bias", "decoder.layers.0.mlp.router.bias",
           "decoder.layers.0.mlp.experts.linear_fc1.bias", "decoder.layers.0.mlp.experts.linear_fc2.bias"}));
  m.softmax_type = config::SoftmaxType::kOffByOne;
  EXPECT_THAT(names(m), testing::Not(testing::Contains(testing::HasSubstr("softmax_offset"))));
  EXPECT_THAT(names(test::gemma3(1, 8, 8, 2, 1)),
              testing::IsSupersetOf({"decoder.layers.0.post_attention_layernorm.weight",
                                     "decoder.layers.0.post_mlp_layernorm.weight"}));
}

// Megatron's names and shapes: projections around the experts, of which each is a linear layer of all tokens.
TEST(GptParams, LatentExpertsHaveProjections) {
  config::Model m = test::gpt_oss(1, 4);
  m.moe.routed_size = 320;
  const config::Parallel p = test::layout(2, 2, 1);
  const LayerParams layer = layer_params(m, p, 0);
  const auto& moe = mixer_of<MoeParams>(layer);
  using Shape = std::vector<std::int64_t>;
  EXPECT_EQ(moe.router.shape, (Shape{4, 2880}));
  EXPECT_EQ(moe.fc1.shape, (Shape{4, 2 * 2880, 320}));
  EXPECT_EQ(moe.fc2.shape, (Shape{4, 320, 2880}));
  EXPECT_EQ(moe.fc2_bias->shape, (Shape{4, 320}));
  EXPECT_EQ(moe.down->weight.name, "decoder.layers.0.mlp.fc1_latent_proj.weight");
  EXPECT_EQ(moe.down->weight.shape, (Shape{320, 2880}));
  EXPECT_EQ(moe.up->bias->name, "decoder.layers.0.mlp.fc2_latent_proj.bias");
  EXPECT_EQ(moe.up->weight.shape, (Shape{2880, 320}));
  EXPECT_LT(moe.up->weight.init.std, moe.down->weight.init.std) << "output layers start smaller";
  EXPECT_EQ(moe.down->weight.param_group, ParamGroup::kDense);
}

// Experts alternate gate and up in indivisible pairs; their fc2 biases are replicated over etp.
TEST(GptParams, GptOssIsShardedOverItsAxes) {
  config::Parallel p = test::layout(8, 2, 1);
  p.expert_model_parallel_size = 2;
  p.expert_tensor_parallel_size = 2;
  const config::Model m = test::gpt_oss(1, 4);
  const LayerParams layer = layer_params(m, p, 0);
  const auto& moe = mixer_of<MoeParams>(layer);
  Position at = Position::on(Axis::kEp, 1, 2);
  at.set(Axis::kEtp, 1, 2);
  const Shard fc1 = shard(*moe.fc1_bias, at), fc2 = shard(*moe.fc2_bias, at);
  EXPECT_EQ(fc1.shape, (std::vector<std::int64_t>{2, 2880}));
  EXPECT_EQ(fc1.boxes[0].global, (std::vector<std::int64_t>{2, 2880}));
  EXPECT_EQ(fc2.shape, (std::vector<std::int64_t>{2, 2880}));
  EXPECT_EQ(fc2.boxes[0].global, (std::vector<std::int64_t>{2, 0}));
  EXPECT_EQ(shard(*mixer_of<AttentionParams>(layer).sinks, Position::on(Axis::kTp, 1, 2)).boxes[0].global[0],
            32);
}

TEST(GptParams, WindowsFollowTheLayerPattern) {
  config::Model m = test::gemma3(6, 8, 8, 2, 1);
  m.window_size = 5;
  const auto windows = [&] {
    std::vector<std::int64_t> all;
    for (int i = 0; i < 6; ++i) all.push_back(attention_window(m, i));
    return all;
  };
  EXPECT_THAT(windows(), testing::Each(5));
  m.window_attn_skip_freq = "3";
  EXPECT_THAT(windows(), testing::ElementsAre(5, 5, 0, 5, 5, 0));
  m.window_attn_skip_freq = "[0,1]*3";
  EXPECT_THAT(windows(), testing::ElementsAre(0, 5, 0, 5, 0, 5));
  m.window_attn_skip_freq = "[0,1]";
  EXPECT_THROW(attention_window(m, 0), Error);
}

// Megatron's clip_qk: one scale per query group, and for multi-latent attention one per head.
TEST(GptParams, QkClipScalesRowsOfQueriesAndKeys) {
  config::Model m = test::gpt(1, 8, 2, 16);
  m.num_attention_heads = 4;
  m.num_query_groups = 2;
  m.kv_channels = 2;
  m.attention_output_gate = true;
  const QkClip clip{.alpha = 0.25, .threshold = 10};
  RowScales scales;
  add_qk_clip_scales(layer_params(m, {}, 0), m, clip, {40, 20, 10, -5}, scales);
  const double q = std::pow(0.25, 0.25), k = std::pow(0.25, 0.75);
  EXPECT_EQ(scales.at("decoder.layers.0.self_attention.linear_qkv.weight"),
            (std::vector<double>{q, q, q, q, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, k, k, 1, 1, 1, 1, 1, 1}));
  scales.clear();
  add_qk_clip_scales(layer_params(m, {}, 0), m, clip, {10, 9, INFINITY, NAN}, scales);
  EXPECT_TRUE(scales.empty());
  m.attention_output_gate = false;
  m.num_query_groups = 4;
  m.latent = {.enabled = true,
              .q_lora_rank = 0,
              .kv_lora_rank = 6,
              .qk_head_dim = 2,
              .qk_pos_emb_head_dim = 1,
              .v_head_dim = 3};
  m.num_attention_heads = m.num_query_groups = 2;
  add_qk_clip_scales(layer_params(m, {}, 0), m, clip, {40, 1}, scales);
  EXPECT_EQ(scales.at("decoder.layers.0.self_attention.linear_q_proj.weight"),
            (std::vector<double>{q, q, 0.25, 1, 1, 1}));
  EXPECT_EQ(scales.at("decoder.layers.0.self_attention.linear_kv_up_proj.weight"),
            (std::vector<double>{k, k, 1, 1, 1, 1, 1, 1, 1, 1}));
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

/// Elements of the parameters whose name contains `part`.
double elements(const config::Model& model, const std::string& part) {
  double sum = 0;
  for (const ParamSpec& spec : model_params(model, {}))
    if (spec.name.find(part) != std::string::npos) sum += static_cast<double>(spec.numel());
  return sum;
}

// Technical report (671 B parameters, 37 B active per token) and published config.
TEST(GptParams, CountsOfDeepSeekV3MatchThePublishedModel) {
  config::Model m = test::deepseek_v3();
  const double latent = 7168.0 * 1536 + 1536 + 1536 * 128 * 192 + 7168 * (512 + 64) + 512 +
                        512.0 * 128 * 256 + 128.0 * 128 * 7168;
  const double expert = 3.0 * 7168 * 2048;
  EXPECT_EQ(elements(m, ".self_attention."), 61 * latent);
  EXPECT_EQ(elements(m, ".mlp.experts."), 58 * 256 * expert);
  EXPECT_EQ(elements(m, ".mlp.shared_experts."), 58 * expert);
  EXPECT_EQ(elements(m, "router."), 58 * (256.0 * 7168 + 256));
  EXPECT_EQ(elements(m, ".mlp.linear_fc"), 3 * 3.0 * 7168 * 18432);
  const double all = elements(m, "");
  EXPECT_EQ(all, 671026419200.0);
  EXPECT_EQ(all - 58 * (256 - 8) * expert, 37552297472.0);
  m.mtp_num_layers = 1;  // shares the embeddings of the model
  EXPECT_EQ(elements(m, "mtp.layers.0."),
            2 * 7168.0 * 7168 + 5 * 7168 + latent + 257 * expert + 256.0 * 7168 + 256);
}

TEST(GptParams, LatentProjectionsAreReplicatedAndHeadsSharded) {
  config::Parallel parallel = test::layout(4, 4, 1);
  parallel.sequence_parallel = true;
  const auto attention = mixer_of<LatentAttentionParams>(layer_params(test::deepseek_v3(), parallel, 0));
  const Position position = Position::on(Axis::kTp, 3, 4);
  for (const ParamSpec* replicated :
       {&*attention.q_down, &attention.kv_down, &attention.q_norm->weight, &attention.kv_norm->weight}) {
    EXPECT_EQ(shard(*replicated, position).shape, replicated->shape) << replicated->name;
    EXPECT_EQ(replicated->partial, AxisSet{Axis::kTp}) << replicated->name;
  }
  EXPECT_EQ(shard(attention.q_up.weight, position).boxes.at(0).global[0], 96 * 192);
  EXPECT_EQ(shard(attention.kv_up.weight, position).boxes.at(0).global[0], 96 * 256);
  EXPECT_EQ(shard(attention.proj.weight, position).boxes.at(0).global[1], 96 * 128);
  parallel.sequence_parallel = false;
  const auto same = mixer_of<LatentAttentionParams>(layer_params(test::deepseek_v3(), parallel, 0));
  EXPECT_TRUE(same.kv_down.partial.empty() && same.q_down->partial.empty());
}

TEST(GptParams, ShardsFollowTheHeads) {
  const config::Model m = test::llama3_8b();  // 32 query heads, 8 groups of 128
  const LayerParams layer = layer_params(m, test::layout(16, 16, 1), 5);
  const Shard qkv = shard(mixer_of<AttentionParams>(layer).qkv.weight, Position::on(Axis::kTp, 3, 16));
  EXPECT_EQ(qkv.shape, (std::vector<std::int64_t>{4 * 128, 4096}));
  ASSERT_EQ(qkv.boxes.size(), 3U);
  EXPECT_EQ(qkv.boxes[0].global[0], 6 * 128);
  EXPECT_EQ(qkv.boxes[1].global[0], (32 + 1) * 128);
  EXPECT_EQ(qkv.boxes[1].holders, 2);
  EXPECT_FALSE(qkv.boxes[1].owner);
  EXPECT_EQ(qkv.boxes[2].global[0], (32 + 8 + 1) * 128);
  EXPECT_EQ(shard(mixer_of<AttentionParams>(layer).proj.weight, Position::on(Axis::kTp, 3, 16)).shape,
            (std::vector<std::int64_t>{4096, 256}));
  const Shard fc1 = shard(mixer_of<MlpParams>(layer).fc1.weight, Position::on(Axis::kTp, 1, 16));
  EXPECT_EQ(fc1.boxes.at(1).global[0], 14336 + 896);
  EXPECT_EQ(fc1.boxes.at(1).local[0], 896);
  EXPECT_EQ(shard(mixer_of<MlpParams>(layer).fc2.weight, Position::on(Axis::kTp, 1, 16)).shape,
            (std::vector<std::int64_t>{4096, 896}));
  EXPECT_THROW(shard(mixer_of<AttentionParams>(layer).qkv.weight, Position::on(Axis::kTp, 0, 12)),
               ConfigError);
}

TEST(GptParams, TheVocabularyIsPaddedInMemoryOnly) {
  const EmbeddingParams p = embedding_params(test::gpt2_124m(), test::layout(8, 8, 1));
  EXPECT_EQ(p.word.shape[0], 50257);
  EXPECT_EQ(shard(p.word, Position::on(Axis::kTp, 7, 8)).shape[0] * 8,
            51200);  // the next multiple of 128 * 8
  EXPECT_EQ(shard(p.word, Position::on(Axis::kTp, 7, 8)).boxes.at(0).length[0], 50257 - 7 * 6400);
}

/// Names of the parameters of one layer, embedding and head whose gradient is partial over tp.
std::set<std::string> partial(const config::Model& model, const config::Parallel& parallel) {
  std::set<std::string> all;
  for (const ParamSpec& spec : model_params(model, parallel)) {
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
  p.sequence_parallel = true;  // no effect with one tensor rank
  EXPECT_TRUE(partial(m, p).empty());
}

TEST(GptParams, InitializationAndWeightDecay) {
  config::Model m = test::gpt(8, 8, 2, 16);
  m.init_method_std = 0.04;
  m.embedding_init_method_std = 0.5;
  m.untie_embeddings_and_output_weights = true;
  for (const ParamSpec& spec : model_params(m, {})) {
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
  EXPECT_EQ(final_norm_params(m, {}).weight.init.kind, InitKind::kZero);
}

// Megatron's TransformerConfig: embeddings and the output layer keep their deviation.
TEST(GptParams, MupDividesInitialValuesByTheRootOfTheWidth) {
  config::Model m = test::gpt(8, 8, 2, 16);
  m.init_method_std = 0.04;
  m.untie_embeddings_and_output_weights = true;
  m.use_mup = true;
  m.mup_base_hidden_size = m.hidden_size / 4;
  for (const ParamSpec& spec : model_params(m, {})) {
    if (spec.shape.size() != 2) continue;
    const auto has = [&](const char* part) { return spec.name.find(part) != std::string::npos; };
    EXPECT_DOUBLE_EQ(spec.init.std, has("embedding") || has("output_layer") ? 0.04
                                    : has("proj") || has("fc2")             ? 0.005
                                                                            : 0.02)
        << spec.name;
  }
}

TEST(GptParams, RejectsAnIncompleteModel) {
  config::Model m = test::gpt2_124m();
  m.ffn_hidden_size = 0;
  EXPECT_THROW(layer_params(m, {}, 0), Error);
}

}  // namespace
}  // namespace colonnade::layout
