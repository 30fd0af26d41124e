// Attention against softmax(q k^T) v in float64, for every kind of mask and grouping.
#include "colonnade/ops/attention.h"

#include "colonnade/base/error.h"
#include "ops/support.h"

namespace colonnade::ops {
namespace {

using at::Tensor;
using test::distance;

struct Case {
  std::int64_t b = 2, n = 4, g = 4, s = 17, t = 17;
  bool causal = true;
  std::int64_t window = 0;
  bool mask = false;
  std::int64_t mask_batch = 1;
};

Tensor hidden(const Case& c, const Tensor& mask) {
  const Tensor query = at::arange(c.t - c.s, c.t, test::options(at::kLong)).unsqueeze(1);
  const Tensor key = at::arange(c.t, test::options(at::kLong)).unsqueeze(0);
  Tensor all = at::zeros({1, 1, c.s, c.t}, test::options(at::kBool));
  if (c.causal) all = all.logical_or(key > query);
  if (c.window > 0) all = all.logical_or(query - key > c.window);
  return mask.defined() ? all.logical_or(mask) : all;
}

Tensor definition(const Qkv& qkv, const Case& c, double scale, const Tensor& mask, const Tensor& keep) {
  const Tensor k = qkv.k.repeat_interleave(c.n / c.g, 1);
  const Tensor v = qkv.v.repeat_interleave(c.n / c.g, 1);
  const Tensor scores = (at::matmul(qkv.q, k.transpose(-1, -2)) * scale).masked_fill(hidden(c, mask), -1e300);
  Tensor p = scores.softmax(-1);
  if (keep.defined()) p = p * keep;
  return at::matmul(p, v).permute({2, 0, 1, 3}).reshape({c.s, c.b, -1});
}

void check(const Case& c, at::ScalarType type) {
  SCOPED_TRACE(fmt::format("b {} n {} g {} s {} t {} causal {} window {} mask {} {}", c.b, c.n, c.g, c.s, c.t,
                           c.causal, c.window, c.mask ? c.mask_batch : 0, c10::toString(type)));
  const Qkv qkv{test::random({c.b, c.n, c.s, 8}, type).set_requires_grad(true),
                test::random({c.b, c.g, c.t, 8}, type).set_requires_grad(true),
                test::random({c.b, c.g, c.t, 8}, type).set_requires_grad(true)};
  const auto copy = [](const Tensor& x) { return x.detach().to(at::kDouble).set_requires_grad(true); };
  const Qkv ref_in{copy(qkv.q), copy(qkv.k), copy(qkv.v)};
  AttentionArgs args{.scale = 0.4, .causal = c.causal, .window = c.window};
  if (c.mask) {
    args.mask = at::rand({c.mask_batch, 1, c.s, c.t}, test::options(at::kFloat)) < 0.3;
    args.mask.diagonal(c.t - c.s, -2, -1).fill_(false);
  }
  const Tensor ref = definition(ref_in, c, 0.4, args.mask, {});
  const Tensor probe = test::random(ref.sizes());
  const auto expected = test::gradients(ref, probe, {ref_in.q, ref_in.k, ref_in.v});
  const Tensor y = attention(qkv, args);
  EXPECT_LT(distance(y, ref), test::tolerance(type));
  const auto got = test::gradients(y, probe, {qkv.q, qkv.k, qkv.v});
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_LT(distance(got[i], expected[i]), 2 * test::tolerance(type)) << i;
}

TEST(Attention, FollowsItsDefinition) {
  at::manual_seed(1);
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16})
    for (const std::int64_t g : {4, 2, 1}) {
      check({.g = g}, type);
      check({.g = g, .causal = false}, type);
      check({.g = g, .window = 3}, type);
      check({.g = g, .window = 40}, type);
      check({.g = g, .mask = true}, type);
      check({.g = g, .mask = true, .mask_batch = 2}, type);
      check({.b = 1, .g = g, .s = 65, .t = 65}, type);
    }
}

TEST(Attention, AlignsFewQueriesAtTheEndOfACache) {
  at::manual_seed(2);
  for (const std::int64_t s : {1, 3}) {
    check({.s = s, .t = 9}, at::kDouble);
    check({.g = 2, .s = s, .t = 9}, at::kFloat);
    check({.g = 2, .s = s, .t = 9, .window = 4}, at::kDouble);
  }
}

TEST(Attention, DropsProbabilitiesByPosition) {
  at::manual_seed(3);
  const Case c{.g = 2};
  const auto make = [](at::IntArrayRef shape) { return test::random(shape).set_requires_grad(true); };
  const Qkv qkv{make({2, 4, 17, 8}), make({2, 2, 17, 8}), make({2, 2, 17, 8})};
  AttentionArgs args{.scale = 0.4, .dropout = 0.3};
  args.key = {.key = 7,
              .samples = at::tensor({5, 11}, test::options(at::kLong)),
              .sequence_length = 17,
              .hidden_size = 4};
  const Tensor keep = attention_dropout(at::ones({2, 4, 17, 17}, test::options(at::kDouble)), 0.3, args.key);
  const Tensor y = attention(qkv, args);
  const Tensor ref = definition(qkv, c, 0.4, {}, keep);
  const Tensor probe = test::random(ref.sizes());
  EXPECT_LT(distance(y, ref), 1e-12);
  const auto expected = test::gradients(ref, probe, {qkv.q, qkv.k, qkv.v});
  const auto got = test::gradients(y, probe, {qkv.q, qkv.k, qkv.v});
  for (std::size_t i = 0; i < 3; ++i) EXPECT_LT(distance(got[i], expected[i]), 1e-12);

  // A rank with heads 2 and 3 of one sample drops the same elements.
  DropoutKey part = args.key;
  part.samples = at::tensor({11}, test::options(at::kLong));
  part.hidden_offset = 2;
  const Tensor local = attention_dropout(at::ones({1, 2, 17, 17}, test::options(at::kDouble)), 0.3, part);
  EXPECT_TRUE(at::equal(local, keep.narrow(0, 1, 1).narrow(1, 2, 2)));
}

TEST(Attention, RefusesShapesThatDoNotFit) {
  const Qkv qkv{test::random({1, 4, 5, 8}), test::random({1, 3, 5, 8}), test::random({1, 3, 5, 8})};
  EXPECT_THROW(attention(qkv, {}), Error);
  const Qkv shorter{test::random({1, 4, 5, 8}), test::random({1, 4, 4, 8}), test::random({1, 4, 4, 8})};
  EXPECT_THROW(attention(shorter, {}), Error);
}

}  // namespace
}  // namespace colonnade::ops
