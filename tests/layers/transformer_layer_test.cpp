// Attention and transformer layers against plain tensor functions in float64, in every layout.
#include "colonnade/layers/transformer_layer.h"

#include "layers/sizes.h"
#include "layers/support.h"

namespace colonnade::layers {
namespace {

using at::Tensor;

config::Model model_of(std::int64_t heads, std::int64_t groups) {
  config::Model m;
  m.num_layers = 2;
  m.hidden_size = 24;
  m.ffn_hidden_size = 40;
  m.num_attention_heads = heads;
  m.num_query_groups = groups;
  m.kv_channels = 6;
  m.vocab_size = 16;
  m.max_position_embeddings = kSequence;
  m.hidden_dropout = m.attention_dropout = 0;
  return m;
}

config::Model llama(std::int64_t heads = 8, std::int64_t groups = 4) {
  config::Model m = model_of(heads, groups);
  m.position_embedding = config::PositionEmbedding::kRope;
  m.normalization = config::Normalization::kRmsNorm;
  m.activation = config::Activation::kSwiglu;
  m.add_bias_linear = false;
  return m;
}

config::Model gpt2() {
  config::Model m = model_of(4, 4);
  m.activation = config::Activation::kGeluTanh;
  return m;
}

std::shared_ptr<const ops::RotaryTable> table_of(const config::Model& m) {
  if (m.position_embedding != config::PositionEmbedding::kRope) return nullptr;
  return std::make_shared<const ops::RotaryTable>(ops::rotary_table(m, kSequence, test::device()));
}

/// Reference layer of LibTorch functions on unsharded tensors.
class Definition {
 public:
  Definition(const config::Model& m, const test::Weights& w) : m_(m), w_(w) {}

  [[nodiscard]] Tensor layer(const Tensor& x) const {
    const Tensor first = norm(x, "input_layernorm");
    const bool normed = m_.apply_residual_connection_post_layernorm;
    const Tensor h = (normed ? first : x) + with_bias(attention(first), "self_attention.linear_proj.bias");
    if (m_.parallel_residual) return h + with_bias(mlp(first), "mlp.linear_fc2.bias");
    const Tensor second = norm(h, "pre_mlp_layernorm");
    return (normed ? second : h) + with_bias(mlp(second), "mlp.linear_fc2.bias");
  }

  [[nodiscard]] Tensor attention(const Tensor& x) const {
    const std::int64_t d = m_.kv_channels;
    const std::int64_t n = m_.num_attention_heads;
    const std::int64_t g = m_.num_query_groups;
    const Tensor qkv =
        at::linear(x, weight("self_attention.linear_qkv.weight"), find("self_attention.linear_qkv.bias"));
    const std::int64_t gate = m_.attention_output_gate ? n * d : 0;
    const auto parts = qkv.split_with_sizes({n * d, gate, g * d, g * d}, -1);
    const Tensor q = rotated(head_norm(heads(parts[0]), "q_layernorm"));
    const Tensor k = rotated(head_norm(heads(parts[2]), "k_layernorm")).repeat_interleave(n / g, 1);
    const Tensor v = heads(parts[3]).repeat_interleave(n / g, 1);
    const double root = m_.use_mup ? std::pow(static_cast<double>(d), 0.75) / std::sqrt(3.0)
                                   : std::sqrt(static_cast<double>(d));
    const Tensor scores = at::matmul(q, k.transpose(-1, -2)) / root;
    const Tensor y = at::matmul(scores.masked_fill(hidden(), -1e300).softmax(-1), v);
    const Tensor joined = y.permute({2, 0, 1, 3}).reshape({x.size(0), x.size(1), n * d});
    return at::linear(gate > 0 ? joined * parts[1].sigmoid() : joined,
                      weight("self_attention.linear_proj.weight"));
  }

