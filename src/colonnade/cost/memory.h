// Memory plan: bytes that each rank will hold, before any tensor exists: parameters, gradients, optimizer
// states, and the activations that the schedule keeps alive. It counts tensor bytes; allocator rounding,
// communication buffers of libraries and the program itself are extra.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "colonnade/config/run.h"
#include "colonnade/cost/unit_bytes.h"
#include "colonnade/layout/stages.h"
#include "colonnade/schedule/releases.h"

namespace colonnade::cost {

class ModelBlocks;
class ModelCost;

/// Memory of the ranks of one pipeline stage. It is equal over tensor and data ranks, except that shards of
/// the distributed optimizer differ by padding; the largest counts.
struct StageMemory {
  std::vector<layout::StageBlocks> stages;        ///< by model chunk
  std::int64_t num_parameters = 0;                ///< local elements, with padded rows and tied copies
  layout::PerGroup<std::int64_t> group_elements;  ///< flat-buffer elements by parameter group
  std::array<std::int64_t, layout::kNumHeldBy> held_elements{};  ///< flat-buffer elements by layout::HeldBy
  std::int64_t extra_tied_elements = 0;  ///< those of tied embeddings for each other block of this rank that
                                         ///< reads them
  std::int64_t parameters = 0;           ///< bytes of their flat buffer, padding included; with sharded
                                         ///< parameters only this rank's shards
  std::int64_t gradients = 0;            ///< the same for main gradients
  std::int64_t optimizer = 0;      ///< main parameters if stored, and moments; with the distributed optimizer
                                   ///< only this rank's shard
  std::int64_t rotary_tables = 0;  ///< rotary embeddings: cosines and sines
  std::int64_t activations = 0;    ///< peak of saved activations, and of micro-batches in forward; during a
                                   ///< pair of passes (pair_memory.h) they count as workspace
  std::int64_t gathered = 0;       ///< sharded parameters that stay gathered from forward to backward
  std::int64_t workspace = 0;      ///< workspace on top of that at the peak of a backward pass: gradients,
                                   ///< recomputed activations, with --deterministic-mode pending sums, and
                                   ///< `gathered`
  std::int64_t evaluation = 0;     ///< largest tensors of a forward pass that saves nothing
  std::int64_t elements = 0;       ///< elements of the unsharded flat buffer
  std::int64_t init_bucket = 0;    ///< largest unsharded bucket while parameters are initialized
  std::int64_t reduce_copies = 0;  ///< copies of the largest gradient bucket in the reduction dtype, alive
                                   ///< during backward passes with --overlap-grad-reduce, else after them;
                                   ///< part of `workspace`
  std::vector<std::vector<UnitBytes>> units;  ///< by stage and block; empty: no sharding by block and no
                                              ///< copies during backward passes
  int peak_in_flight = 0;                     ///< (micro-batch, chunk) pairs alive at the peak

  [[nodiscard]] std::int64_t elements_of(layout::HeldBy held_by) const {
    return held_elements[static_cast<std::size_t>(held_by)];
  }
  /// Between steps, and during the optimizer step.
  [[nodiscard]] std::int64_t resident() const { return parameters + gradients + optimizer + rotary_tables; }
  /// In forward and backward.
  [[nodiscard]] std::int64_t peak() const { return resident() + activations + workspace; }
  /// In an evaluation.
  [[nodiscard]] std::int64_t evaluation_peak() const { return resident() + evaluation; }
  /// During initialization: values are created in the flat buffer, or in a bucket that is then sharded.
  [[nodiscard]] std::int64_t start_up() const {
    return std::max(resident(), parameters + gradients + rotary_tables + init_bucket);
  }
};

/// The schedule of the run, with global batch / (micro-batch * data size) micro-batches, 1 without a global
/// batch, those of the final size where the batch size grows; with --hybrid-context-parallel those of
/// with_fixed_context_size, while a real step has its own number. Throws ConfigError if that is not an
/// integer.
schedule::Schedule schedule_of(const config::Run& run);
/// The same with another number of micro-batches.
schedule::Schedule schedule_of(const config::Run& run, int microbatches);

/// By pipeline rank. With --hybrid-context-parallel activations are those of with_fixed_context_size. Throws
/// ConfigError if mesh, stages or schedule do.
std::vector<StageMemory> plan_memory(const config::Run& given);
std::vector<StageMemory> plan_memory(const ModelCost& model);

/// Parts of plan_memory, for callers that plan many runs. This one is the memory between steps, which
/// micro-batch size and sequence parallelism do not change.
std::vector<StageMemory> plan_resident(const ModelBlocks& model);
/// Messages and batches in flight during the passes, by rank and position in its program; `held` as in
/// resident_message_bytes. They do not depend on data sharding and recomputation.
struct InFlightBytes {
  std::vector<std::vector<std::int64_t>> receiving, held;
};
InFlightBytes in_flight_bytes(const ModelCost& model, const schedule::CheckedSchedule& sound,
                              const std::vector<StageMemory>& plan);
/// Peak of a rank's saved activations, and peak with all workspace. Only the plan's stages and units are
/// read.
struct ActivationPeak {
  std::int64_t saved = 0, total = 0;
};
std::vector<ActivationPeak> activation_peaks(const ModelCost& model, const schedule::CheckedSchedule& sound,
                                             const InFlightBytes& in_flight,
                                             const std::vector<StageMemory>& plan);
void add_activations(const std::vector<ActivationPeak>& peaks, const schedule::CheckedSchedule& sound,
                     std::vector<StageMemory>& plan);
/// The run with the batch sizes of its evaluation steps (--eval-global-batch-size, --eval-micro-batch-size).
config::Run evaluation_run(config::Run run);
/// Adds evaluations, with the batch sizes of `model`: the largest tensors of a forward pass that saves
/// nothing, with the batches and messages in flight.
void add_evaluations(const ModelCost& model, const schedule::CheckedSchedule& sound,
                     std::vector<StageMemory>& plan);
/// Peak bytes (max over ranks) of start-up, training steps, and evaluations if there are any.
std::int64_t max_peak_bytes(const config::Run& run, const std::vector<StageMemory>& plan);

/// Megatron's memory estimate (max over ranks), in bytes.
/// Source: Megatron's training/theoretical_memory_usage.py.
struct TheoreticalMemory {
  double weights_and_optimizer = 0;
  double activations = 0;
};
/// `selective_recompute`: Megatron's --recompute-activations together with sequence parallelism.
TheoreticalMemory theoretical_memory(const config::Run& run, bool selective_recompute);

}  // namespace colonnade::cost
