// Heads of multi-latent attention against slicing and complex rotation with tensor ops.
#include "colonnade/ops/latent_heads.h"

#include "colonnade/base/error.h"
#include "ops/support.h"

namespace colonnade::ops {
namespace {

using at::Tensor;
using test::distance;

constexpr std::int64_t kS = 7, kB = 2, kN = 3;
constexpr LatentHead kHead{.nope = 6, .rope = 4, .value = 5};

/// Rotates interleaved pairs (x, y) of [s, b, n, 4]: x + iy times exp(i angle).
Tensor rotated(const Tensor& x, const RotaryTable& table, const Tensor& positions_sb) {
  const auto rows = [&](const Tensor& t) {
    return t.index_select(0, positions_sb.reshape(-1)).view({kS, kB, 1, 2}).to(x.scalar_type());
  };
  const Tensor angle = at::complex(rows(table.cos), rows(table.sin));
  const Tensor pairs = at::view_as_complex(x.unflatten(-1, {2, 2}).contiguous());
  return at::view_as_real(pairs * angle).flatten(-2);
}

Qkv reference_heads(const Tensor& q, const Tensor& kv, const Tensor& key, const RotaryTable& table,
                    const Tensor& positions_sb) {
  const Tensor q4 = q.view({kS, kB, kN, 10}), kv4 = kv.view({kS, kB, kN, 11});
  const Tensor shared = rotated(key.view({kS, kB, 1, 4}), table, positions_sb).expand({kS, kB, kN, 4});
  const auto as_bnsd = [](const Tensor& x) { return x.permute({1, 2, 0, 3}); };
  return {as_bnsd(at::cat({q4.narrow(-1, 0, 6), rotated(q4.narrow(-1, 6, 4), table, positions_sb)}, -1)),
          as_bnsd(at::cat({kv4.narrow(-1, 0, 6), shared}, -1)), as_bnsd(kv4.narrow(-1, 6, 5))};
}

RotaryTable interleaved_table() {
  config::Model m;
  m.latent.enabled = true;
  m.latent.qk_pos_emb_head_dim = kHead.rope;
  return rotary_table(m, 20, test::device());
}

TEST(LatentHeads, EqualTheReference) {
  at::manual_seed(1);
  const RotaryTable table = interleaved_table();
  EXPECT_TRUE(table.interleaved);
  const Tensor default_ids = at::arange(kS, test::options(at::kLong)).unsqueeze(1).expand({kS, kB});
  const Tensor random_ids = at::randint(0, 20, {kS, kB}, test::options(at::kLong));
  for (const bool default_positions : {true, false}) {
    const Tensor q = test::random({kS, kB, kN * 10}).set_requires_grad(true);
    const Tensor kv = test::random({kS, kB, kN * 11}).set_requires_grad(true);
    const Tensor key = test::random({kS, kB, 4}).set_requires_grad(true);
    const Qkv got = latent_heads(q, kv, key, kN, kHead, table, default_positions ? Tensor() : random_ids);
    const Qkv ref = reference_heads(q, kv, key, table, default_positions ? default_ids : random_ids);
    const auto joined = [](const Qkv& x) { return at::cat({x.q.flatten(), x.k.flatten(), x.v.flatten()}); };
    EXPECT_TRUE(got.q.is_contiguous() && got.k.is_contiguous() && got.v.is_contiguous());
    EXPECT_LT(distance(joined(got), joined(ref)), 1e-12);
    const Tensor probe = test::random(joined(ref).sizes());
    const auto expected = test::gradients(joined(ref), probe, {q, kv, key});
    const auto gradients = test::gradients(joined(got), probe, {q, kv, key});
    for (std::size_t i = 0; i < 3; ++i) EXPECT_LT(distance(gradients[i], expected[i]), 1e-12) << i;
  }
}

TEST(LatentHeads, CopyChannelsBeyondTheTable) {
  at::manual_seed(2);
  const RotaryTable full = interleaved_table();
  RotaryTable partial = full;
  partial.cos = full.cos.narrow(1, 0, 1).contiguous();
  partial.sin = full.sin.narrow(1, 0, 1).contiguous();
  const Tensor q = test::random({kS, kB, kN * 10}), kv = test::random({kS, kB, kN * 11});
  const Tensor key = test::random({kS, kB, 4});
  const Qkv got = latent_heads(q, kv, key, kN, kHead, partial),
            ref = latent_heads(q, kv, key, kN, kHead, full);
  EXPECT_TRUE(at::equal(got.q.narrow(-1, 0, 8), ref.q.narrow(-1, 0, 8)));
  EXPECT_TRUE(at::equal(got.k.narrow(-1, 0, 8), ref.k.narrow(-1, 0, 8)));
  EXPECT_TRUE(
      at::equal(got.q.narrow(-1, 8, 2), q.view({kS, kB, kN, 10}).permute({1, 2, 0, 3}).narrow(-1, 8, 2)));
  EXPECT_TRUE(
      at::equal(got.k.narrow(-1, 8, 2),
                key.view({kS, kB, 1, 4}).expand({kS, kB, kN, 4}).permute({1, 2, 0, 3}).narrow(-1, 2, 2)));
}

TEST(LatentHeads, RejectMismatchedSizes) {
  const RotaryTable table = interleaved_table();
  const Tensor q = test::random({kS, kB, kN * 10}), kv = test::random({kS, kB, kN * 11});
  const Tensor key = test::random({kS, kB, 4});
  EXPECT_THROW(latent_heads(q, kv, key.narrow(-1, 0, 2), kN, kHead, table), Error);
  EXPECT_THROW(latent_heads(q, kv.narrow(-1, 0, 30), key, kN, kHead, table), Error);
  EXPECT_THROW(latent_heads(q, kv, key, kN, {.nope = 8, .rope = 2, .value = 3}, table), Error);
}

}  // namespace
}  // namespace colonnade::ops
