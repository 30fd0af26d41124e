// Estimated time of one training step from settings and a hardware file. docs/guide/planning.md lists its
// assumptions; docs/benchmarks.md compares it with published times.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "colonnade/config/run.h"
#include "colonnade/cost/describe.h"
#include "colonnade/cost/forward_backward_time.h"
#include "colonnade/cost/hardware.h"
#include "colonnade/layout/blocks.h"
#include "colonnade/layout/param.h"

namespace colonnade::cost {

/// Local parameter elements by parameter group, which decides their replicas.
struct Elements : layout::PerGroup<double> {
  [[nodiscard]] double all() const;
  Elements& operator+=(const Elements& other);
  Elements& operator-=(const Elements& other);
};

/// Local elements by block, and FLOPs. They depend only on the model and the sizes of the model axes
/// (layout::model_axes).
struct LocalSizes {
  std::vector<Elements> before_block;  ///< [i]: sum of the model's blocks 0 .. i-1
  Elements word_embeddings;            ///< part of the first block; tied copies count separately
  ForwardFlops flops;                  ///< of one sample
  /// FLOPs of Muon's Newton-Schulz steps over the matrices of blocks 0 .. i-1, of all ranks of a stage
  /// together; empty for other optimizers.
  std::vector<double> newton_schulz_before_block;
};
LocalSizes local_sizes(const ModelCost& model);

/// Seconds of a step and its parts; `step` is their sum.
struct StepTime {
  double step = 0;
  double compute = 0;    ///< matmuls, attention and elementwise kernels of the busiest rank
  double tensor = 0;     ///< exposed tensor-parallel communication of that rank
  double context = 0;    ///< exposed context-parallel communication of that rank
  double dispatch = 0;   ///< exposed token dispatch and combine of that rank
  double bubble = 0;     ///< pipeline bubble of that rank
  double data = 0;       ///< exposed gradient reductions and parameter all-gathers
  double optimizer = 0;  ///< gradient norm, update with its communication, zeroing of gradients
  double other = 0;      ///< Hardware::step_seconds
  double tokens_per_second_per_device = 0;
  /// training_flops (causal half) of the step relative to the peak of all devices; the fp32 peak for fp32
  /// runs.
  double mfu = 0;
};

/// Throws ConfigError if mesh, stages or schedule do.
StepTime estimate_step(const config::Run& run, const Hardware& hardware, const Execution& execution = {});
StepTime estimate_step(const ModelCost& model, const Hardware& hardware, const Execution& execution = {});
/// The same with precomputed parts that many runs of a search share.
StepTime estimate_step(const config::Run& run, const Hardware& hardware, const LocalSizes& sizes,
                       const ForwardBackwardTime& passes);

/// A row per part, with its share of the step.
Table step_time_table(const StepTime& time);
/// The table, preceded by step time, tokens/s and MFU.
std::string step_time_text(const StepTime& time, const Hardware& hardware);

}  // namespace colonnade::cost
