// Activation functions and their slopes, once for all devices. M gives the device's `exp` and `cdf`.
#pragma once

namespace colonnade::kernels {

/// The functions of config::Activation, by number, so that this row needs no settings.
enum class ActivationKind : unsigned char {
  kGeluErf,
  kGeluTanh,
  kSquaredRelu,
  kSwiglu,
  kGeglu,
  kGegluTanh,
  kQuickGeglu
};

constexpr bool is_gated(ActivationKind kind) {
  return kind == ActivationKind::kSwiglu || kind == ActivationKind::kGeglu ||
         kind == ActivationKind::kGegluTanh || kind == ActivationKind::kQuickGeglu;
}

/// Gate and up lie by turns, [g0, u0, g1, u1, ...], not in halves; and bounds hold for both.
constexpr bool is_paired(ActivationKind kind) { return kind == ActivationKind::kQuickGeglu; }

/// Column of gate c, and of what it is multiplied with, in a row of x of a gated kind.
template <ActivationKind kKind, typename I>
constexpr I gate_column(I c) {
  return is_paired(kKind) ? 2 * c : c;
}
template <ActivationKind kKind, typename I>
constexpr I up_column(I c, I cols) {
  return is_paired(kKind) ? 2 * c + 1 : cols + c;
}

/// Of paired kinds: gate = min(gate, bound), up = clamp(up, -bound, bound) + offset. Infinity bounds nothing.
struct GluShape {
  double bound = 0;
  double offset = 0;
};

template <typename F>
struct ValueSlope {
  F value;
  F slope;
};

/// z, at most `bound`, and whether a change of z changes it.
template <typename F>
constexpr ValueSlope<F> bounded_above(F z, F bound) {
  return z > bound ? ValueSlope<F>{bound, F(0)} : ValueSlope<F>{z, F(1)};
}
template <typename F>
constexpr ValueSlope<F> bounded(F z, F bound) {
  return z < -bound ? ValueSlope<F>{-bound, F(0)} : bounded_above(z, bound);
}

/// c tanh(z / c), for c > 0.
template <typename M, typename F>
constexpr ValueSlope<F> soft_capped(F z, F c) {
  const F rest = F(2) / (F(1) + M::exp(z * (F(2) / c)));  // 1 - tanh(z / c)
  return {c * (F(1) - rest), rest * (F(2) - rest)};
}

/// f and f' at z, where f is the function itself, or that of the gate for gated kinds.
template <ActivationKind kKind, typename M, typename F>
constexpr ValueSlope<F> value_slope(F z) {
  using enum ActivationKind;
  if constexpr (kKind == kSquaredRelu) {
    const F positive = z > F(0) ? z : F(0);
    return {positive * positive, F(2) * positive};
  } else if constexpr (kKind == kSwiglu) {
    const F sigmoid = F(1) / (F(1) + M::exp(-z));
    return {z * sigmoid, sigmoid * (F(1) + z * (F(1) - sigmoid))};
  } else if constexpr (kKind == kQuickGeglu) {
    const F sigmoid = F(1) / (F(1) + M::exp(F(-1.702) * z));
    return {z * sigmoid, sigmoid * (F(1) + F(1.702) * z * (F(1) - sigmoid))};
  } else if constexpr (kKind == kGeluTanh || kKind == kGegluTanh) {
    // (1 + tanh u) / 2 = sigmoid(2u); w = 2u.
    const F c = F(1.5957691216057308);  // 2 sqrt(2/pi)
    const F w = c * z * (F(1) + F(0.044715) * z * z);
    const F sigmoid = F(1) / (F(1) + M::exp(-w));
    const F w_slope = c * (F(1) + F(3 * 0.044715) * z * z);
    return {z * sigmoid, sigmoid * (F(1) + z * (F(1) - sigmoid) * w_slope)};
  } else {
    const F density = M::exp(F(-0.5) * z * z);  // of the normal distribution, times sqrt(2 pi)
    const F cdf = M::cdf(z, density);
    return {z * cdf, cdf + z * density * F(0.39894228040143268)};
  }
}

}  // namespace colonnade::kernels
