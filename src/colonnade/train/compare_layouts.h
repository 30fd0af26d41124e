// Two layouts of one run, trained side by side: whether they compute the same, and if not, where they part.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "colonnade/config/run.h"
#include "colonnade/job/model.h"

namespace colonnade::train {

/// How far a value of one layout is from that of the other.
///   losses and the gradient norm   |a - b| / |a|
///   tensors                        |a - b| / max(|a|, 1e-5 |all tensors of this kind|), Euclidean norms
struct Apart {
  int step = 0;      ///< from 1
  std::string what;  ///< "lm_loss", "gradient of decoder.layers.0.mlp.linear_fc1.weight", ...
  double distance = 0;
  double bound = 0;
  [[nodiscard]] bool beyond() const { return !(distance <= bound); }  ///< a NaN is
};

struct Comparison {
  /// The first value that is beyond its bound, in the order in which a step makes them: losses, gradients
  /// from the last block to the first, gradient norm, updated parameters. None: the layouts agree.
  std::optional<Apart> first;
  /// Only with `first`: the same in float64, where rounding is 2^-29 of that of fp32. None: it was rounding.
  std::optional<Apart> first_in_float64;
  std::vector<Apart>
      farthest;  ///< of each kind of value, of all steps, the one nearest to its bound or beyond
};

/// A run that is complete and sound, and what builds its model.
struct Side {
  config::Run run;
  job::ModelBuilder builder = job::build_gpt;
};

/// Trains `steps` steps of both from the same weights and samples, ranks as threads
/// of this process on the CPU, and compares every loss, gradient and updated parameter by its global name.
/// Bounds in fp32: losses 2e-5, gradient norm 1e-4, tensors 1e-3; a hundred times as much with 16-bit
/// parameters; in float64 1e-9. Values that several ranks hold must agree among them too. Throws ConfigError
/// when the runs are not the same but for their layouts.
Comparison compare_layouts(Side a, Side b, int steps);

/// Flags of settings that are not of the layout and differ; both runs must have none.
std::vector<std::string> unlike_settings(const config::Run& a, const config::Run& b);

}  // namespace colonnade::train
