// Attention against softmax(q k^T) v in float64, for every mask and grouping.
#include "colonnade/ops/attention.h"

#include "colonnade/base/error.h"
#include "ops/support.h"

namespace colonnade::ops {
namespace {

using at::Tensor;
using test::distance;

struct AttentionCase {
  std::int64_t b = 2, n = 4, g = 4, s = 17, t = 17;
  bool causal = true;
  std::int64_t window = 0;
  bool mask = false;
  std::int64_t mask_batch = 1;
  bool sinks = false;
  double softcap = 0;
  double dropout = 0;      ///< block attention only
  std::int64_t value = 8;  ///< value head size; queries and keys have 8
};

Tensor masked_out(const AttentionCase& c, const Tensor& mask) {
  const Tensor query = at::arange(c.t - c.s, c.t, test::options(at::kLong)).unsqueeze(1);
  const Tensor key = at::arange(c.t, test::options(at::kLong)).unsqueeze(0);
  Tensor all = at::zeros({1, 1, c.s, c.t}, test::options(at::kBool));
  if (c.causal) all = all.logical_or(key > query);
  if (c.window > 0) all = all.logical_or(query - key > c.window);
  return mask.defined() ? all.logical_or(mask) : all;
}

Tensor reference_attention(const Qkv& qkv, const AttentionCase& c, double scale, const Tensor& mask,
                           const Tensor& keep, const Tensor& sinks = {}) {
  const Tensor k = qkv.k.repeat_interleave(c.n / c.g, 1);
  const Tensor v = qkv.v.repeat_interleave(c.n / c.g, 1);
  Tensor scores = at::matmul(qkv.q, k.transpose(-1, -2)) * scale;
  if (c.softcap > 0) scores = c.softcap * (scores / c.softcap).tanh();
  scores = scores.masked_fill(masked_out(c, mask), -1e300);
  Tensor p = scores.softmax(-1);
  if (sinks.defined()) {
    const Tensor max = at::maximum(scores.amax(-1, true), sinks.view({1, -1, 1, 1})).detach();
    const Tensor mass = (scores - max).exp();
    p = mass / (mass.sum(-1, true) + (sinks.view({1, -1, 1, 1}) - max).exp());
  }
  if (keep.defined()) p = p * keep;
  return at::matmul(p, v).permute({2, 0, 1, 3}).reshape({c.s, c.b, -1});
}

void check_attention(const AttentionCase& c, at::ScalarType type) {
  SCOPED_TRACE(fmt::format("b {} n {} g {} s {} t {} causal {} window {} mask {} sinks {} cap {} {}", c.b,
                           c.n, c.g, c.s, c.t, c.causal, c.window, c.mask ? c.mask_batch : 0, c.sinks,
                           c.softcap, c10::toString(type)));
  const Qkv qkv{test::random({c.b, c.n, c.s, 8}, type).set_requires_grad(true),
                test::random({c.b, c.g, c.t, 8}, type).set_requires_grad(true),
                test::random({c.b, c.g, c.t, c.value}, type).set_requires_grad(true)};
  const auto copy = [](const Tensor& x) { return x.detach().to(at::kDouble).set_requires_grad(true); };
  const Qkv ref_in{copy(qkv.q), copy(qkv.k), copy(qkv.v)};
  AttentionArgs args{.scale = 0.4, .causal = c.causal, .window = c.window};
  args.softcap = c.softcap;
  const auto sinks = test::parameter(test::random({c.n}, type));
  if (c.sinks) args.sinks.learned = sinks.get();
  const Tensor ref_sinks = c.sinks ? copy(sinks->value) : Tensor();
  if (c.mask) {
    args.mask = at::rand({c.mask_batch, 1, c.s, c.t}, test::options(at::kFloat)) < 0.3;
    args.mask.diagonal(c.t - c.s, -2, -1).fill_(false);
  }
  const Tensor ref = reference_attention(ref_in, c, 0.4, args.mask, {}, ref_sinks);
  const Tensor probe = test::random(ref.sizes());
  std::vector<Tensor> inputs{ref_in.q, ref_in.k, ref_in.v};
  if (c.sinks) inputs.push_back(ref_sinks);
  const auto expected = test::gradients(ref, probe, inputs);
  const Tensor y = attention(qkv, args);
  EXPECT_LT(distance(y, ref), test::tolerance(type));
  std::vector<Tensor> leaves{qkv.q, qkv.k, qkv.v};
  if (c.sinks) leaves.push_back(sinks->value);
  const auto got = test::gradients(y, probe, leaves);
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_LT(distance(got[i], expected[i]), 2 * test::tolerance(type)) << i;
  if (c.sinks) {
    EXPECT_LT(distance(sinks->main_grad, expected[3]), 4 * test::tolerance(type));
  }
}

TEST(Attention, EqualsTheReference) {
  at::manual_seed(1);
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16})
    for (const std::int64_t g : {4, 2, 1}) {
      check_attention({.g = g}, type);
      check_attention({.g = g, .causal = false}, type);
      check_attention({.g = g, .window = 3}, type);
      check_attention({.g = g, .window = 40}, type);
      check_attention({.g = g, .mask = true}, type);
      check_attention({.g = g, .mask = true, .mask_batch = 2}, type);
      check_attention({.b = 1, .g = g, .s = 65, .t = 65}, type);
    }
}

