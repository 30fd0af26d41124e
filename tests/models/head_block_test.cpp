// GPT head with multi-token prediction against plain tensor functions in float64, in every layout.
#include "colonnade/models/gpt/head_block.h"

#include "layers/support.h"

namespace colonnade::models::gpt {
namespace {

using at::Tensor;
using tensor::Field;

constexpr std::int64_t kS = 8, kB = 2, kH = 16, kHeads = 4, kD = 5, kVocabulary = 13, kDepths = 2;
constexpr double kFactor = 0.3;
constexpr double kGradScale = 0.7;

constexpr double kMupLogits = 0.25, kMupEmbeddings = 3;  ///< of mup_model()

config::Model model_of(bool untied) {
  config::Model m;
  m.num_layers = 2;
  m.hidden_size = kH;
  m.ffn_hidden_size = 12;
  m.num_attention_heads = m.num_query_groups = kHeads;
  m.kv_channels = kD;
  m.vocab_size = kVocabulary;
  m.make_vocab_size_divisible_by = 1;
  m.max_position_embeddings = kS;
  m.position_embedding = config::PositionEmbedding::kNone;
  m.normalization = config::Normalization::kRmsNorm;
  m.activation = config::Activation::kSwiglu;
  m.add_bias_linear = false;
  m.untie_embeddings_and_output_weights = untied;
  m.hidden_dropout = m.attention_dropout = 0;
  m.mtp_num_layers = kDepths;
  m.mtp_loss_scaling_factor = kFactor;
  return m;
}

/// Four times as wide as its base model, with the scores of model_of().
config::Model mup_model(bool untied) {
  config::Model m = model_of(untied);
  m.use_mup = true;
  m.mup_base_hidden_size = kH / 4;
  m.mup_embedding_mult = kMupEmbeddings;
  m.mup_attn_scale_power = 0.5;
  return m;
}

/// Document number of every token of two sequences.
const std::vector<std::vector<int>> kOne(kB, std::vector<int>(kS, 0));
const std::vector<std::vector<int>> kSeveral = {{0, 0, 0, 1, 1, 1, 1, 2}, {0, 1, 2, 2, 2, 2, 2, 2}};

tensor::Batch batch_of(const std::vector<std::vector<int>>& documents, bool positions) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(3);
  const Tensor all = at::randint(0, kVocabulary, {kB, kS + 1}, generator, at::kLong);
  Tensor mask = at::ones({kB, kS}, at::kFloat);
  mask[0][2] = mask[1][6] = 0;
  Tensor ids = at::zeros({kB, kS}, at::kLong);
  layout::Documents bounds;
  for (std::int64_t b = 0; b < kB; ++b)
    for (std::int64_t i = 0; i < kS; ++i) {
      const auto& own = documents[static_cast<std::size_t>(b)];
      const auto of = [&](std::int64_t j) { return own[static_cast<std::size_t>(j)]; };
      if (i == 0 || of(i) != of(i - 1)) bounds.cu_seqlens.push_back(b * kS + i);
      for (std::int64_t j = 0; j < i; ++j)
        if (of(i) == of(j)) ids[b][i] += 1;
    }
  bounds.cu_seqlens.push_back(kB * kS);
  tensor::Batch batch({{Field::kTokens, all.narrow(1, 0, kS).contiguous()},
                       {Field::kLabels, all.narrow(1, 1, kS).contiguous()},
                       {Field::kLossMask, mask}});
  if (&documents != &kOne && positions) batch.set(Field::kPositionIds, ids);
  if (&documents != &kOne && !positions) batch.set_documents(bounds);
  return batch.to(test::device());
}

Tensor normed(const Tensor& x, const Tensor& gamma) {
  return x / (x.square().mean(-1, true) + 1e-5).sqrt() * gamma;
}

/// Cross-entropy [b, s] of hidden states [s, b, h].
Tensor entropy(const Tensor& hidden, const Tensor& output, const Tensor& labels) {
  const Tensor logits = at::matmul(hidden, output.t()).transpose(0, 1);
  return -logits.log_softmax(-1).gather(-1, labels.unsqueeze(-1)).squeeze(-1);
}

/// Pairs of different documents [b, 1, s, s]; undefined without documents.
Tensor masked_pairs(const tensor::Batch& batch) {
  if (!batch.documents().any()) return {};
  const Tensor number = at::zeros({kB * kS}, test::options(at::kLong));
  for (const std::int64_t start : batch.documents().cu_seqlens)
    if (start < kB * kS) number.narrow(0, start, kB * kS - start).add_(1);
  const Tensor of = number.view({kB, kS});
  return of.unsqueeze(2).ne(of.unsqueeze(1)).unsqueeze(1);
}

/// A layer without positions; `name` is the prefix of its weights.
Tensor layer(const Tensor& x, const test::Weights& w, const std::string& name, const Tensor& mask) {
  const auto heads = [](const Tensor& y) { return y.view({kS, kB, kHeads, kD}).permute({1, 2, 0, 3}); };
  const Tensor qkv = at::matmul(normed(x, w.at(name + "input_layernorm.weight")),
                                w.at(name + "self_attention.linear_qkv.weight").t());
  const auto parts = qkv.chunk(3, -1);
  Tensor hidden = at::ones({kS, kS}, test::options(at::kBool)).triu(1).view({1, 1, kS, kS});
  if (mask.defined()) hidden = hidden.logical_or(mask);
  const Tensor scores =
      (at::matmul(heads(parts[0]), heads(parts[1]).transpose(-1, -2)) / std::sqrt(double(kD)))
          .masked_fill(hidden, -1e300);
  const Tensor y =
      at::matmul(scores.softmax(-1), heads(parts[2])).permute({2, 0, 1, 3}).reshape({kS, kB, kHeads * kD});
  const Tensor h = x + at::matmul(y, w.at(name + "self_attention.linear_proj.weight").t());
  const auto up =
      at::matmul(normed(h, w.at(name + "pre_mlp_layernorm.weight")), w.at(name + "mlp.linear_fc1.weight").t())
          .chunk(2, -1);
  return h + at::matmul(at::silu(up[0]) * up[1], w.at(name + "mlp.linear_fc2.weight").t());
}

/// Mean cross-entropy of the k-th MTP layer over positions whose target is in the same document.
Tensor mtp_loss(std::int64_t k, Tensor& hidden, const test::Weights& w, const Tensor& output,
                const tensor::Batch& batch, const std::vector<std::vector<int>>& documents, bool mup) {
  const Tensor tokens = batch.at(Field::kTokens), labels = batch.at(Field::kLabels),
               mask = batch.at(Field::kLossMask);
  Tensor shifted = at::zeros_like(tokens), targets = at::zeros_like(labels), weight = at::zeros_like(mask);
  for (std::int64_t b = 0; b < kB; ++b)
    for (std::int64_t i = 0; i + k < kS; ++i) {
      const auto& own = documents[static_cast<std::size_t>(b)];
      shifted[b][i] = tokens[b][i + k];
      targets[b][i] = labels[b][i + k];
      if (own[static_cast<std::size_t>(i)] == own[static_cast<std::size_t>(i + k)])
        weight[b][i] = mask[b][i + k];
    }
  const std::string name = fmt::format("mtp.layers.{}.", k - 1);
  const Tensor embedded = w.at("embedding.word_embeddings.weight")
                              .index_select(0, shifted.view(-1))
                              .view({kB, kS, kH})
                              .transpose(0, 1) *
                          (mup ? kMupEmbeddings : 1);
  const Tensor both = at::cat(
      {normed(embedded, w.at(name + "enorm.weight")), normed(hidden, w.at(name + "hnorm.weight"))}, -1);
  const Tensor x = at::matmul(both, w.at(name + "eh_proj.weight").t());
  hidden = normed(layer(x, w, name + "transformer_layer.", masked_pairs(batch)),
                  w.at(name + "final_layernorm.weight"));
  const Tensor losses = entropy(hidden * (mup ? kMupLogits : 1), output, targets);
  return (losses * weight).sum() / weight.sum();
}

/// Final norm and MTP layers with a copy of the word embeddings.
std::unique_ptr<FinalStates> final_states(const config::Model& model, const config::Parallel& parallel,
                                          const layers::Context& context) {
  auto states = std::make_unique<FinalStates>(model, parallel, context);
  for (std::int64_t depth = 0; depth < model.mtp_num_layers; ++depth)
    states->add_mtp_layer(model, parallel, context, nullptr, nullptr);
  return states;
}

/// Final norm with MTP layers and head as in two stages.
class TwoStages final : public tensor::Block {
 public:
  TwoStages(const config::Model& model, const config::Parallel& parallel, const layers::Context& context) {
    auto states = final_states(model, parallel, context);
    tensor::Parameter* word = states->word();
    norm_ = std::make_unique<FinalBlock>(std::move(states));
    head_ = std::make_unique<HeadBlock>(model, parallel, context, nullptr, word);
  }
  Tensor forward(const Tensor& x, const tensor::Pass& pass) override {
    const Tensor states = norm_->forward(x, pass);
    EXPECT_EQ(states.size(0), (pass.training ? 1 + kDepths : 1) * x.size(0));
    return head_->forward(states, pass);
  }
  std::vector<tensor::Parameter*> parameters() override {
    auto all = norm_->parameters();
    for (tensor::Parameter* one : head_->parameters()) all.push_back(one);
    return all;
  }