 private:
  [[nodiscard]] Tensor weight(const std::string& name) const { return w_.at("decoder.layers.0." + name); }
  [[nodiscard]] Tensor find(const std::string& name) const {
    const auto found = w_.find("decoder.layers.0." + name);
    return found == w_.end() ? Tensor() : found->second;
  }
  [[nodiscard]] Tensor with_bias(const Tensor& x, const std::string& bias) const {
    return find(bias).defined() ? x + find(bias) : x;
  }
  [[nodiscard]] Tensor norm(const Tensor& x, const std::string& name) const {
    const Tensor gamma = weight(name + ".weight");
    if (m_.normalization == config::Normalization::kRmsNorm)
      return x * (x.square().mean(-1, true) + m_.norm_epsilon).rsqrt() * gamma;
    return at::layer_norm(x, {x.size(-1)}, gamma, weight(name + ".bias"), m_.norm_epsilon);
  }
  [[nodiscard]] Tensor head_norm(const Tensor& x, const std::string& name) const {
    if (m_.qk_l2_norm) return x * (x.square().mean(-1, true) + m_.norm_epsilon).rsqrt();
    return m_.qk_layernorm ? norm(x, "self_attention." + name) : x;
  }
  [[nodiscard]] Tensor mlp(const Tensor& x) const {
    const Tensor up = at::linear(x, weight("mlp.linear_fc1.weight"), find("mlp.linear_fc1.bias"));
    if (!m_.is_gated()) return at::linear(at::gelu(up, "tanh"), weight("mlp.linear_fc2.weight"));
    const auto halves = up.chunk(2, -1);
    return at::linear(at::silu(halves[0]) * halves[1], weight("mlp.linear_fc2.weight"));
  }
  /// [s, b, n*d] -> [b, n, s, d]
  [[nodiscard]] Tensor heads(const Tensor& x) const {
    return x.reshape({x.size(0), x.size(1), -1, m_.kv_channels}).permute({1, 2, 0, 3});
  }
  [[nodiscard]] Tensor rotated(const Tensor& x) const {
    const auto table = table_of(m_);
    if (!table) return x;
    const Tensor cos = table->cos.to(at::kDouble);
    const Tensor sin = table->sin.to(at::kDouble);
    const auto halves = x.chunk(2, -1);
    return at::cat({halves[0] * cos - halves[1] * sin, halves[1] * cos + halves[0] * sin}, -1);
  }
  [[nodiscard]] Tensor hidden() const {
    const Tensor t = at::arange(kSequence, test::options(at::kLong));
    const Tensor back = t.unsqueeze(1) - t.unsqueeze(0);
    return m_.window_size > 0 ? (back < 0).logical_or(back > m_.window_size) : back < 0;
  }