TEST(Attention, AppliesSinks) {
  at::manual_seed(4);
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16})
    for (const std::int64_t g : {4, 2, 1})
      for (const double cap : {0.0, 0.7}) {  // the second materializes scores, as on CUDA
        check_attention({.g = g, .sinks = true, .softcap = cap}, type);
        check_attention({.g = g, .window = 3, .sinks = true, .softcap = cap}, type);
        check_attention({.g = g, .mask = true, .mask_batch = 2, .sinks = true, .softcap = cap}, type);
        check_attention({.g = g, .s = 1, .t = 9, .sinks = true, .softcap = cap}, type);
        check_attention({.b = 1, .g = g, .s = 65, .t = 65, .sinks = true, .softcap = cap}, type);
      }
}

TEST(Attention, AppliesSoftCaps) {
  at::manual_seed(5);
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16})
    for (const std::int64_t g : {4, 1}) {
      check_attention({.g = g, .softcap = 0.5}, type);
      check_attention({.g = g, .window = 3, .softcap = 0.5}, type);
      check_attention({.g = g, .s = 3, .t = 9, .softcap = 0.5}, type);
    }
}

/// Dividing queries by the layer number and multiplying scores by it must cancel on every path.
void expect_scaling_cancels(const AttentionCase& c, bool biased) {
  SCOPED_TRACE(
      fmt::format("window {} mask {} sinks {} cap {} bias {}", c.window, c.mask, c.sinks, c.softcap, biased));
  const Qkv qkv{test::random({c.b, c.n, c.s, 8}).set_requires_grad(true),
                test::random({c.b, c.g, c.t, 8}).set_requires_grad(true),
                test::random({c.b, c.g, c.t, 8}).set_requires_grad(true)};
  AttentionArgs args{.scale = 0.4, .causal = c.causal, .window = c.window};
  args.softcap = c.softcap;
  const auto sinks = test::parameter(test::random({c.n}));
  if (c.sinks) args.sinks.learned = sinks.get();
  if (c.mask) {
    args.mask = at::rand({c.mask_batch, 1, c.s, c.t}, test::options(at::kFloat)) < 0.3;
    args.mask.diagonal(c.t - c.s, -2, -1).fill_(false);
  }
  if (biased) args.bias = test::random({1, c.n, c.s, c.t});
  const Tensor ref = attention(qkv, args);
  const Tensor probe = test::random(ref.sizes());
  std::vector<Tensor> inputs{qkv.q, qkv.k, qkv.v};
  if (c.sinks) inputs.push_back(sinks->value);
  const auto expected = test::gradients(ref, probe, inputs);
  const Tensor sink_gradient = c.sinks ? sinks->main_grad.clone() : Tensor();
  if (c.sinks) sinks->main_grad.zero_();
  args.layer_scaling = 3;
  const Tensor y = attention({qkv.q.div(3), qkv.k, qkv.v}, args);
  EXPECT_LT(distance(y, ref), 1e-12);
  const auto got = test::gradients(y, probe, inputs);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_LT(distance(got[i], expected[i]), 1e-12) << i;
  if (c.sinks) {
    EXPECT_LT(distance(sinks->main_grad, sink_gradient), 1e-12);
  }
}

