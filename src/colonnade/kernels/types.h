// 16-bit and 8-bit floating-point types of the kernels, in the standard layouts, and their accumulation type.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

struct CUstream_st;

namespace colonnade::kernels {

/// bfloat16: the upper half of a float. Rounding is to nearest even; NaN stays NaN.
struct BFloat16 {
  std::uint16_t bits = 0;
  BFloat16() = default;
  constexpr explicit BFloat16(float value) {
    const auto u = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = (u + 0x7FFFU + ((u >> 16) & 1U)) >> 16;
    bits = static_cast<std::uint16_t>(value == value ? rounded : 0x7FC0U);
  }
  constexpr explicit operator float() const { return std::bit_cast<float>(std::uint32_t{bits} << 16); }
};

/// IEEE half precision. Branch-free, so that loops vectorize. The multiplication by a power of two lets the
/// FPU handle subnormals.
struct Half {
  std::uint16_t bits = 0;
  Half() = default;
  constexpr explicit Half(float value) {
    const auto u = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (u >> 16) & 0x8000U;
    const std::uint32_t magnitude = u & 0x7FFFFFFFU;
    const float small = std::bit_cast<float>(magnitude) + 0.5F;  // rounds to the grid of subnormal halves
    const std::uint32_t low = std::bit_cast<std::uint32_t>(small) - 0x3F000000U;
    const std::uint32_t normal = (magnitude - 0x38000000U + 0xFFFU + ((magnitude >> 13) & 1U)) >> 13;
    const std::uint32_t big = magnitude > 0x7F800000U ? 0x7E00U : 0x7C00U;
    const std::uint32_t finite = magnitude < 0x38800000U ? low : normal;
    bits = static_cast<std::uint16_t>(sign | (magnitude >= 0x47800000U ? big : finite));
  }
  constexpr explicit operator float() const {
    const std::uint32_t sign = (std::uint32_t{bits} & 0x8000U) << 16;
    const std::uint32_t magnitude = (std::uint32_t{bits} & 0x7FFFU) << 13;
    const float scaled = std::bit_cast<float>(magnitude) * 0x1.0p112F;
    const std::uint32_t special = magnitude >= (0x7C00U << 13) ? 0x7F800000U : 0U;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | special | sign);
  }
};

/// 8-bit float with 4 exponent and 3 mantissa bits: e4m3 of the OCP FP8 specification, without infinities.
/// Branch-free as Half. Finite values beyond 448 and infinities saturate.
struct Float8 {
  std::uint8_t bits = 0;
  Float8() = default;
  constexpr explicit Float8(float value) {
    const auto u = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (u >> 24) & 0x80U;
    const std::uint32_t magnitude = u & 0x7FFFFFFFU;
    const float small = std::bit_cast<float>(magnitude) + 16384.0F;  // rounds to the grid of subnormals
    const std::uint32_t low = std::bit_cast<std::uint32_t>(small) - 0x46800000U;
    const std::uint32_t normal = (magnitude - 0x3C000000U + 0x7FFFFU + ((magnitude >> 20) & 1U)) >> 20;
    const std::uint32_t big = magnitude > 0x7F800000U ? 0x7FU : 0x7EU;
    const std::uint32_t finite = magnitude < 0x3C800000U ? low : normal;
    bits = static_cast<std::uint8_t>(sign | (magnitude >= 0x43E00000U ? big : finite));
  }
  constexpr explicit operator float() const {
    const std::uint32_t sign = (std::uint32_t{bits} & 0x80U) << 24;
    const std::uint32_t magnitude = (std::uint32_t{bits} & 0x7FU) << 20;
    const float scaled = std::bit_cast<float>(magnitude) * 0x1.0p120F;
    const std::uint32_t special = magnitude == (0x7FU << 20) ? 0x7FC00000U : 0U;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | special | sign);
  }
};

/// Compute and accumulation type for T: float, or double for double.
template <typename T>
using Acc = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <typename T>
constexpr Acc<T> load(const T& x) {
  return static_cast<Acc<T>>(x);
}

}  // namespace colonnade::kernels
