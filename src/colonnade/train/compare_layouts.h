// Trains two layouts of one run side by side and compares all values: whether they agree, else where they
// first differ.
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

/// Difference between a value in one layout and in the other.
///   losses and the gradient norm   |a - b| / |a|
///   tensors                        |a - b| / max(|a|, 1e-5 |all tensors of this kind|), Euclidean norms
/// Below float64, elements of a parameter are left out once their gradient was mere rounding on both sides,
/// below 1e-6 of the step's largest one: Adam moves them by the full learning rate in either direction (e.g.
/// key biases, to which softmax is invariant).
struct ValueDifference {
  int step = 0;      ///< from 1
  std::string what;  ///< "lm_loss", "gradient of decoder.layers.0.mlp.linear_fc1.weight", ...
  double distance = 0;
  double bound = 0;
  [[nodiscard]] bool exceeds_bound() const { return !(distance <= bound); }  ///< true for a NaN
};

struct Comparison {
  /// A step that both runs skip is repeated; of skipped steps only losses are compared.
  int steps = 0;  ///< steps with compared gradients and parameters
  int skipped = 0;
  /// The first value beyond its bound in the order of computation: losses, gradients from the last block to
  /// the first, gradient norm, updated parameters. None: the layouts agree.
  std::optional<ValueDifference> first;
  /// With `first`: the same in float64, where rounding is 2^-29 of that in fp32. None: it was rounding.
  std::optional<ValueDifference> first_in_float64;
  std::vector<ValueDifference> largest;  ///< the largest difference of each kind of value over all steps
  [[nodiscard]] bool agree() const { return !first && steps > 0; }
};

/// One layout of a run: the complete, checked run, its model builder, and an optional wrapper around the
/// group factory of its thread ranks.
struct LayoutRun {
  config::Run run;
  job::ModelBuilder builder = job::build_model;
  std::function<std::shared_ptr<comm::GroupFactory>(std::shared_ptr<comm::GroupFactory>)> wrap_factory = {};
};

/// Dtypes of the settings; or config::Dtypes::in_float64(), where gradients are reduced in float64 too.
enum class Precision { kFromSettings, kFloat64 };

struct StepResults;

/// Results of the first steps of a run.
struct TrainedLayout {
  config::Run run;
  Precision precision = Precision::kFromSettings;
  std::shared_ptr<const std::vector<StepResults>> steps;
};

/// The training samples of a run, the same for all its layouts.
std::unique_ptr<data::Batches> training_samples(const config::Run& run);

/// Trains `steps` steps from the seed's weights, with ranks as threads of this process on the CPU. A step
/// that a dynamic loss scale skips is repeated with the next scale, up to a hundred times in all.
TrainedLayout train_layout(const LayoutRun& layout, const data::Batches& samples, int steps,
                           Precision precision = Precision::kFromSettings);

/// Compares every loss, gradient and updated parameter by its global name, for as many steps as both runs
/// have. Both need the same precision; `first_in_float64` stays empty. Bounds in fp32: losses 2e-5, gradient
/// norm 1e-4, tensors 1e-3; a hundred times as much with 16-bit parameters; in float64 1e-9. Values
/// replicated over ranks must also agree among them. Throws ConfigError when the runs differ in more than
/// their layouts.
Comparison compare(const TrainedLayout& a, const TrainedLayout& b);

/// Trains `steps` steps of both and compares them; where they differ, in float64 too.
Comparison compare_layouts(const LayoutRun& a, const LayoutRun& b, int steps);

/// One line for each setting by whose definition the two layouts compute different results, e.g. a capacity
/// that counts the tokens of one rank. When empty, a difference beyond rounding is a defect.
std::vector<std::string> expected_differences(const config::Run& a, const config::Run& b);

/// Flags of settings that are not part of the layout and differ; both runs need the same values.
std::vector<std::string> differing_settings(const config::Run& a, const config::Run& b);

}  // namespace colonnade::train
