// Activation functions and their slopes, once for all devices. M gives the device's `exp` and `cdf`.
#pragma once

namespace colonnade::kernels {

/// The functions of config::Activation, by number, so that this row needs no settings.
enum class ActivationKind : unsigned char { kGeluErf, kGeluTanh, kSquaredRelu, kSwiglu, kGeglu, kGegluTanh };

constexpr bool is_gated(ActivationKind kind) {
  return kind == ActivationKind::kSwiglu || kind == ActivationKind::kGeglu ||
         kind == ActivationKind::kGegluTanh;
}

template <typename F>
struct ValueSlope {
  F value;
  F slope;
};

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
