// Vectorization support: function clones for x86-64 instruction sets, selected at program start, and a
// branch-free exponential.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "colonnade/base/simd.h"

// Disabled with sanitizers, which instrument the ifunc resolver before their runtime is initialized. Other
// compilers and machines use the baseline.
#if COL_SIMD && defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define COL_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define COL_CLONES
#endif

namespace colonnade::kernels::cpu {

/// e^x within 2 units in the last place; saturates outside [-87.3, 88.3], NaN stays NaN.
/// Cody-Waite reduction, polynomial of degree 7 on [-ln2/2, ln2/2].
[[gnu::always_inline]] inline float fast_exp(float x) {
  x = x < -87.3F ? -87.3F : x;
  x = x > 88.3F ? 88.3F : x;
  const float shifted = x * 1.44269504F + 12582912.0F;  // round(x / ln2) is in the low bits
  const float n = shifted - 12582912.0F;
  const float r = (x - n * 0.693359375F) + n * 2.12194440e-4F;
  float p = 1.98412698e-4F;
  p = p * r + 1.38888889e-3F;
  p = p * r + 8.33333333e-3F;
  p = p * r + 4.16666667e-2F;
  p = p * r + 1.66666667e-1F;
  p = p * r + 0.5F;
  p = p * (r * r) + (r + 1.0F);
  return p * std::bit_cast<float>((std::bit_cast<std::uint32_t>(shifted) << 23) + 0x3F800000U);
}

/// Math functions for kernels/formulas.h.
struct Math {
  [[gnu::always_inline]] static float exp(float x) { return fast_exp(x); }
  [[gnu::always_inline]] static double exp(double x) { return std::exp(x); }

  /// Phi(z), given exp(-z^2 / 2): Abramowitz and Stegun 7.1.26, error at most 3e-7 here.
  [[gnu::always_inline]] static float cdf(float z, float density) {
    const float t = 1.0F / (1.0F + 0.3275911F * 0.70710678F * (z < 0.0F ? -z : z));
    float p = 1.061405429F;
    p = p * t - 1.453152027F;
    p = p * t + 1.421413741F;
    p = p * t - 0.284496736F;
    p = p * t + 0.254829592F;
    const float tail = 0.5F * p * t * density;
    return z < 0.0F ? tail : 1.0F - tail;
  }
  static double cdf(double z, double) { return 0.5 * std::erfc(-z * 0.70710678118654752440); }
};

}  // namespace colonnade::kernels::cpu
