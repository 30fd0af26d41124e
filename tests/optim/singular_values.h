// Newton-Schulz steps by their effect on singular values, for tests.
#pragma once

#include <ATen/ops/linalg_svd.h>
#include <ATen/ops/matmul.h>

#include <cmath>

#include "colonnade/optim/newton_schulz.h"

namespace colonnade::optim::toys {

/// The steps change singular values only: s -> a s + b s^3 + c s^5.
inline at::Tensor by_singular_values(const at::Tensor& matrix, config::MuonCoefficients coefficients,
                                     int steps) {
  const auto [u, s, vh] = at::linalg_svd(matrix, /*full_matrices=*/false);
  at::Tensor values = s / std::sqrt(s.square().sum().item<double>());
  const NewtonSchulzSteps sequence = newton_schulz_steps(coefficients);
  for (int i = 0; i < steps; ++i) {
    const auto [a, b, c] = sequence.at(static_cast<std::size_t>(i));
    values = a * values + b * values.pow(3) + c * values.pow(5);
  }
  return at::matmul(u * values, vh);
}

}  // namespace colonnade::optim::toys
