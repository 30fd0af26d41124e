// Activation functions and their derivatives, shared by all devices. M provides the device's `exp` and `cdf`.
#pragma once

namespace colonnade::kernels {

/// Mirrors config::Activation, so that kernels do not depend on config.
enum class ActivationKind : unsigned char {
  kGeluErf,
  kGeluTanh,
  kSquaredRelu,
  kSwiglu,
  kGeglu,
  kGegluTanh,
  kQuickGeglu,
  kRelu
};

constexpr bool is_gated(ActivationKind kind) {
  return kind == ActivationKind::kSwiglu || kind == ActivationKind::kGeglu ||
         kind == ActivationKind::kGegluTanh || kind == ActivationKind::kQuickGeglu;
}

/// Whether gate and up are interleaved, [g0, u0, g1, u1, ...], and clamped.
constexpr bool is_interleaved(ActivationKind kind) { return kind == ActivationKind::kQuickGeglu; }

/// Columns of gate c and of its up value in a row of x of a gated kind.
template <ActivationKind kKind, typename I>
constexpr I gate_column(I c) {
  return is_interleaved(kKind) ? 2 * c : c;
}
template <ActivationKind kKind, typename I>
constexpr I up_column(I c, I cols) {
  return is_interleaved(kKind) ? 2 * c + 1 : cols + c;
}

/// Clamping of interleaved kinds: gate = min(gate, bound), up = clamp(up, -bound, bound) + offset; infinity
/// disables it.
struct GluParams {
  double bound = 0;
  double offset = 0;
};

template <typename F>
struct ValueDerivative {
  F value;
  F derivative;
};

/// min(z, bound) and its derivative.
template <typename F>
constexpr ValueDerivative<F> clamp_max(F z, F bound) {
  return z > bound ? ValueDerivative<F>{bound, F(0)} : ValueDerivative<F>{z, F(1)};
}
template <typename F>
constexpr ValueDerivative<F> clamp_abs(F z, F bound) {
  return z < -bound ? ValueDerivative<F>{-bound, F(0)} : clamp_max(z, bound);
}

/// c tanh(z / c) and its derivative, for c > 0.
template <typename M, typename F>
constexpr ValueDerivative<F> soft_cap(F z, F c) {
  const F rest = F(2) / (F(1) + M::exp(z * (F(2) / c)));  // 1 - tanh(z / c)
  return {c * (F(1) - rest), rest * (F(2) - rest)};
}

/// f(z) and f'(z), where f is the activation, or that of the gate for gated kinds.
template <ActivationKind kKind, typename M, typename F>
constexpr ValueDerivative<F> value_derivative(F z) {
  using enum ActivationKind;
  if constexpr (kKind == kRelu) {
    return z > F(0) ? ValueDerivative<F>{z, F(1)} : ValueDerivative<F>{F(0), F(0)};
  } else if constexpr (kKind == kSquaredRelu) {
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
    const F w_derivative = c * (F(1) + F(3 * 0.044715) * z * z);
    return {z * sigmoid, sigmoid * (F(1) + z * (F(1) - sigmoid) * w_derivative)};
  } else {
    const F density = M::exp(F(-0.5) * z * z);  // normal density times sqrt(2 pi)
    const F cdf = M::cdf(z, density);
    return {z * cdf, cdf + z * density * F(0.39894228040143268)};
  }
}

}  // namespace colonnade::kernels
