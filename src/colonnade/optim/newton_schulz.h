// Newton-Schulz orthogonalization of a matrix. Sources: Jordan et al. 2024 (Muon); Amsel et al. 2025 (Polar
// Express, arXiv:2505.16932); Grishina et al. 2025 (CANS, arXiv:2506.10935); NVIDIA's Emerging-Optimizers,
// whose coefficients Megatron uses.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <span>

#include "colonnade/config/training.h"

namespace colonnade::optim {

/// Factors a, b, c of a step.
using NewtonSchulzStep = std::array<double, 3>;

/// Steps of one sequence, and what follows its last one.
struct NewtonSchulzSteps {
  std::span<const NewtonSchulzStep> steps;
  bool repeats_last = false;  ///< else the sequence starts again
  [[nodiscard]] const NewtonSchulzStep& at(std::size_t i) const {
    return repeats_last ? steps[std::min(i, steps.size() - 1)] : steps[i % steps.size()];
  }
};
NewtonSchulzSteps newton_schulz_steps(config::MuonCoefficients coefficients);

/// U V^T, approximately, of matrix = U S V^T [rows, columns]:
///   X = matrix / max(||matrix||_F, 1e-7)
///   A = X X^T;  X = a X + (b A + c A A) X      for each step (a, b, c), on the transpose if rows > columns
/// `in_bf16`: the steps compute in bf16, as Megatron's do with --muon-fp32-matmul-prec medium; the result has
/// the dtype of `matrix`.
at::Tensor newton_schulz(const at::Tensor& matrix, config::MuonCoefficients coefficients, int num_steps,
                         bool in_bf16);

}  // namespace colonnade::optim
