// Multi-latent attention against plain tensor functions in float64, in every layout.
#include "colonnade/layers/latent_attention.h"

#include "layers/support.h"

namespace colonnade::layers {
namespace {

using at::Tensor;

constexpr std::int64_t kS = 8, kB = 2;

config::Model latent_model(std::int64_t q_lora_rank, bool norms) {
  config::Model m;
  m.num_layers = 2;
  m.hidden_size = 24;
  m.ffn_hidden_size = 40;
  m.num_attention_heads = m.num_query_groups = 4;
  m.latent = {.enabled = true,
              .q_lora_rank = q_lora_rank,
              .kv_lora_rank = 9,
              .qk_head_dim = 6,
              .qk_pos_emb_head_dim = 4,
              .v_head_dim = 7};
  m.kv_channels = 10;
  m.vocab_size = 16;
  m.max_position_embeddings = kS;
  m.position_embedding = config::PositionEmbedding::kRope;
  m.normalization = config::Normalization::kRmsNorm;
  m.qk_layernorm = norms;
  m.add_bias_linear = false;
  m.hidden_dropout = m.attention_dropout = 0;
  return m;
}

std::shared_ptr<const ops::RotaryTable> latent_table(const config::Model& m) {
  return std::make_shared<const ops::RotaryTable>(ops::rotary_table(m, kS, test::device()));
}

/// Rotary embedding of x [s, b, n, 4]: channel pairs (a, b) as a + ib, multiplied by exp(i angle).
Tensor rotated(const Tensor& x, const config::Model& m) {
  const auto table = latent_table(m);
  const Tensor angle =
      at::complex(table->cos.to(at::kDouble), table->sin.to(at::kDouble)).view({kS, 1, 1, 2});
  return at::view_as_real(at::view_as_complex(x.unflatten(-1, {2, 2}).contiguous()) * angle).flatten(-2);
}

/// Definition of the DeepSeek-V2 paper, on unsharded tensors.
Tensor definition(const config::Model& m, const Tensor& x, const test::Weights& all, double scale) {
  const auto w = [&](const std::string& name) { return all.at("decoder.layers.0.self_attention." + name); };
  const auto normed = [&](const Tensor& latent, const std::string& name) {
    if (!m.qk_layernorm) return latent;
    return latent / (latent.square().mean(-1, true) + m.norm_epsilon).sqrt() * w(name + ".weight");
  };
  const Tensor q = (m.latent.q_lora_rank > 0
                        ? at::matmul(normed(at::matmul(x, w("linear_q_down_proj.weight").t()), "q_layernorm"),
                                     w("linear_q_up_proj.weight").t())
                        : at::matmul(x, w("linear_q_proj.weight").t()))
                       .view({kS, kB, 4, 10});
  const Tensor down = at::matmul(x, w("linear_kv_down_proj.weight").t());
  const Tensor kv =
      at::matmul(normed(down.narrow(-1, 0, 9), "kv_layernorm"), w("linear_kv_up_proj.weight").t())
          .view({kS, kB, 4, 13});
  const Tensor key = rotated(down.narrow(-1, 9, 4).unsqueeze(2), m).expand({kS, kB, 4, 4});
  const auto heads = [](const Tensor& y) { return y.permute({1, 2, 0, 3}); };  // [b, n, s, d]
  const Tensor queries = heads(at::cat({q.narrow(-1, 0, 6), rotated(q.narrow(-1, 6, 4), m)}, -1));
  const Tensor keys = heads(at::cat({kv.narrow(-1, 0, 6), key}, -1));
  const Tensor later = at::ones({kS, kS}, test::options(at::kBool)).triu(1);
  const Tensor scores = (at::matmul(queries, keys.transpose(-1, -2)) * scale).masked_fill(later, -1e300);
  const Tensor y = at::matmul(scores.softmax(-1), heads(kv.narrow(-1, 6, 7)));
  return at::matmul(y.permute({2, 0, 1, 3}).reshape({kS, kB, 28}), w("linear_proj.weight").t());
}

test::MakeBlock latent_attention(const config::Model& model, std::int64_t number) {
  return [=](const config::Parallel& parallel, const Context& context) {
    const auto params = layout::layer_params(model, parallel, 0);
    const auto part = std::make_shared<LatentAttention>(
        layout::mixer_of<layout::LatentAttentionParams>(params), model, context, latent_table(model), number);
    std::vector<tensor::Parameter*> all;
    part->add_parameters(all);
    return std::make_unique<test::FunctionBlock>(all, [=](const Tensor& x, const tensor::Pass& pass) {
      return part->forward({.normed = x, .encoded = {}}, pass);
    });
  };
}

void check_latent(const config::Model& m, double scale, std::int64_t number = 0) {
  std::vector<layout::ParamSpec> specs;
  layout::for_each(layout::layer_params(m, {}, 0), [&](const layout::ParamSpec& spec) {
    if (spec.name.find(".self_attention.") != std::string::npos) specs.push_back(spec);
  });
  const Tensor x = test::named_random("x", {kS, kB, m.hidden_size});
  const auto expected = test::reference(
      specs, x, [&](const Tensor& in, const test::Weights& w) { return definition(m, in, w, scale); });
  const tensor::Batch batch;
  test::expect_in_every_layout(latent_attention(m, number), x, {.batch = batch}, expected);
}

TEST(LatentAttention, EqualsItsDefinitionWithLatentNorms) {
  check_latent(latent_model(11, true), 1 / std::sqrt(10.0));
}

TEST(LatentAttention, EqualsItsDefinitionWithoutQueryLatentAndNorms) {
  check_latent(latent_model(0, false), 1 / std::sqrt(10.0));
}

TEST(LatentAttention, ScalesScoresForYarn) {
  config::Model m = latent_model(11, true);
  m.position_embedding = config::PositionEmbedding::kYarn;
  m.rotary_scaling_factor = 4;
  m.mscale_all_dim = 0.7;
  m.yarn_original_max_position_embeddings = 32;
  const double mscale = 1 + 0.07 * std::log(4.0);
  check_latent(m, mscale * mscale / std::sqrt(10.0));
}

// Megatron's MLASelfAttention scales scores by the factor whatever --rope-type is.
TEST(LatentAttention, ScalesScoresWithPlainRotaryEmbeddingToo) {
  config::Model m = latent_model(11, true);
  m.rope_type = config::RopeType::kRope;
  m.rotary_scaling_factor = 4;
  m.mscale_all_dim = 0.7;
  const double mscale = 1 + 0.07 * std::log(4.0);
  check_latent(m, mscale * mscale / std::sqrt(10.0));
}

TEST(LatentAttention, QueryKeyLayerScalingKeepsTheModel) {
  config::Model m = latent_model(0, false);
  m.num_layers = 3;
  const Tensor x = test::named_random("x", {kS, kB, m.hidden_size});
  const tensor::Batch batch;
  const auto y = [&] { return test::on_one_rank(latent_attention(m, 2), x, {.batch = batch}).y; };
  const Tensor without = y();
  m.apply_query_key_layer_scaling = true;
  check_latent(m, 1 / std::sqrt(10.0), 2);
  EXPECT_FALSE(at::equal(y(), without)) << "the flag reaches the scores";
}

}  // namespace
}  // namespace colonnade::layers