TEST(Attention, LayerScalingCancels) {
  at::manual_seed(7);
  for (const AttentionCase& c : {AttentionCase{},
                                 {.g = 2, .window = 3},
                                 {.mask = true, .mask_batch = 2},
                                 {.g = 2, .sinks = true},
                                 {.softcap = 0.7},
                                 {.sinks = true, .softcap = 0.7}}) {
    expect_scaling_cancels(c, false);
    expect_scaling_cancels(c, true);
  }
}

// Scores of 1e5 exceed the fp16 maximum of 65504. The bias selects the path that materializes scores.
TEST(Attention, LayerScalingKeepsHalfPrecisionScoresFinite) {
  const std::int64_t s = 5;
  const auto half = test::options(at::kHalf);
  const Tensor falling = at::linspace(180, 90, s, test::options(at::kDouble)).view({1, 1, s, 1});
  const Tensor q = at::full({1, 2, s, 8}, 180, half), k = falling.expand({1, 2, s, 8}).to(at::kHalf);
  const Tensor v = at::arange(2 * s * 8, test::options(at::kDouble)).view({1, 2, s, 8}).to(at::kHalf);
  AttentionArgs args{.scale = 0.4};
  args.bias = at::zeros({1, 2, s, s}, half);
  EXPECT_FALSE(at::isfinite(attention({q, k, v}, args)).all().item<bool>());
  args.layer_scaling = 4;
  const Tensor y = attention({q.div(4), k, v}, args);
  // The first key's score exceeds the others by thousands, so each query gets exactly its value.
  const Tensor expected = v.narrow(2, 0, 1).expand({1, 2, s, 8}).permute({2, 0, 1, 3}).reshape({s, 1, 16});
  EXPECT_TRUE(at::equal(y, expected));
}

TEST(Attention, OffByOneEqualsALearnedSinkOfZero) {
  at::manual_seed(6);
  const Qkv qkv{test::random({2, 4, 9, 8}), test::random({2, 2, 9, 8}), test::random({2, 2, 9, 8})};
  const auto zeros = test::parameter(at::zeros({4}, test::options(at::kDouble)));
  for (const double cap : {0.0, 0.7}) {
    AttentionArgs learned{.scale = 0.4}, fixed{.scale = 0.4};
    learned.sinks.learned = zeros.get();
    fixed.sinks.off_by_one = true;
    learned.softcap = fixed.softcap = cap;
    EXPECT_LT(distance(attention(qkv, learned), attention(qkv, fixed)), 1e-15);
    AttentionArgs none{.scale = 0.4};
    none.softcap = cap;
    EXPECT_GT(distance(attention(qkv, none), attention(qkv, fixed)), 1e-2);
  }
}

// Ranks hold such heads with all-to-all context parallelism.
TEST(Attention, UsesTheSinksOfItsHeads) {
  at::manual_seed(7);
  const Qkv qkv{test::random({2, 2, 9, 8}), test::random({2, 2, 9, 8}), test::random({2, 2, 9, 8})};
  const auto four = test::parameter(test::random({4}));
  const auto two = test::parameter(four->value.detach().narrow(0, 2, 2).clone());
  AttentionArgs of_four{.scale = 0.4}, of_two{.scale = 0.4};
  of_four.sinks = {.learned = four.get(), .first = 2};
  of_two.sinks = {.learned = two.get()};
  EXPECT_LT(distance(attention(qkv, of_four), attention(qkv, of_two)), 1e-15);
  of_four.sinks = {.first = 2, .off_by_one = true};
  of_two.sinks = {.off_by_one = true};
  EXPECT_LT(distance(attention(qkv, of_four), attention(qkv, of_two)), 1e-15);
}

TEST(Attention, SupportsAnotherValueHeadSize) {
  at::manual_seed(4);
  for (const std::int64_t value : {5, 12})
    for (const std::int64_t g : {4, 2}) {
      check_attention({.g = g, .value = value}, at::kDouble);
      check_attention({.g = g, .causal = false, .value = value}, at::kFloat);
      check_attention({.g = g, .window = 3, .mask = true, .mask_batch = 2, .value = value}, at::kDouble);
      check_attention({.g = g, .s = 3, .t = 9, .value = value}, at::kDouble);
    }
}

TEST(Attention, AlignsQueriesToTheEndOfACache) {
  at::manual_seed(2);
  for (const std::int64_t s : {1, 3}) {
    check_attention({.s = s, .t = 9}, at::kDouble);
    check_attention({.g = 2, .s = s, .t = 9}, at::kFloat);
    check_attention({.g = 2, .s = s, .t = 9, .window = 4}, at::kDouble);
  }
}

