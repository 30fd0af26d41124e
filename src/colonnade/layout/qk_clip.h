// QK-clip: weights of queries and keys are scaled after a step in which an attention score was too large.
// Source: Megatron's core/optimizer/qk_clip.py and the attention classes' clip_qk; Kimi K2 2025.
#pragma once

#include <cmath>
#include <map>
#include <string>
#include <vector>

namespace colonnade::layout {

/// Factor of each row of a global matrix, by parameter name.
using RowScales = std::map<std::string, std::vector<double>>;

struct QkClip {
  double alpha = 0.5, threshold = 100;
  /// min(1, threshold / s) for the largest score s of a head or group; 1 if s is not finite.
  [[nodiscard]] double scale(double score) const {
    return std::isfinite(score) && score > threshold ? threshold / score : 1.0;
  }
  /// Factors of queries and keys, whose product is `scale`.
  [[nodiscard]] double of_queries(double scale) const { return std::pow(scale, alpha); }
  [[nodiscard]] double of_keys(double scale) const { return std::pow(scale, 1 - alpha); }
};

}  // namespace colonnade::layout