 private:
  std::unique_ptr<FinalBlock> norm_;
  std::unique_ptr<HeadBlock> head_;
};

enum class Placement { kOneStage, kTwoStages };

test::MakeBlock head(const config::Model& model, Placement placement = Placement::kOneStage) {
  return [=](const config::Parallel& parallel,
             const layers::Context& context) -> std::unique_ptr<tensor::Block> {
    if (placement == Placement::kTwoStages) return std::make_unique<TwoStages>(model, parallel, context);
    auto states = final_states(model, parallel, context);
    return std::make_unique<HeadBlock>(model, parallel, context, std::move(states), nullptr);
  };
}

void check(const config::Model& m, const std::vector<std::vector<int>>& documents, bool positions,
           Placement placement = Placement::kOneStage) {
  const bool untied = m.untie_embeddings_and_output_weights;
  const tensor::Batch batch = batch_of(documents, positions);
  std::vector<layout::ParamSpec> specs;
  const auto add = [&](const layout::ParamSpec& spec) { specs.push_back(spec); };
  layout::for_each(layout::final_norm_params(m, {}), add);
  for (std::int64_t depth = 0; depth < m.mtp_num_layers; ++depth)
    layout::for_each(layout::mtp_layer_params(m, {}, depth), add);
  layout::for_each(layout::head_params(m, {}), add);
  specs.push_back(layout::embedding_params(m, {}).word);
  std::vector<double> means;
  const Tensor x = test::named_random("x", {kS, kB, kH});
  const auto expected = test::reference(specs, x, [&](const Tensor& in, const test::Weights& w) {
    const Tensor& output = w.at(untied ? "output_layer.weight" : "embedding.word_embeddings.weight");
    Tensor hidden = normed(in, w.at("decoder.final_layernorm.weight"));
    const Tensor y = entropy(hidden * (m.use_mup ? kMupLogits : 1), output, batch.at(Field::kLabels));
    Tensor mtp = at::zeros({}, y.options());
    for (std::int64_t k = 1; k <= kDepths; ++k) {
      const Tensor one = mtp_loss(k, hidden, w, output, batch, documents, m.use_mup);
      means.push_back(one.item<double>());
      mtp = mtp + one;
    }
    // Makes the gradient of `mtp` its weight for any probe of y.
    const Tensor weighed = mtp * (kFactor / kDepths * kGradScale);
    return y + (weighed - weighed.detach()) / test::probe_for(y).sum();
  });
  tensor::Report report;
  test::run_layout({}, head(m, placement), x, {.batch = batch, .grad_scale = kGradScale, .report = &report},
                   [](const test::Expected&, const comm::Group&) {});
  const auto mean = [&](const char* key) {
    return (report.metric_sums.at(key)[0] / report.metric_sums.at(key)[1]).item<double>();
  };
  EXPECT_NEAR(mean("mtp_1_loss"), means[0], 1e-6);
  EXPECT_NEAR(mean("mtp_2_loss"), means[1], 1e-6);
  EXPECT_NE(means[0], means[1]);
  test::expect_in_every_layout(head(m, placement), x, {.batch = batch, .grad_scale = kGradScale}, expected);
}

TEST(HeadBlock, MultiTokenPrediction) { check(model_of(/*untied=*/true), kOne, false); }

TEST(HeadBlock, MultiTokenPredictionWithTiedEmbeddings) { check(model_of(/*untied=*/false), kOne, false); }

TEST(HeadBlock, MultiTokenPredictionInTwoStages) {
  check(model_of(/*untied=*/true), kSeveral, /*positions=*/true, Placement::kTwoStages);
  check(model_of(/*untied=*/false), kOne, false, Placement::kTwoStages);
}

// Logits of every depth are scaled, and the embeddings that MTP layers look up.
TEST(HeadBlock, MupScalesLogitsAndEmbeddings) {
  check(mup_model(/*untied=*/true), kOne, false);
  check(mup_model(/*untied=*/false), kOne, false, Placement::kTwoStages);
}

TEST(HeadBlock, MasksTargetsOfOtherDocuments) {
  check(model_of(/*untied=*/true), kSeveral, /*positions=*/true);
  check(model_of(/*untied=*/true), kSeveral, /*positions=*/false);
}

TEST(HeadBlock, MultiTokenPredictionInTrainingOnly) {
  const config::Model m = model_of(true);
  const tensor::Batch batch = batch_of(kOne, false);
  const Tensor x = test::named_random("x", {kS, kB, kH});
  for (const Placement placement : {Placement::kOneStage, Placement::kTwoStages}) {
    tensor::Report report;
    test::run_layout({}, head(m, placement), x, {.batch = batch, .training = false, .report = &report},
                     [](const test::Expected& got, const comm::Group&) {
                       EXPECT_EQ(got.grads.at("mtp.layers.0.eh_proj.weight").abs().max().item<double>(), 0);
                     });
    EXPECT_TRUE(report.metric_sums.empty());
  }
}

}  // namespace
}  // namespace colonnade::models::gpt
