// Embedding against float64 table lookups, in every layout.
#include "colonnade/layers/embedding.h"

#include "layers/support.h"

namespace colonnade::layers {
namespace {

using at::Tensor;

config::Model embedding_model(bool positions, double dropout) {
  config::Model m;
  m.num_layers = 1;
  m.hidden_size = m.ffn_hidden_size = m.kv_channels = 12;
  m.num_attention_heads = m.num_query_groups = 1;
  m.vocab_size = 37;
  m.make_vocab_size_divisible_by = 1;
  m.max_position_embeddings = 10;
  m.position_embedding =
      positions ? config::PositionEmbedding::kLearnedAbsolute : config::PositionEmbedding::kRope;
  m.hidden_dropout = dropout;
  return m;
}

test::MakeBlock embedding(const config::Model& model) {
  return [=](const config::Parallel& parallel, const Context& context) {
    const auto layer = std::make_shared<Embedding>(layout::embedding_params(model, parallel), model, context);
    std::vector<tensor::Parameter*> all;
    layer->add_parameters(all);
    return std::make_unique<test::FunctionBlock>(
        all, [=](const Tensor&, const tensor::Pass& pass) { return layer->forward(pass); });
  };
}

/// Tokens [b, s] with repeats, including the first and last id of the vocabulary.
tensor::Batch batch_with(const Tensor& position_ids) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(3);
  Tensor tokens = at::randint(0, 37, {2, 8}, generator, at::kLong);
  tokens[0][0] = tokens[1][7] = 36;
  tokens[0][1] = tokens[0][2] = 0;
  tensor::Batch batch({{tensor::Field::kTokens, tokens.to(test::device())},
                       {tensor::Field::kSamples, at::tensor({5, 6}, test::options(at::kLong))}});
  if (position_ids.defined()) batch.set(tensor::Field::kPositionIds, position_ids);
  return batch;
}

void expect_lookups(const config::Model& model, const tensor::Batch& batch, const Tensor& places) {
  std::vector<layout::ParamSpec> specs;
  const auto params = layout::embedding_params(model, {});
  layout::for_each(params, [&](const layout::ParamSpec& spec) { specs.push_back(spec); });
  const auto expected = test::reference(specs, {}, [&](const Tensor&, const test::Weights& w) {
    Tensor rows = w.at(params.word.name).index({batch.at(tensor::Field::kTokens)});
    if (params.position) rows = rows + w.at(params.position->name).index({places});
    if (model.use_mup) rows = rows * model.mup_embedding_mult;
    return rows.transpose(0, 1).contiguous();
  });
  test::expect_in_every_layout(embedding(model), {}, {.batch = batch}, expected);
}

TEST(Embedding, LooksUpTheFullTable) { expect_lookups(embedding_model(false, 0), batch_with({}), {}); }

TEST(Embedding, AddsLearnedPositions) {
  expect_lookups(embedding_model(true, 0), batch_with({}),
                 at::arange(8, test::options(at::kLong)).expand({2, 8}));
}

TEST(Embedding, MupScalesWordsAndPositions) {
  config::Model model = embedding_model(true, 0);
  model.mup_embedding_mult = 2.5;
  for (const bool mup : {false, true}) {
    model.use_mup = mup;
    expect_lookups(model, batch_with({}), at::arange(8, test::options(at::kLong)).expand({2, 8}));
  }
}

TEST(Embedding, AddsGivenPositions) {
  const Tensor places =
      at::tensor({0, 1, 2, 0, 1, 2, 3, 4, 9, 8, 7, 0, 1, 0, 1, 2}, test::options(at::kLong)).view({2, 8});
  expect_lookups(embedding_model(true, 0), batch_with(places), places);
}

TEST(Embedding, DropsTheSameElementsInEveryLayout) {
  const auto model = embedding_model(true, 0.3);
  const auto batch = batch_with({});
  const auto expected = test::on_one_rank(embedding(model), {}, {.batch = batch});
  const double kept = (expected.y != 0).to(at::kDouble).mean().item<double>();
  EXPECT_NEAR(kept, 0.7, 0.12);
  test::expect_in_every_layout(embedding(model), {}, {.batch = batch}, expected);
}

TEST(Embedding, HasNoDropoutInEvaluation) {
  const auto batch = batch_with({});
  const tensor::Pass pass{.batch = batch, .training = false};
  const auto got = test::on_one_rank(embedding(embedding_model(true, 0.3)), {}, pass);
  const auto expected = test::on_one_rank(embedding(embedding_model(true, 0)), {}, pass);
  EXPECT_TRUE(at::equal(got.y, expected.y));
}

}  // namespace
}  // namespace colonnade::layers
