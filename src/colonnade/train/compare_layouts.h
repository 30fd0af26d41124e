// Two layouts of one run, trained side by side: whether they compute the same, and if not, where they part.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "colonnade/comm/communicators.h"
#include "colonnade/config/run.h"
#include "colonnade/data/batches.h"
#include "colonnade/job/model.h"

namespace colonnade::train {

/// How far a value of one layout is from that of the other.
///   losses and the gradient norm   |a - b| / |a|
///   tensors                        |a - b| / max(|a|, 1e-5 |all tensors of this kind|), Euclidean norms
/// Below float64, elements of a parameter are left out once their gradient was rounding on both sides, below
/// 1e-6 of the largest one of the step: Adam moves them by its whole rate in either direction (biases of
/// keys, which softmax does not see).
struct Apart {
  int step = 0;      ///< from 1
  std::string what;  ///< "lm_loss", "gradient of decoder.layers.0.mlp.linear_fc1.weight", ...
  double distance = 0;
  double bound = 0;
  [[nodiscard]] bool beyond() const { return !(distance <= bound); }  ///< a NaN is
};

struct Comparison {
  /// A step that both sides skip is tried again; of such tries losses alone are compared.
  int steps = 0;  ///< whose gradients and parameters were compared
  int skipped = 0;
  /// The first value that is beyond its bound, in the order in which a step makes them: losses, gradients
  /// from the last block to the first, gradient norm, updated parameters. None: the layouts agree.
  std::optional<Apart> first;
  /// Only with `first`: the same in float64, where rounding is 2^-29 of that of fp32. None: it was rounding.
  std::optional<Apart> first_in_float64;
  std::vector<Apart>
      farthest;  ///< of each kind of value, of all steps, the one nearest to its bound or beyond
  [[nodiscard]] bool agree() const { return !first && steps > 0; }
};

/// A run that is complete and sound, what builds its model, and what its ranks talk through: a factory over
/// the one that makes groups of threads. None: that one itself.
struct Side {
  config::Run run;
  job::ModelBuilder builder = job::build_model;
  std::function<std::shared_ptr<comm::GroupFactory>(std::shared_ptr<comm::GroupFactory>)> between = {};
};

/// The type of parameters and activations.
enum class Precision { kOfSettings, kFloat64 };

struct Seen;  // of one step

/// What the ranks of a run computed together in its first steps.
struct Trained {
  config::Run run;
  Precision precision = Precision::kOfSettings;
  std::shared_ptr<const std::vector<Seen>> steps;
};

/// The training samples of a run, which are those of all its layouts.
std::unique_ptr<data::Batches> samples_of(const config::Run& run);

/// Trains `steps` steps from the weights of the seed, ranks as threads of this process on the CPU. A step
/// that a dynamic loss scale skips is tried again with the scale that follows, up to a hundred times in all.
Trained train_layout(const Side& side, const data::Batches& samples, int steps,
                     Precision precision = Precision::kOfSettings);

/// Compares every loss, gradient and updated parameter by its global name, of as many steps as both have;
/// both are of one precision, and `first_in_float64` stays empty. Bounds in fp32: losses 2e-5, gradient norm
/// 1e-4, tensors 1e-3; a hundred times as much with 16-bit parameters; in float64 1e-9. Values that several
/// ranks hold must agree among them too. Throws ConfigError when the runs are not the same but for their
/// layouts.
Comparison compare(const Trained& a, const Trained& b);

/// Trains `steps` steps of both and compares them, in float64 too when they part.
Comparison compare_layouts(const Side& a, const Side& b, int steps);

/// A line for each setting by whose definition the two layouts compute different things, such as a capacity
/// that counts the tokens of one rank; empty when a difference beyond rounding is a defect.
std::vector<std::string> apart_by_definition(const config::Run& a, const config::Run& b);

/// Flags of settings that are not of the layout and differ; both runs must have none.
std::vector<std::string> unlike_settings(const config::Run& a, const config::Run& b);

}  // namespace colonnade::train
