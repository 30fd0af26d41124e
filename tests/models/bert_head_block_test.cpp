// BERT's head against plain tensor functions in float64, in every layout.
#include "colonnade/models/bert/head_block.h"

#include "layers/support.h"

namespace colonnade::models::bert {
namespace {

using at::Tensor;

constexpr std::int64_t kS = 8, kB = 3, kH = 16, kVocabulary = 13;

config::Model model_of(bool untied, bool binary) {
  config::Model m;
  m.num_layers = 2;
  m.hidden_size = kH;
  m.ffn_hidden_size = 12;
  m.num_attention_heads = m.num_query_groups = 4;
  m.kv_channels = 5;
  m.vocab_size = kVocabulary;
  m.make_vocab_size_divisible_by = 1;
  m.max_position_embeddings = kS;
  m.untie_embeddings_and_output_weights = untied;
  m.hidden_dropout = m.attention_dropout = 0;
  m.bidirectional = m.lm_head_transform = true;
  m.output_layer_bias = true;
  m.bert_binary_head = binary;
  return m;
}

tensor::Batch batch_of() {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(3);
  tensor::Batch batch({{tensor::Field::kLabels, at::randint(0, kVocabulary, {kB, kS}, generator, at::kLong)},
                       {tensor::Field::kSwapped, at::arange(kB, at::kLong) % 2}});
  return batch.to(test::device());
}

test::MakeBlock head(const config::Model& model) {
  return [=](const config::Parallel& parallel,
             const layers::Context& context) -> std::unique_ptr<tensor::Block> {
    return std::make_unique<HeadBlock>(model, parallel, context,
                                       std::make_unique<gpt::FinalStates>(model, parallel, context), nullptr);
  };
}

Tensor normed(const Tensor& x, const test::Weights& w, const std::string& name) {
  return at::layer_norm(x, {kH}, w.at(name + ".weight"), w.at(name + ".bias"), 1e-5);
}

Tensor dense(const Tensor& x, const test::Weights& w, const std::string& name) {
  return at::linear(x, w.at(name + ".weight"), w.at(name + ".bias"));
}

/// Cross-entropy of logits [..., classes].
Tensor entropy(const Tensor& logits, const Tensor& labels) {
  return -logits.log_softmax(-1).gather(-1, labels.unsqueeze(-1)).squeeze(-1);
}

void check(bool untied, bool binary) {
  const config::Model m = model_of(untied, binary);
  const tensor::Batch batch = batch_of();
  std::vector<layout::ParamSpec> specs;
  const auto add = [&](const layout::ParamSpec& spec) { specs.push_back(spec); };
  layout::for_each(layout::final_norm_params(m, {}), add);
  layout::for_each(layout::head_params(m, {}), add);
  if (!untied) specs.push_back(layout::embedding_params(m, {}).word);
  const Tensor x = test::named_random("x", {kS, kB, kH});
  const auto expected = test::reference(specs, x, [&](const Tensor& in, const test::Weights& w) {
    const Tensor h = normed(in, w, "encoder.final_layernorm");
    const Tensor t = normed(at::gelu(dense(h, w, "lm_head.dense")), w, "lm_head.layer_norm");
    const Tensor& table = w.at(untied ? "output_layer.weight" : "embedding.word_embeddings.weight");
    const Tensor logits = at::linear(t, table, w.at("output_layer.bias")).transpose(0, 1);
    const Tensor losses = entropy(logits, batch.at(tensor::Field::kLabels));
    if (!binary) return losses;
    const Tensor order = entropy(dense(dense(h[0], w, "pooler.dense").tanh(), w, "binary_head"),
                                 batch.at(tensor::Field::kSwapped));
    return at::cat({losses, order.unsqueeze(1)}, 1);
  });
  EXPECT_EQ(expected.y.size(1), kS + (binary ? 1 : 0));
  test::expect_in_every_layout(head(m), x, {.batch = batch}, expected);
}

TEST(BertHeadBlock, TokenAndSentenceOrderLosses) {
  check(/*untied=*/false, /*binary=*/true);
  check(/*untied=*/true, /*binary=*/true);
}

TEST(BertHeadBlock, PaddingRowsHaveNoSentenceOrderLoss) {
  const config::Model m = model_of(/*untied=*/true, /*binary=*/true);
  const Tensor x = test::named_random("x", {kS, kB, kH});
  tensor::Batch batch = batch_of();
  const Tensor all = test::on_one_rank(head(m), x, {.batch = batch, .training = false}).y;
  const Tensor labels = batch.at(tensor::Field::kSwapped).clone();
  labels[kB - 1] = -100;
  batch.set(tensor::Field::kSwapped, labels);
  const Tensor expected = all.clone();
  expected[kB - 1][kS] = 0;
  const Tensor got = test::on_one_rank(head(m), x, {.batch = batch, .training = false}).y;
  EXPECT_TRUE(at::equal(got, expected));
  EXPECT_GT(all[kB - 1][kS].item<double>(), 0);
}

TEST(BertHeadBlock, TokenLossesOnly) {
  check(/*untied=*/false, /*binary=*/false);
  check(/*untied=*/true, /*binary=*/false);
}

}  // namespace
}  // namespace colonnade::models::bert
