// Attention within documents against softmax(q k^T) v with a mask in float64: outputs and gradients for
// windows, grouped keys, narrow values, soft caps, dropout and sinks; and what it saves.
#include "colonnade/ops/attention.h"
#include "ops/support.h"

namespace colonnade::ops {
namespace {

using at::Tensor;
using test::distance;

constexpr std::int64_t kDocRows = 2, kDocHeads = 4, kDocTokens = 150, kDocDim = 8;

struct DocumentCase {
  std::int64_t groups = 4, value = kDocDim, window = 0;
  bool sinks = false;
  double softcap = 0, dropout = 0;
  std::vector<std::int64_t> bounds = {0, 1, 7, 140, 150, 152, 290, 300};
};

/// bool [rows, 1, s, s], true: masked.
Tensor masked_pairs(const DocumentCase& c) {
  const Tensor masked = at::ones({kDocRows, 1, kDocTokens, kDocTokens}, at::kBool);
  auto visible = masked.accessor<bool, 4>();
  for (std::size_t i = 1; i < c.bounds.size(); ++i) {
    const std::int64_t row = c.bounds[i - 1] / kDocTokens, begin = c.bounds[i - 1] % kDocTokens;
    const std::int64_t end = begin + c.bounds[i] - c.bounds[i - 1];
    for (std::int64_t query = begin; query < end; ++query)
      for (std::int64_t key = begin; key <= query; ++key)
        visible[row][0][query][key] = c.window > 0 && key < query - c.window;
  }
  return masked.to(test::device());
}

Tensor definition(const Qkv& qkv, const DocumentCase& c, const Tensor& sinks, const DropoutKey& key) {
  const Tensor k = qkv.k.repeat_interleave(kDocHeads / c.groups, 1),
               v = qkv.v.repeat_interleave(kDocHeads / c.groups, 1);
  Tensor scores = at::matmul(qkv.q, k.transpose(-1, -2)) * 0.4;
  if (c.softcap > 0) scores = c.softcap * (scores / c.softcap).tanh();
  scores = scores.masked_fill(masked_pairs(c), -1e300);
  if (c.sinks)
    scores =
        at::cat({scores, sinks.view({1, kDocHeads, 1, 1}).expand({kDocRows, kDocHeads, kDocTokens, 1})}, -1);
  Tensor weights = scores.softmax(-1).narrow(-1, 0, kDocTokens);
  if (c.dropout > 0) weights = weights * attention_dropout(at::ones_like(weights), c.dropout, key);
  return at::matmul(weights, v).permute({2, 0, 1, 3}).reshape({kDocTokens, kDocRows, kDocHeads * c.value});
}

void check_documents_case(const DocumentCase& c, at::ScalarType type) {
  SCOPED_TRACE(fmt::format("groups {} value {} window {} sinks {} cap {} dropout {} {}", c.groups, c.value,
                           c.window, c.sinks, c.softcap, c.dropout, c10::toString(type)));
  const Qkv qkv{test::random({kDocRows, kDocHeads, kDocTokens, kDocDim}, type).set_requires_grad(true),
                test::random({kDocRows, c.groups, kDocTokens, kDocDim}, type).set_requires_grad(true),
                test::random({kDocRows, c.groups, kDocTokens, c.value}, type).set_requires_grad(true)};
  const auto copy = [](const Tensor& x) { return x.detach().to(at::kDouble).set_requires_grad(true); };
  const Qkv exact{copy(qkv.q), copy(qkv.k), copy(qkv.v)};
  const auto learned = test::parameter(test::random({kDocHeads}, type));
  learned->main_grad = at::zeros({kDocHeads}, learned->value.options().dtype(at::kDouble));
  const Tensor sinks = copy(learned->value);
  const DropoutKey key{.key = 77,
                       .samples = at::tensor({3, 900}, test::options(at::kLong)),
                       .sequence_length = kDocTokens,
                       .hidden_size = kDocHeads};
  AttentionArgs args{
      .scale = 0.4, .window = c.window, .documents = {c.bounds}, .dropout = c.dropout, .key = key};
  args.cu_seqlens = at::tensor(c.bounds, test::options(at::kInt));
  args.softcap = c.softcap;
  if (c.sinks) args.sinks.learned = learned.get();
  const Tensor y = attention(qkv, args), expected = definition(exact, c, sinks, key);
  EXPECT_LT(distance(y.detach(), expected.detach()), test::tolerance(type));
  const Tensor probe = test::random(y.sizes(), at::kDouble);
  const auto got = test::gradients(y, probe, {qkv.q, qkv.k, qkv.v});
  const auto wanted =
      test::gradients(expected, probe.to(type).to(at::kDouble), {exact.q, exact.k, exact.v, sinks});
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_LT(distance(got[i], wanted[i]), 4 * test::tolerance(type)) << "qkv"[i];
  }
  if (c.sinks) {
    EXPECT_LT(distance(learned->main_grad, wanted[3]), 4 * test::tolerance(type));
  }
}

TEST(AttentionDocuments, EqualTheDefinition) {
  for (const DocumentCase& c :
       {DocumentCase{}, DocumentCase{.groups = 2}, DocumentCase{.groups = 1, .value = 6},
        DocumentCase{.value = 16}, DocumentCase{.groups = 2, .window = 3}, DocumentCase{.window = 130},
        DocumentCase{.sinks = true}, DocumentCase{.groups = 2, .window = 20, .sinks = true},
        DocumentCase{.softcap = 0.7}, DocumentCase{.groups = 2, .window = 9, .softcap = 0.7, .dropout = 0.3},
        DocumentCase{.dropout = 0.2}, DocumentCase{.bounds = {0, 150, 300}}})
    for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16}) check_documents_case(c, type);
}

TEST(AttentionDocuments, OneDocumentPerRowEqualsCausalAttention) {
  const Qkv qkv{test::random({kDocRows, kDocHeads, kDocTokens, kDocDim}),
                test::random({kDocRows, 2, kDocTokens, kDocDim}),
                test::random({kDocRows, 2, kDocTokens, kDocDim})};
  const Tensor y = attention(qkv, {.scale = 0.4, .documents = {{0, 150, 300}}});
  EXPECT_LT(distance(y, attention(qkv, {.scale = 0.4})), 1e-14);
}

TEST(AttentionDocuments, RejectOtherBoundsBiasesAndCaches) {
  const Qkv qkv{test::random({2, 2, 5, 4}), test::random({2, 2, 5, 4}), test::random({2, 2, 5, 4})};
  EXPECT_THROW((void)attention(qkv, {.documents = {{0, 5, 9}}}), Error);
  EXPECT_THROW((void)attention(qkv, {.documents = {{0, 10}}}), Error);
  EXPECT_THROW((void)attention(qkv, {.causal = false, .documents = {{0, 5, 10}}}), Error);
  EXPECT_THROW((void)attention({qkv.q.narrow(2, 0, 1), qkv.k, qkv.v}, {.documents = {{0, 5, 10}}}), Error);
}

}  // namespace
}  // namespace colonnade::ops