struct BlockKernels {
  decltype(&attention_block) forward;
  decltype(&attention_block_backward) backward;
};

/// Positions of queries and of two key blocks in a sequence of kLong tokens.
constexpr std::int64_t kLong = 100;
struct BlockPositions {
  std::vector<layout::TokenSpan> queries, first, second;
};
const BlockPositions kPositions{{{3, 4}, {20, 5}}, {{10, 9}}, {{40, 4}, {61, 7}}};

Tensor positions(const std::vector<layout::TokenSpan>& chunks) {
  std::vector<Tensor> parts;
  for (const layout::TokenSpan& c : chunks)
    parts.push_back(at::arange(c.begin, c.begin + c.length, test::options(at::kLong)));
  return at::cat(parts);
}

/// Dropout factors of the queries for both key blocks.
Tensor dropout_factors(const AttentionCase& c, const DropoutKey& key) {
  const Tensor all = at::ones({c.b, c.n, kLong, kLong}, test::options(at::kDouble));
  const Tensor keys = at::cat({positions(kPositions.first), positions(kPositions.second)});
  return attention_dropout(all, c.dropout, key)
      .index_select(2, positions(kPositions.queries))
      .index_select(3, keys);
}

/// Attention to two merged key blocks, where some queries see no key of the second. mask_batch 0: no mask.
void check_blocks(const BlockKernels& kernels, const AttentionCase& c, at::ScalarType type) {
  SCOPED_TRACE(fmt::format("g {} mask {} cap {} dropout {} {}", c.g, c.mask_batch, c.softcap, c.dropout,
                           c10::toString(type)));
  const BlockArgs args{.scale = 0.4,
                       .softcap = c.softcap,
                       .dropout = c.dropout,
                       .key = {.key = 7,
                               .samples = at::tensor({5, 11}, test::options(at::kLong)),
                               .sequence_length = kLong,
                               .hidden_size = c.n}};
  const Qkv qkv{test::random({c.b, c.n, c.s, 8}, type), test::random({c.b, c.g, c.t, 8}, type),
                test::random({c.b, c.g, c.t, 8}, type)};
  const auto copy = [](const Tensor& x) { return x.to(at::kDouble).set_requires_grad(true); };
  const Qkv ref_in{copy(qkv.q), copy(qkv.k), copy(qkv.v)};
  Tensor mask =
      at::rand({std::max<std::int64_t>(c.mask_batch, 1), 1, c.s, c.t}, test::options(at::kFloat)) < 0.3;
  mask.diagonal(0, -2, -1).fill_(false);
  mask.narrow(2, 0, 4).narrow(3, c.s, c.t - c.s).fill_(true);
  if (c.mask_batch == 0) mask.fill_(false);
  const Tensor first = at::zeros({1, 1, c.s, c.t}, test::options(at::kBool));
  first.narrow(3, 0, c.s).logical_or_(
      at::ones({c.s, c.s}, first.options()).triu(1));  // causal in the first block
  const Tensor all = mask.logical_or(first);
  const Tensor ref = reference_attention(ref_in, c, 0.4, all, dropout_factors(c, args.key));
  const Tensor probe = test::random(ref.sizes());
  const auto expected = test::gradients(ref, probe, {ref_in.q, ref_in.k, ref_in.v});

  struct Block {
    std::int64_t begin, length;
    bool causal;
    std::vector<layout::TokenSpan> positions;
  };
  const Block blocks[] = {{0, c.s, true, kPositions.first}, {c.s, c.t - c.s, false, kPositions.second}};
  const auto keys = [&](const Block& b) {
    return Qkv{qkv.q, qkv.k.narrow(2, b.begin, b.length), qkv.v.narrow(2, b.begin, b.length)};
  };
  const auto mask_of = [&](const Block& b) {
    return BlockMask{b.causal, c.mask_batch > 0 ? mask.narrow(3, b.begin, b.length) : Tensor(),
                     kPositions.queries, b.positions};
  };
  BlockOutput merged = kernels.forward(keys(blocks[0]), args, mask_of(blocks[0]));
  merged.y = merged.y.to(merged.lse.scalar_type());
  merge_block(merged, kernels.forward(keys(blocks[1]), args, mask_of(blocks[1])));
  EXPECT_LT(distance(merged.y.permute({2, 0, 1, 3}).reshape(ref.sizes()), ref), test::tolerance(type));
  merged.y = merged.y.to(type);
  const Tensor grad_y = probe.view({c.s, c.b, c.n, 8}).permute({1, 2, 0, 3}).to(type);
  const Qkv one = kernels.backward(grad_y, keys(blocks[0]), merged, args, mask_of(blocks[0]));
  const Qkv two = kernels.backward(grad_y, keys(blocks[1]), merged, args, mask_of(blocks[1]));
  EXPECT_LT(distance(one.q + two.q, expected[0]), 2 * test::tolerance(type));
  EXPECT_LT(distance(at::cat({one.k, two.k}, 2), expected[1]), 2 * test::tolerance(type));
  EXPECT_LT(distance(at::cat({one.v, two.v}, 2), expected[2]), 2 * test::tolerance(type));
}

