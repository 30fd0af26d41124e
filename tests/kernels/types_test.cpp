// 16-bit types against the compiler's half precision and the definition of bfloat16; fp8 against that of
// e4m3.
#include "colonnade/kernels/types.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace colonnade::kernels {
namespace {

TEST(Half, ConvertsEveryValueLikeTheCompiler) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    Half half;
    half.bits = static_cast<std::uint16_t>(bits);
    const auto expected = static_cast<float>(std::bit_cast<_Float16>(half.bits));
    const auto got = static_cast<float>(half);
    if (std::isnan(expected))
      EXPECT_TRUE(std::isnan(got)) << bits;
    else
      EXPECT_EQ(std::bit_cast<std::uint32_t>(got), std::bit_cast<std::uint32_t>(expected)) << bits;
  }
}

TEST(Half, RoundsLikeTheCompiler) {
  for (std::uint64_t u = 0; u < (1ULL << 32); u += 65521) {
    const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(u));
    if (std::isnan(x)) continue;
    EXPECT_EQ(Half(x).bits, std::bit_cast<std::uint16_t>(static_cast<_Float16>(x))) << x;
  }
  for (const float x : {65504.0F, 65519.9F, 65520.0F, 6.1035156e-5F, 6.1e-5F, 2.98e-8F, 2.9802322e-8F, 0.0F,
                        -0.0F, std::numeric_limits<float>::infinity()})
    EXPECT_EQ(Half(x).bits, std::bit_cast<std::uint16_t>(static_cast<_Float16>(x))) << x;
  EXPECT_TRUE(std::isnan(static_cast<float>(Half(std::numeric_limits<float>::quiet_NaN()))));
}

/// Magnitude of a code of e4m3: 3 bits of mantissa, bias 7, subnormals below 2^-6.
double e4m3(unsigned code) {
  const unsigned exponent = code >> 3, mantissa = code & 7;
  return exponent == 0 ? mantissa * 0x1p-9 : std::ldexp(1.0 + mantissa / 8.0, static_cast<int>(exponent) - 7);
}

TEST(Float8, ConvertsEveryCodeByItsDefinition) {
  for (unsigned code = 0; code < 127; ++code)
    for (const unsigned sign : {0U, 128U}) {
      Float8 x;
      x.bits = static_cast<std::uint8_t>(sign | code);
      const double expected = sign != 0 ? -e4m3(code) : e4m3(code);
      EXPECT_EQ(static_cast<double>(static_cast<float>(x)), expected) << code;
      EXPECT_EQ(Float8(static_cast<float>(expected)).bits, x.bits) << code;
    }
  Float8 nan;
  nan.bits = 0x7F;
  EXPECT_TRUE(std::isnan(static_cast<float>(nan)));
  EXPECT_EQ(Float8(std::numeric_limits<float>::quiet_NaN()).bits & 0x7F, 0x7F);
}

TEST(Float8, RoundsToNearestEvenAndSaturates) {
  for (unsigned code = 0; code < 126; ++code) {
    const double low = e4m3(code), high = e4m3(code + 1), middle = (low + high) / 2;  // exact in fp32
    EXPECT_EQ(Float8(std::nextafterf(static_cast<float>(middle), 0.0F)).bits, code);
    EXPECT_EQ(Float8(static_cast<float>(middle)).bits, code % 2 == 0 ? code : code + 1);
    EXPECT_EQ(Float8(std::nextafterf(static_cast<float>(middle), 1e9F)).bits, code + 1);
  }
  for (const float big : {449.0F, 480.0F, 1e30F, std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(static_cast<float>(Float8(big)), 448.0F) << big;
    EXPECT_EQ(static_cast<float>(Float8(-big)), -448.0F) << big;
  }
}

TEST(BFloat16, RoundsToNearestEven) {
  EXPECT_EQ(BFloat16(1.0F).bits, 0x3F80);
  EXPECT_EQ(BFloat16(std::bit_cast<float>(0x3F808000U)).bits, 0x3F80);  // a tie goes to even
  EXPECT_EQ(BFloat16(std::bit_cast<float>(0x3F818000U)).bits, 0x3F82);
  EXPECT_EQ(BFloat16(std::bit_cast<float>(0x3F808001U)).bits, 0x3F81);
  EXPECT_EQ(BFloat16(std::numeric_limits<float>::max()).bits, 0x7F80);
  EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(std::bit_cast<float>(0x7F800001U)))));
  EXPECT_EQ(static_cast<float>(BFloat16(-3.0F)), -3.0F);
}

}  // namespace
}  // namespace colonnade::kernels
