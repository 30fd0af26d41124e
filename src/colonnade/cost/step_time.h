// An estimate of the time of one training step, out of settings and a hardware file. docs/guide/planning.md
// says what it assumes; docs/benchmarks.md holds it against published times.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "colonnade/config/run.h"
#include "colonnade/cost/describe.h"
#include "colonnade/cost/hardware.h"
#include "colonnade/cost/step_passes.h"

namespace colonnade::cost {

/// Elements of parameters on one rank, by the ranks that hold the same ones.
struct Elements {
  double dense = 0, expert = 0;
  [[nodiscard]] double all() const { return dense + expert; }
  Elements& operator+=(const Elements& other);
};

/// By block. Depends on the model and on the sizes of the tensor, expert and expert tensor axes alone.
struct LocalSizes {
  Elements embedding, final_norm, head;
  std::vector<Elements> up_to_layer;  ///< [i]: layers 0 .. i-1 together
  Elements words;                     ///< the table, part of `embedding`; copies of it count apart
};
LocalSizes local_sizes(const config::Run& run);

/// Seconds. `step` is the sum of the other parts.
struct StepTime {
  double step = 0;
  double compute = 0;    ///< products, attention and elementwise passes of the rank that has most
  double tensor = 0;     ///< its waiting for sums over the tensor ranks
  double context = 0;    ///< its waiting for keys of the context ranks
  double experts = 0;    ///< its waiting for rows on their way to experts and back
  double bubble = 0;     ///< its waiting for other stages
  double data = 0;       ///< gradients summed and parameters gathered that nothing hides
  double optimizer = 0;  ///< norm, update, gradients set to zero
  double other = 0;      ///< Hardware::step_seconds
  double tokens_per_second_per_device = 0;
  /// training_flops (causal half) of the step against the peak of all devices, of fp32 in such a run.
  double mfu = 0;
};

/// Throws ConfigError where the mesh, the stages or the schedule of the settings do.
StepTime estimate_step(const config::Run& run, const Hardware& hardware, const Execution& execution = {});
/// The same with what many runs have in common, for a search.
StepTime estimate_step(const config::Run& run, const Hardware& hardware, const LocalSizes& sizes,
                       const StepPasses& passes);

/// One line per part, with its share of the step.
Table step_time_table(const StepTime& time);
/// The table with step, tokens/s and MFU above it.
std::string step_time_text(const StepTime& time, const Hardware& hardware);

}  // namespace colonnade::cost