TEST(Attention, MergedBlocksEqualFullAttention) {
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf})
    for (const std::int64_t groups : {4, 2})
      for (const std::int64_t masks : {0, 1, 2}) {
        const AttentionCase c{.g = groups, .s = 9, .t = 20, .causal = false, .mask_batch = masks};
        check_blocks({attention_block, attention_block_backward}, c, type);
        check_blocks({attention_block_by_scores, attention_block_backward_by_scores}, c, type);
      }
}

TEST(Attention, BlocksSupportSoftCapsAndDropout) {
  at::manual_seed(8);
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf})
    for (const std::int64_t groups : {4, 2})
      for (const std::int64_t masks : {0, 2})
        for (const auto& [cap, dropout] : {std::pair{0.7, 0.0}, std::pair{0.0, 0.3}, std::pair{0.7, 0.3}})
          check_blocks({attention_block, attention_block_backward},
                       {.g = groups,
                        .s = 9,
                        .t = 20,
                        .causal = false,
                        .mask_batch = masks,
                        .softcap = cap,
                        .dropout = dropout},
                       type);
}

/// The scores exceed one query chunk.
TEST(Attention, BlockScoresInChunksEqualFlash) {
  const std::int64_t s = 4100, t = 4100;  // 4 heads: 67 M scores
  const Qkv qkv{test::random({1, 4, s, 8}, at::kFloat), test::random({1, 2, t, 8}, at::kFloat),
                test::random({1, 2, t, 8}, at::kFloat)};
  const BlockMask mask{.causal = true};
  const BlockArgs args{.scale = 0.4};
  const BlockOutput got = attention_block_by_scores(qkv, args, mask),
                    expected = attention_block(qkv, args, mask);
  EXPECT_LT(distance(got.y, expected.y), 1e-5);
  EXPECT_LT(distance(got.lse, expected.lse), 1e-5);
  const Tensor grad_y = test::random({1, 4, s, 8}, at::kFloat);
  const Qkv one = attention_block_backward_by_scores(grad_y, qkv, expected, args, mask);
  const Qkv two = attention_block_backward(grad_y, qkv, expected, args, mask);
  EXPECT_LT(distance(one.q, two.q), 1e-5);
  EXPECT_LT(distance(one.k, two.k), 1e-5);
  EXPECT_LT(distance(one.v, two.v), 1e-5);
}

/// The last queries of a block are in its second chunk and must have the same dropout mask as on their own.
TEST(Attention, DropoutIsEqualInEveryChunkOfABlock) {
  const std::int64_t s = 4100;
  const Qkv qkv{test::random({1, 4, s, 8}, at::kFloat), test::random({1, 2, s, 8}, at::kFloat),
                test::random({1, 2, s, 8}, at::kFloat)};
  const BlockArgs args{.scale = 0.4,
                       .softcap = 2,
                       .dropout = 0.3,
                       .key = {.key = 7,
                               .samples = at::tensor({5}, test::options(at::kLong)),
                               .sequence_length = 2 * s,
                               .hidden_size = 4}};
  const BlockOutput merged = attention_block(qkv, args, {.queries = {{s, s}}, .keys = {{0, s}}});
  const Qkv last{qkv.q.narrow(2, s - 20, 20), qkv.k, qkv.v};
  const BlockOutput part = attention_block(last, args, {.queries = {{2 * s - 20, 20}}, .keys = {{0, s}}});
  EXPECT_LT(distance(merged.y.narrow(2, s - 20, 20), part.y), 1e-5);
  EXPECT_LT(distance(merged.lse.narrow(2, s - 20, 20), part.lse), 1e-5);
}

