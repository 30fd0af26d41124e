// Output layer and cross-entropy against float64 log-softmax over the full vocabulary.
#include "colonnade/layers/vocab_loss.h"

#include "layers/support.h"

namespace colonnade::layers {
namespace {

using at::Tensor;

config::Model loss_model(std::int64_t vocabulary, std::int64_t divisor, std::int64_t hidden) {
  config::Model m;
  m.num_layers = 1;
  m.hidden_size = hidden;
  m.ffn_hidden_size = hidden;
  m.num_attention_heads = m.num_query_groups = 1;
  m.kv_channels = hidden;
  m.vocab_size = vocabulary;
  m.make_vocab_size_divisible_by = divisor;
  return m;
}

/// Labels [b, s] over the full vocabulary, including the first and last id, some masked.
Tensor labels_of(std::int64_t b, std::int64_t s, std::int64_t vocabulary) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(5);
  Tensor labels = at::randint(0, vocabulary, {b, s}, generator, at::kLong);
  labels[0][0] = 0;
  labels[0][1] = vocabulary - 1;
  labels[1][2] = -100;
  labels[1][5] = -1;
  return labels.to(test::device());
}

test::MakeBlock head(const config::Model& model, Tensor labels, double cap) {
  return [=](const config::Parallel& parallel, const Context& context) {
    const std::shared_ptr<tensor::Parameter> w = context.make(layout::embedding_params(model, parallel).word);
    return std::make_unique<test::FunctionBlock>(
        std::vector<tensor::Parameter*>{w.get()}, [=](const Tensor& x, const tensor::Pass&) {
          return vocab_loss(x, {.weight = w.get(), .softcap = cap}, labels, context.tp,
                            context.sequence_parallel);
        });
  };
}

Tensor soft_capped(const Tensor& logits, double cap) {
  return cap > 0 ? cap * (logits / cap).tanh() : logits;
}

void check(std::int64_t vocabulary, std::int64_t divisor, std::int64_t hidden, double size, double cap = 0) {
  SCOPED_TRACE(fmt::format("vocabulary {} divisor {} cap {}", vocabulary, divisor, cap));
  const auto model = loss_model(vocabulary, divisor, hidden);
  const Tensor labels = labels_of(2, 8, vocabulary);
  const Tensor x = size * test::named_random("x", {8, 2, hidden});
  const auto spec = layout::embedding_params(model, {}).word;
  const auto expected = test::reference({spec}, x, [&](const Tensor& in, const test::Weights& w) {
    const Tensor logits = soft_capped(at::matmul(in, w.at(spec.name).t()).transpose(0, 1), cap);
    const Tensor picked = logits.log_softmax(-1).gather(-1, labels.clamp_min(0).unsqueeze(-1)).squeeze(-1);
    return (-picked).masked_fill(labels < 0, 0);
  });
  const tensor::Batch batch;
  test::expect_in_every_layout(head(model, labels, cap), x, {.batch = batch}, expected);
}

TEST(VocabLoss, EqualsCrossEntropyOverTheFullVocabulary) { check(128, 1, 12, 1); }

TEST(VocabLoss, PadsOddVocabularies) {
  for (const std::int64_t vocabulary : {131, 133, 61}) check(vocabulary, 1, 12, 1);
}

TEST(VocabLoss, SupportsRanksWithOnlyPadding) { check(5, 4, 12, 1); }

TEST(VocabLoss, LargeLogitsDoNotOverflow) { check(131, 1, 12, 400); }

TEST(VocabLoss, CapsLogitsOnEveryRank) {
  for (const std::int64_t vocabulary : {128, 131, 5}) check(vocabulary, 4, 12, 3, 1.5);
}

TEST(VocabLoss, Hidden512) { check(1031, 128, 512, 1); }

void expect_logits(double cap) {
  const auto model = loss_model(131, 1, 12);
  const Tensor x = test::named_random("x", {8, 2, 12});
  const auto spec = layout::embedding_params(model, {}).word;
  const Tensor expected = soft_capped(at::matmul(x, test::full_value(spec).t()).transpose(0, 1), cap);
  for (const test::TpLayout& tp_layout : test::possible(test::kTpLayouts))
    comm::run_ranks(
        test::tensor_parallel(tp_layout.tp, tp_layout.sequence_parallel), [&](comm::Communicators& ranks) {
          const auto parallel = test::tensor_parallel(tp_layout.tp, tp_layout.sequence_parallel);
          const Context context{.tp = ranks.group({layout::Axis::kTp}),
                                .sequence_parallel = tp_layout.sequence_parallel,
                                .options = test::options(at::kDouble)};
          const auto w = context.make(layout::embedding_params(model, parallel).word);
          test::randomize({w.get()});
          const Tensor mine = tp_layout.sequence_parallel ? x.chunk(tp_layout.tp, 0)[context.tp.rank()] : x;
          const Tensor logits = vocab_logits(mine, {.weight = w.get(), .softcap = cap}, context.tp,
                                             tp_layout.sequence_parallel);
          EXPECT_LT(test::distance(logits, expected), 1e-12) << "tp " << tp_layout.tp;
        });
}

TEST(VocabLoss, LogitsCoverTheFullVocabulary) {
  for (const double cap : {0.0, 0.5}) expect_logits(cap);
}

}  // namespace
}  // namespace colonnade::layers