  const config::Model& m_;
  const test::Weights& w_;
};

test::MakeBlock layer(const config::Model& model) {
  return [=](const config::Parallel& parallel, const Context& context) {
    return std::make_unique<TransformerLayer>(layout::layer_params(model, parallel, 0), model, context,
                                              table_of(model), 0);
  };
}

/// Attention of layer `number` with the parameters of the first layer.
test::MakeBlock attention(const config::Model& model, std::int64_t number = 0) {
  return [=](const config::Parallel& parallel, const Context& context) {
    const auto part = std::make_shared<Attention>(
        layout::mixer_of<layout::AttentionParams>(layout::layer_params(model, parallel, 0)), model, context,
        table_of(model), number);
    std::vector<tensor::Parameter*> all;
    part->add_parameters(all);
    if (part->proj.bias) std::erase(all, part->proj.bias.get());  // added by the caller
    return std::make_unique<test::FunctionBlock>(all, [=](const Tensor& x, const tensor::Pass& pass) {
      return part->forward({.normed = x, .encoded = {}}, pass);
    });
  };
}

std::vector<layout::ParamSpec> specs_of(const config::Model& model, bool attention_only) {
  std::vector<layout::ParamSpec> specs;
  const auto add = [&](const layout::ParamSpec& spec) {
    const bool mine =
        spec.name.find(".self_attention.") != std::string::npos && !spec.name.ends_with("proj.bias");
    if (mine || !attention_only) specs.push_back(spec);
  };
  layout::for_each(layout::layer_params(model, {}, 0), add);
  return specs;
}

tensor::Batch batch_of() {
  return tensor::Batch({{tensor::Field::kSamples, at::tensor({11, 400}, test::options(at::kLong))}});
}

Tensor input(const config::Model& m) { return test::named_random("x", {kSequence, 2, m.hidden_size}); }

void check_layer(const config::Model& model, const std::vector<test::TpLayout>& layouts = test::kTpLayouts) {
  const auto batch = batch_of();
  const auto expected =
      test::reference(specs_of(model, false), input(model),
                      [&](const Tensor& x, const test::Weights& w) { return Definition(model, w).layer(x); });
  test::expect_in_every_layout(layer(model), input(model), {.batch = batch}, expected, layouts);
}

void check_attention(const config::Model& model, std::int64_t number = 0) {
  const auto batch = batch_of();
  const auto expected = test::reference(
      specs_of(model, true), input(model),
      [&](const Tensor& x, const test::Weights& w) { return Definition(model, w).attention(x); });
  test::expect_in_every_layout(attention(model, number), input(model), {.batch = batch}, expected);
}

TEST(Attention, EqualsItsDefinition) { check_attention(gpt2()); }
TEST(Attention, GroupedQueriesWithRotaryEmbedding) { check_attention(llama()); }
TEST(Attention, MoreRanksThanGroups) {
  check_attention(llama(8, 2));
  check_attention(llama(4, 1));
}
TEST(Attention, QkNorms) {
  for (const std::int64_t groups : {4, 2}) {
    auto model = llama(8, groups);
    model.qk_layernorm = true;
    check_attention(model);
  }
}
TEST(Attention, QkL2Norm) {
  for (config::Model model : {gpt2(), llama(8, 4), llama(8, 2)}) {
    model.qk_l2_norm = true;
    model.norm_epsilon = 0.1;  // large enough that a wrong epsilon shows
    check_attention(model);
  }
}
TEST(Attention, MupScalesScores) {
  for (config::Model model : {gpt2(), llama()}) {
    model.use_mup = true;
    model.mup_base_head_dim = 3;
    model.mup_attn_scale_power = 0.75;
    check_attention(model);
  }
}
TEST(Attention, OutputGate) {
  for (config::Model model : {gpt2(), llama(8, 4), llama(8, 2)}) {
    model.attention_output_gate = true;
    check_attention(model);
    // Without rotary embedding a bias of all keys changes no weight, and has no gradient to compare.
    model.qk_layernorm = model.has_rotary();
    if (model.qk_layernorm) check_attention(model);
  }
}
TEST(Attention, SlidingWindow) {
  auto model = llama();
  model.window_size = 3;
  check_attention(model);
}
TEST(Attention, QkvBiasWithSharedKeyValueHeads) {
  auto model = llama(8, 2);
  model.add_qkv_bias = true;
  check_attention(model);
}

// The third layer divides queries by 3, which rounds, and multiplies their scores by it.
TEST(Attention, QueryKeyLayerScalingKeepsTheModel) {
  config::Model normed = llama(8, 2);
  normed.qk_layernorm = true;
  for (config::Model model : {gpt2(), llama(), normed}) {
    const auto batch = batch_of();
    const auto y = [&](std::int64_t number) {
      return test::on_one_rank(attention(model, number), input(model), {.batch = batch}).y;
    };
    const Tensor first = y(0), third = y(2);
    model.num_layers = 3;
    model.apply_query_key_layer_scaling = true;
    check_attention(model, 2);
    EXPECT_TRUE(at::equal(y(0), first)) << "the first layer divides by 1";
    EXPECT_FALSE(at::equal(y(2), third)) << "the flag reaches the scores";
  }
}

TEST(TransformerLayer, LlamaEqualsItsDefinition) { check_layer(llama()); }
TEST(TransformerLayer, Gpt2EqualsItsDefinition) { check_layer(gpt2()); }
TEST(TransformerLayer, ResidualsMayBeNormOutputs) {
  for (config::Model model : {gpt2(), llama()}) {
    model.apply_residual_connection_post_layernorm = true;
    check_layer(model);
  }
}
TEST(TransformerLayer, ParallelResidualSumsAttentionAndMlpOfOneNorm) {
  for (config::Model model : {gpt2(), llama()}) {
    model.parallel_residual = true;
    check_layer(model);
    model.apply_residual_connection_post_layernorm = true;
    check_layer(model);
  }
}
TEST(TransformerLayer, Hidden512) {
  auto model = llama(8, 2);
  model.hidden_size = 512;
  model.ffn_hidden_size = 640;
  model.kv_channels = 64;
  check_layer(model, {{1, false}, {4, true}});
}

// The input is so much larger than what a layer adds that a residual stream of 16 bits has several times
// these errors: in bf16 0.15 of what is added and 3e-3 of the gradient, in fp16 0.02 and 4e-4.
TEST(TransformerLayer, Fp32ResidualStreamIsNotRounded) {
  struct Case {
    test::TpLayout layout;
    double added, grad_x, weights;  ///< bounds
  };
  config::Model parallel = llama();
  parallel.parallel_residual = true;
  for (config::Model model : {gpt2(), llama(), parallel}) {
    model.fp32_residual_connection = true;
    const auto batch = batch_of();
    const Tensor x = 300 * input(model);
    const auto expected = test::reference(
        specs_of(model, false), x,
        [&](const Tensor& in, const test::Weights& w) { return Definition(model, w).layer(in); });
    for (const Case& c :
         {Case{{1, false, at::kBFloat16}, 0.05, 1e-3, 0.08}, Case{{2, true, at::kBFloat16}, 0.05, 1e-3, 0.08},
          Case{{2, false, at::kHalf}, 0.008, 1.5e-4, 0.02}}) {
      if (test::possible({c.layout})[0].tp != c.layout.tp) continue;
      test::run_layout(c.layout, layer(model), x.to(at::kFloat), {.batch = batch},
                       [&](const test::Expected& got, const comm::Group&) {
                         EXPECT_EQ(got.y.scalar_type(), at::kFloat);
                         EXPECT_LT(test::distance(got.y.to(at::kDouble) - x, expected.y - x), c.added);
                         EXPECT_LT(test::distance(got.grad_x, expected.grad_x), c.grad_x);
                         for (const auto& [name, grad] : expected.grads) {
                           EXPECT_LT(test::distance(got.grads.at(name), grad), c.weights) << name;
                         }
                       });
    }
  }
}

// The stream stays fp32 where it starts from a norm's output, and through dropout and biases.
TEST(TransformerLayer, Fp32ResidualStreamPassesThroughNormsAndDropout) {
  config::Model model = gpt2();
  model.fp32_residual_connection = true;
  for (const bool after_norm : {false, true})
    for (const double dropout : {0.0, 0.25}) {
      model.apply_residual_connection_post_layernorm = after_norm;
      model.hidden_dropout = dropout;
      const auto batch = batch_of();
      const auto run = [&](at::ScalarType type) {
        test::Expected one;
        const Tensor x = input(model).to(type == at::kDouble ? at::kDouble : at::kFloat);
        test::run_layout({1, false, type}, layer(model), x, {.batch = batch},
                         [&](const test::Expected& got, const comm::Group&) { one = got; });
        return one;
      };
      const test::Expected got = run(at::kBFloat16), expected = run(at::kDouble);
      EXPECT_EQ(got.y.scalar_type(), at::kFloat);
      EXPECT_EQ(got.grad_x.scalar_type(), at::kFloat);
      EXPECT_LT(test::distance(got.y, expected.y), 3e-2);
      EXPECT_LT(test::distance(got.grad_x, expected.grad_x), 6e-2);
    }
}

/// Dropout has no reference here: compares with the unsharded layer.
void check_dropout(config::Model model, double hidden, double attention) {
  model.hidden_dropout = hidden;
  model.attention_dropout = attention;
  const auto batch = batch_of();
  const auto expected = test::on_one_rank(layer(model), input(model), {.batch = batch});
  const auto without = test::on_one_rank(layer(model), input(model), {.batch = batch, .training = false});
  EXPECT_GT(test::distance(expected.y, without.y), 1e-2);
  test::expect_in_every_layout(layer(model), input(model), {.batch = batch}, expected);
}

TEST(TransformerLayer, HiddenDropoutIsTheSameInEveryLayout) {
  for (const bool parallel : {false, true})
    for (config::Model model : {gpt2(), llama()}) {
      model.parallel_residual = parallel;
      check_dropout(model, 0.25, 0);
    }
}
// Falcon drops the sum, with one mask: an element is dropped in both outputs or in neither.
TEST(TransformerLayer, ParallelResidualHasOneDropoutMask) {
  config::Model model = gpt2();
  model.parallel_residual = true;
  model.hidden_dropout = 0.25;
  const auto batch = batch_of();
  const Tensor x = input(model);
  const Tensor dropped = test::on_one_rank(layer(model), x, {.batch = batch}).y - x;
  const Tensor all = test::on_one_rank(layer(model), x, {.batch = batch, .training = false}).y - x;
  const Tensor kept = dropped.abs() > 1e-12;
  EXPECT_NEAR(kept.to(at::kDouble).mean().item<double>(), 0.75, 0.05);
  EXPECT_TRUE(at::allclose(dropped.masked_select(kept), all.masked_select(kept) / 0.75));
}
TEST(TransformerLayer, AttentionDropoutIsTheSameInEveryLayout) {
  check_dropout(gpt2(), 0, 0.25);
  check_dropout(llama(8, 2), 0, 0.25);
}

TEST(TransformerLayer, DropoutDiffersBetweenSamples) {
  auto model = gpt2();
  model.hidden_dropout = 0.25;
  const auto batch = batch_of();
  const tensor::Batch other({{tensor::Field::kSamples, at::tensor({11, 401}, test::options(at::kLong))}});
  const auto a = test::on_one_rank(layer(model), input(model), {.batch = batch});
  const auto b = test::on_one_rank(layer(model), input(model), {.batch = other});
  EXPECT_TRUE(at::equal(a.y.select(1, 0), b.y.select(1, 0)));
  EXPECT_GT(test::distance(a.y.select(1, 1), b.y.select(1, 1)), 1e-2);
}

}  // namespace
}  // namespace colonnade::layers