TEST(Attention, BlocksRejectDropoutWithoutPositions) {
  const Qkv qkv{test::random({1, 4, 5, 8}), test::random({1, 4, 5, 8}), test::random({1, 4, 5, 8})};
  EXPECT_THROW(attention_block(qkv, {.dropout = 0.3}, {}), Error);
}

TEST(Attention, AppliesDropoutByPosition) {
  at::manual_seed(3);
  const AttentionCase c{.g = 2};
  const auto make = [](at::IntArrayRef shape) { return test::random(shape).set_requires_grad(true); };
  const Qkv qkv{make({2, 4, 17, 8}), make({2, 2, 17, 8}), make({2, 2, 17, 8})};
  AttentionArgs args{.scale = 0.4, .dropout = 0.3};
  args.key = {.key = 7,
              .samples = at::tensor({5, 11}, test::options(at::kLong)),
              .sequence_length = 17,
              .hidden_size = 4};
  const Tensor keep = attention_dropout(at::ones({2, 4, 17, 17}, test::options(at::kDouble)), 0.3, args.key);
  const Tensor y = attention(qkv, args);
  const Tensor ref = reference_attention(qkv, c, 0.4, {}, keep);
  const Tensor probe = test::random(ref.sizes());
  EXPECT_LT(distance(y, ref), 1e-12);
  const auto expected = test::gradients(ref, probe, {qkv.q, qkv.k, qkv.v});
  const auto got = test::gradients(y, probe, {qkv.q, qkv.k, qkv.v});
  for (std::size_t i = 0; i < 3; ++i) EXPECT_LT(distance(got[i], expected[i]), 1e-12);

  // A rank with heads 2 and 3 of one sample must drop the same elements.
  DropoutKey part = args.key;
  part.samples = at::tensor({11}, test::options(at::kLong));
  part.hidden_offset = 2;
  const Tensor local = attention_dropout(at::ones({1, 2, 17, 17}, test::options(at::kDouble)), 0.3, part);
  EXPECT_TRUE(at::equal(local, keep.narrow(0, 1, 1).narrow(1, 2, 2)));
}

TEST(Attention, RejectsMismatchedShapes) {
  const Qkv qkv{test::random({1, 4, 5, 8}), test::random({1, 3, 5, 8}), test::random({1, 3, 5, 8})};
  EXPECT_THROW(attention(qkv, {}), Error);
  const Qkv shorter{test::random({1, 4, 5, 8}), test::random({1, 4, 4, 8}), test::random({1, 4, 4, 8})};
  EXPECT_THROW(attention(shorter, {}), Error);
  const Qkv fits{test::random({1, 4, 5, 8}), test::random({1, 2, 5, 8}), test::random({1, 2, 5, 8})};
  const auto three = test::parameter(test::random({3}));
  AttentionArgs args;
  args.sinks.learned = three.get();
  EXPECT_THROW(attention(fits, args), Error);
  AttentionArgs dropped{.dropout = 0.5};
  dropped.sinks.off_by_one = true;
  EXPECT_THROW(attention(fits, dropped), Error);
}

// 2 x 2 x 1100 x 1100 scores are more than kMaxTrackedScores: two chunks.
TEST(MaxScores, AreThoseOfVisibleKeysByHead) {
  at::manual_seed(7);
  for (const std::int64_t s : {17, 1100})
    for (const bool causal : {false, true})
      for (const bool masked : {false, true}) {
        const AttentionCase c{.b = 2, .n = 2, .g = 1, .s = s, .t = s, .causal = causal};
        const Qkv qkv{test::random({2, 2, s, 8}), test::random({2, 1, s, 8}), test::random({2, 1, s, 8})};
        const Tensor mask = masked ? test::random({2, 1, s, s}) > 0.5 : Tensor();
        const Tensor scores = at::matmul(qkv.q, qkv.k.transpose(-1, -2)) * 0.4;
        const Tensor expected = scores.masked_fill(masked_out(c, mask), -1e300).amax({0, 2, 3});
        const Tensor got =
            max_scores(qkv, {.scale = 0.4, .softcap = 0.1}, {.causal = causal, .masked = mask});
        EXPECT_LT(distance(got, expected), 1e-14) << s << causal << masked;
      }
}

}  // namespace
}  // namespace colonnade::ops
