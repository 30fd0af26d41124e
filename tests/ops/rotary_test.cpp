// Rotary tables against recorded frequencies, rotations against complex multiplication.
#include "colonnade/ops/rotary.h"

#include "colonnade/base/error.h"
#include "ops/support.h"

namespace colonnade::ops {
namespace {

using at::Tensor;
using test::distance;

config::Model model(double percent, bool interleaved) {
  config::Model m;
  m.kv_channels = 8;
  m.rotary_percent = percent;
  m.rotary_interleaved = interleaved;
  return m;
}

/// Reference rotation of x [s, b, n, d] with plain ops.
Tensor reference_rotary(const Tensor& x, const RotaryTable& table, const Tensor& positions) {
  const std::int64_t half = table.cos.size(1);
  const Tensor ids =
      positions.defined()
          ? positions
          : at::arange(x.size(0), test::options(at::kLong)).unsqueeze(1).expand({x.size(0), x.size(1)});
  const auto pick = [&](const Tensor& t) {
    return t.index_select(0, ids.reshape(-1)).view({x.size(0), x.size(1), 1, half}).to(x.scalar_type());
  };
  const Tensor cos = pick(table.cos);
  const Tensor sin = pick(table.sin);
  const Tensor rotated = x.narrow(-1, 0, 2 * half);
  const Tensor pairs = table.interleaved ? rotated.unflatten(-1, {half, 2})
                                         : rotated.unflatten(-1, {2, half}).transpose(-1, -2);
  const Tensor u = pairs.select(-1, 0);
  const Tensor v = pairs.select(-1, 1);
  const Tensor both = at::stack({u * cos - v * sin, v * cos + u * sin}, -1);
  const Tensor flat = table.interleaved ? both.flatten(-2) : both.transpose(-1, -2).flatten(-2);
  return at::cat({flat, x.narrow(-1, 2 * half, x.size(-1) - 2 * half)}, -1);
}

TEST(RotaryTable, EqualsTheRecordedLlama3Frequencies) {
  config::Model m;
  m.kv_channels = 128;
  m.rotary_base = 500000;
  m.use_rope_scaling = true;
  const RotaryTable table = rotary_table(m, 2, test::device());
  const std::vector<std::pair<int, double>> recorded{{0, 1},
                                                     {20, .016560440883},
                                                     {30, .0013718936825},
                                                     {35, 9.556212171e-05},
                                                     {40, 3.428102355e-05},
                                                     {63, 3.068925878e-07}};
  for (const auto& [i, frequency] : recorded)
    EXPECT_NEAR(table.sin[1][i].item<double>(), std::sin(frequency), 1e-6 * frequency) << i;
}

/// YaRN frequency as in Hugging Face and Megatron: interpolation for fewer than beta_slow rotations,
/// extrapolation for more than beta_fast.
double yarn_frequency(const config::Model& m, int i, int dims) {
  const auto correction = [&](double rotations) {
    return dims * std::log(double(m.yarn_original_max_position_embeddings) / (rotations * 2 * M_PI)) /
           (2 * std::log(m.rotary_base));
  };
  double low = correction(m.yarn_beta_fast), high = correction(m.yarn_beta_slow);
  if (m.yarn_correction_range_round_to_int) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, double(dims - 1));
  const double ramp = std::min(1.0, std::max(0.0, (i - low) / (high - low)));
  const double frequency = 1 / std::pow(m.rotary_base, 2.0 * i / dims);
  return frequency / m.rotary_scaling_factor * ramp + frequency * (1 - ramp);
}

config::Model yarn(double base, double factor, std::int64_t old_length, std::int64_t d) {
  config::Model m;
  m.position_embedding = config::PositionEmbedding::kYarn;
  m.kv_channels = d;
  m.rotary_base = base;
  m.rotary_scaling_factor = factor;
  m.yarn_original_max_position_embeddings = old_length;
  return m;
}

TEST(RotaryTable, FollowsYarn) {
  for (const bool rounded : {true, false})  // DeepSeek-V3 rounds, gpt-oss-20b does not
    for (config::Model m : {yarn(150000, 32, 4096, 64), yarn(10000, 40, 4096, 64)}) {
      m.yarn_correction_range_round_to_int = rounded;
      const RotaryTable table = rotary_table(m, 8, test::device());
      const double factor = 0.1 * std::log(m.rotary_scaling_factor) + 1;
      for (int i = 0; i < 32; ++i)
        for (const int p : {1, 7}) {
          const double angle = p * yarn_frequency(m, i, 64);
          EXPECT_NEAR(table.sin[p][i].item<double>(), factor * std::sin(angle), 1e-6) << i;
          EXPECT_NEAR(table.cos[p][i].item<double>(), factor * std::cos(angle), 1e-6) << i;
        }
    }
}

TEST(RotaryTable, YarnBlendsBetweenItsBounds) {
  const config::Model m = yarn(150000, 32, 4096, 64);
  const double fast = yarn_frequency(m, 0, 64), slow = yarn_frequency(m, 31, 64);
  EXPECT_DOUBLE_EQ(fast, 1);
  EXPECT_NEAR(slow * 32, std::pow(150000, -31.0 / 32), 1e-12);
  const RotaryTable table = rotary_table(m, 2, test::device());
  const double factor = 0.1 * std::log(32.0) + 1;
  EXPECT_NEAR(table.sin[1][0].item<double>(), factor * std::sin(1.0), 1e-6);
  EXPECT_NEAR(table.sin[1][31].item<double>() / slow / factor, 1, 1e-6);
}

TEST(RotaryTable, YarnAttentionFactorIsAQuotient) {
  config::Model m = yarn(10000, 40, 4096, 64);
  m.mscale = m.mscale_all_dim = 1;  // DeepSeek-V3 applies the factor to the softmax scale instead
  EXPECT_EQ(rotary_table(m, 1, test::device()).cos[0][0].item<double>(), 1);
  m.mscale = 0.707;
  EXPECT_NEAR(rotary_table(m, 1, test::device()).cos[0][0].item<double>(),
              (0.0707 * std::log(40.0) + 1) / (0.1 * std::log(40.0) + 1), 1e-7);
  EXPECT_NEAR(yarn_mscale(40, 1), 1.3688879454113936, 1e-12);
  EXPECT_EQ(yarn_mscale(0.5, 1), 1);
}

/// A model with multi-latent attention and 64 rotary channels per head.
config::Model latent_model(std::optional<config::RopeType> type) {
  config::Model m;
  m.latent.enabled = true;
  m.rope_type = type;
  return m;
}

TEST(RotaryTable, OfMultiLatentAttentionIsYarnUnlessRopeTypeIsRope) {
  for (const auto positions : {config::PositionEmbedding::kRope, config::PositionEmbedding::kYarn,
                               config::PositionEmbedding::kLearnedAbsolute, config::PositionEmbedding::kNone})
    for (const auto& type : {std::optional<config::RopeType>(), std::optional(config::RopeType::kYarn)}) {
      config::Model m = latent_model(type);
      m.position_embedding = positions;
      m.rotary_scaling_factor = 40;
      const RotaryTable table = rotary_table(m, 8, test::device());
      for (int i = 0; i < 32; ++i)
        EXPECT_NEAR(table.sin[7][i].item<double>(),
                    (0.1 * std::log(40.0) + 1) * std::sin(7 * yarn_frequency(m, i, 64)), 1e-6)
            << i;
      m.rope_type = config::RopeType::kRope;
      const RotaryTable plain = rotary_table(m, 8, test::device());
      for (int i = 0; i < 32; ++i)
        EXPECT_NEAR(plain.sin[7][i].item<double>(), std::sin(7 * std::pow(10000, -i / 32.0)), 1e-6) << i;
    }
}

TEST(RotaryTable, YarnWithFactorOneIsBitwiseEqualToRope) {
  const RotaryTable yarn_of_one = rotary_table(latent_model(std::nullopt), 64, test::device());
  const RotaryTable plain = rotary_table(latent_model(config::RopeType::kRope), 64, test::device());
  EXPECT_TRUE(at::equal(yarn_of_one.cos, plain.cos));
  EXPECT_TRUE(at::equal(yarn_of_one.sin, plain.sin));
}

// Megatron's MLASelfAttention passes only the base and the percentage to its RotaryEmbedding.
TEST(RotaryTable, OfMultiLatentAttentionIgnoresOtherScaling) {
  config::Model m = latent_model(config::RopeType::kRope);
  const RotaryTable plain = rotary_table(m, 8, test::device());
  m.use_rope_scaling = true;
  m.rotary_seq_len_interpolation_factor = 4;
  EXPECT_TRUE(at::equal(rotary_table(m, 8, test::device()).sin, plain.sin));
  m.rotary_percent = 0.5;
  const RotaryTable half = rotary_table(m, 8, test::device());
  ASSERT_EQ(half.sin.size(1), 16);
  for (int i = 0; i < 16; ++i)
    EXPECT_NEAR(half.sin[7][i].item<double>(), std::sin(7 * std::pow(10000, -i / 16.0)), 1e-6) << i;
  m.rope_type = config::RopeType::kYarn;
  EXPECT_EQ(rotary_table(m, 8, test::device()).sin.size(1), 32);
}

TEST(RotaryTable, InterpolatesPositionsLinearly) {
  config::Model m = model(1.0, false);
  const RotaryTable plain = rotary_table(m, 8, test::device());
  m.rotary_seq_len_interpolation_factor = 4;
  const RotaryTable stretched = rotary_table(m, 8, test::device());
  EXPECT_TRUE(at::equal(stretched.cos[4], plain.cos[1]));
  EXPECT_FALSE(at::equal(stretched.cos[1], plain.cos[1]));
}

TEST(Rotary, RotatesPairsForwardAndBackward) {
  at::manual_seed(1);
  const Tensor positions = at::randint(0, 20, {7, 3}, test::options(at::kLong));
  for (const auto type : test::kTypes)
    for (const double percent : {1.0, 0.5})
      for (const bool interleaved : {false, true})
        for (const Tensor& ids_or_default : {Tensor(), positions}) {
          const RotaryTable table = rotary_table(model(percent, interleaved), 20, test::device());
          const Tensor x = test::random({7, 3, 5, 8}, type).set_requires_grad(true);
          const Tensor x_ref = x.detach().to(at::kDouble).set_requires_grad(true);
          const Tensor ref = reference_rotary(x_ref, table, ids_or_default);
          const Tensor probe = test::random({7, 3, 5, 8});
          const Tensor y = rotary(x, table, ids_or_default);
          (y.to(at::kDouble) * probe).sum().backward();
          EXPECT_LT(distance(y, ref), test::tolerance(type));
          EXPECT_LT(distance(x.grad(), test::gradients(ref, probe, {x_ref})[0]), test::tolerance(type));
        }
}

TEST(SplitRotary, SplitsAndRotatesTheFusedProjection) {
  at::manual_seed(2);
  for (const bool with_table : {true, false}) {
    const RotaryTable table = rotary_table(model(0.5, false), 20, test::device());
    const Tensor qkv = test::random({7, 3, 8 * (4 + 2 * 2)}).set_requires_grad(true);
    const auto parts = qkv.split_with_sizes({32, 16, 16}, -1);
    const auto bnsd = [](const Tensor& x) { return x.permute({1, 2, 0, 3}); };
    const auto heads = [&](const Tensor& x) { return x.unflatten(-1, {-1, 8}); };
    const Tensor q = bnsd(with_table ? reference_rotary(heads(parts[0]), table, {}) : heads(parts[0]));
    const Tensor k = bnsd(with_table ? reference_rotary(heads(parts[1]), table, {}) : heads(parts[1]));
    const Tensor v = bnsd(heads(parts[2]));
    const Tensor probes[] = {test::random(q.sizes()), test::random(k.sizes()), test::random(v.sizes())};
    const auto total = [&](const Tensor& a, const Tensor& b, const Tensor& c) {
      return (a * probes[0]).sum() + (b * probes[1]).sum() + (c * probes[2]).sum();
    };
    const Tensor expected = torch::autograd::grad({total(q, k, v)}, {qkv})[0];
    const Qkv got = split_rotary(qkv, 4, 2, 8, with_table ? &table : nullptr);
    EXPECT_TRUE(got.q.is_contiguous() && got.k.is_contiguous() && got.v.is_contiguous());
    EXPECT_LT(distance(got.q, q), 1e-14);
    EXPECT_LT(distance(got.k, k), 1e-14);
    EXPECT_TRUE(at::equal(got.v, v));
    EXPECT_LT(distance(torch::autograd::grad({total(got.q, got.k, got.v)}, {qkv})[0], expected), 1e-14);
  }
}

TEST(Rotary, SplitsAGateBehindTheQueries) {
  const RotaryTable table = rotary_table(model(1.0, false), 5, test::device());
  const Tensor qkv = test::random({5, 2, (2 * 4 + 2 * 2) * 8}).set_requires_grad(true);
  const auto parts = qkv.split_with_sizes({4 * 8, 4 * 8, 4 * 8}, -1);
  const Qkv plain = split_rotary(at::cat({parts[0], parts[2]}, -1), 4, 2, 8, &table);
  const GatedQkv got = split_gated_rotary(qkv, 4, 2, 8, &table);
  EXPECT_TRUE(at::equal(got.heads.q, plain.q) && at::equal(got.heads.k, plain.k) &&
              at::equal(got.heads.v, plain.v));
  EXPECT_TRUE(got.gate.is_contiguous() && at::equal(got.gate, parts[1]));
  const auto total = [](const Qkv& heads, const Tensor& gate) {
    return heads.q.square().sum() + heads.k.pow(3).sum() + heads.v.sin().sum() + gate.exp().sum();
  };
  const Tensor expected = torch::autograd::grad({total(plain, parts[1])}, {qkv})[0];
  EXPECT_LT(distance(torch::autograd::grad({total(got.heads, got.gate)}, {qkv})[0], expected), 1e-14);
  EXPECT_THROW(split_gated_rotary(test::random({5, 2, 64}), 4, 2, 8, &table), Error);
}

TEST(Rotary, RejectsPositionsOutsideTheTable) {
  const RotaryTable table = rotary_table(model(1.0, false), 4, test::device());
  EXPECT_THROW(rotary(test::random({5, 1, 1, 8}), table), Error);
  if (test::device().is_cuda()) return;  // the check would synchronize with the device
  EXPECT_THROW(rotary(test::random({2, 1, 1, 8}), table, at::full({2, 1}, 4, test::options(at::kLong))),
               Error);
  EXPECT_THROW(rotary(test::random({2, 1, 1, 8}), table, at::full({2, 1}, -1, test::options(at::kLong))),
               Error);
}

TEST(Rotary, RejectsPositionsOnAnotherDevice) {
  const RotaryTable table = rotary_table(model(1.0, false), 4, test::device());
  const Tensor positions = at::zeros({2, 1}, at::dtype(at::kLong).device(at::kMeta));
  EXPECT_THROW(rotary(test::random({2, 1, 1, 8}), table, positions), Error);
}

// By hand: frequencies 1 and 1/100 of a head of 4 with base 10^4.
TEST(Rotary, LongRopeDividesFrequenciesByTheSequenceLength) {
  config::Model m;
  m.position_embedding = config::PositionEmbedding::kRope;
  m.kv_channels = 4;
  m.max_position_embeddings = 64;
  m.longrope_short_factor = "[1,2]";
  m.longrope_long_factor = "[4,5]";
  m.longrope_original_max_position_embeddings = 16;
  const double scale = std::sqrt(1 + std::log(4.0) / std::log(16.0));
  const auto at_one = [&](std::int64_t sequence) {
    const at::Tensor sin = rotary_table(m, 64, test::device(), sequence).sin[1].cpu();
    return std::pair{sin[0].item<double>() / scale, sin[1].item<double>() / scale};
  };
  EXPECT_NEAR(at_one(16).first, std::sin(1.0), 1e-6);
  EXPECT_NEAR(at_one(16).second, std::sin(0.01 / 2), 1e-8);
  EXPECT_NEAR(at_one(17).first, std::sin(0.25), 1e-6);
  EXPECT_NEAR(at_one(17).second, std::sin(0.01 / 5), 1e-8);
  m.longrope_attention_factor = 2.0;
  EXPECT_NEAR(rotary_table(m, 64, test::device()).cos[0][0].item<double>(), 2, 1e-6);
}

}  // namespace
}  // namespace colonnade::ops
