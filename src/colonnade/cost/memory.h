// What each rank will hold, in bytes, before a tensor exists: parameters, gradients, optimizer
// states, and the activations that the schedule keeps alive.
// Counted are bytes of tensors; the allocator's rounding, communication buffers of libraries and the
// program itself come on top.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "colonnade/config/run.h"
#include "colonnade/cost/activations.h"
#include "colonnade/layout/stages.h"
#include "colonnade/schedule/releases.h"

namespace colonnade::cost {

/// The ranks of one pipeline coordinate; over tensor and data ranks the numbers are equal, but for the
/// optimizer's: with the distributed one its shards differ by filling, and the largest counts.
struct StageMemory {
  std::vector<layout::StageBlocks> stages;  ///< by chunk
  std::int64_t num_parameters = 0;          ///< local elements, with filling rows and tied copies
  std::int64_t expert_elements = 0;         ///< of the flat buffer: those of experts
  std::int64_t tied_elements = 0;  ///< of the flat buffer: of the table that the end of the model reads too
  std::int64_t read_again = 0;     ///< the same for each block of this rank that reads it behind another
  std::int64_t encoder_elements = 0;  ///< of the flat buffer: of the encoder's relative positions
  std::int64_t decoder_elements = 0;  ///< the decoder's
  std::int64_t parameters = 0;   ///< bytes of the flat buffer, in params_dtype, with its filling; of this
                                 ///< rank's parts, where parameters are sharded
  std::int64_t gradients = 0;    ///< bytes of the flat buffer, fp32; the same
  std::int64_t optimizer = 0;    ///< fp32 main parameters under 16-bit ones, moments; its shard with
                                 ///< the distributed optimizer
  std::int64_t tables = 0;       ///< rotary angles
  std::int64_t activations = 0;  ///< most that the schedule keeps between forward and backward, and the
                                 ///< micro-batches in forward
  std::int64_t gathered = 0;     ///< whole values that stay from forward to backward, where they are cut
  std::int64_t working = 0;      ///< what the fullest moment of a backward pass adds to that: gradients,
                                 ///< activations made again, with --deterministic-mode sums that
                                 ///< wait for their like, and `gathered`
  std::int64_t evaluation = 0;   ///< largest tensors of a forward pass that keeps nothing
  std::int64_t elements = 0;     ///< of the flat buffer, whole
  std::int64_t making = 0;       ///< bytes of the largest bucket whole: what is cut of it when it is made
  std::int64_t travelling = 0;   ///< copies of the largest bucket's gradients in another type than the sums,
                                 ///< beside backward passes with --overlap-grad-reduce, else behind them;
                                 ///< part of `working`
  std::vector<std::vector<UnitBytes>> units;  ///< by stage and block; empty: nothing is cut by block, and no
                                              ///< copies travel beside it
  int peak_live = 0;                          ///< (micro-batch, chunk) pairs at that moment, at most

  /// Between steps, and while the optimizer steps.
  [[nodiscard]] std::int64_t resident() const { return parameters + gradients + optimizer + tables; }
  /// In forward and backward.
  [[nodiscard]] std::int64_t peak() const { return resident() + activations + working; }
  /// In forward alone.
  [[nodiscard]] std::int64_t evaluation_peak() const { return resident() + evaluation; }
  /// While the job is built: initial values are made in the flat buffer, or in a bucket that is cut then.
  [[nodiscard]] std::int64_t start_up() const {
    return std::max(resident(), parameters + gradients + tables + making);
  }
};

/// The schedule that the run executes, with global batch / (micro-batch * data size) micro-batches, 1
/// when no global batch is set; with --hybrid-context-parallel as many as with_equal_groups has, though a
/// step has its own. Throws ConfigError when that is not whole.
schedule::Schedule schedule_of(const config::Run& run);
/// The same with another number of micro-batches.
schedule::Schedule schedule_of(const config::Run& run, int microbatches);

/// By pipeline coordinate. With --hybrid-context-parallel activations are those of with_equal_groups. Throws
/// ConfigError where mesh, stages or schedule do.
std::vector<StageMemory> plan_memory(const config::Run& given);

/// The parts of its training, for those who plan many runs. What lies between steps, which micro-batch and
/// sequence parallelism do not change:
std::vector<StageMemory> plan_resident(const config::Run& run);
/// Messages and batches beside the passes, by rank and place in its program, `held` as held_messages. They
/// are the same whatever data ranks share and whatever is made again.
struct BytesBeside {
  std::vector<std::vector<std::int64_t>> arriving, held;
};
BytesBeside bytes_beside(const config::Run& run, const schedule::SoundSchedule& sound,
                         const std::vector<StageMemory>& plan);
/// By rank most that passes keep, and most of that with all that they add. Of the plan the stages and units
/// are read.
struct PassPeak {
  std::int64_t kept = 0, all = 0;
};
std::vector<PassPeak> peaks_of_passes(const config::Run& run, const schedule::SoundSchedule& sound,
                                      const BytesBeside& beside, const std::vector<StageMemory>& plan);
void add_passes(const std::vector<PassPeak>& peaks, const schedule::SoundSchedule& sound,
                std::vector<StageMemory>& plan);
/// What its evaluations add to what lies between steps.
void add_evaluations(const config::Run& run, const schedule::SoundSchedule& sound,
                     std::vector<StageMemory>& plan);
/// Bytes of the fullest rank at its fullest moment: at the start, in a step, and in an evaluation where there
/// are any.
std::int64_t fullest_bytes(const config::Run& run, const std::vector<StageMemory>& plan);

/// Megatron's estimate of the fullest rank, in bytes.
/// Source: Megatron's training/theoretical_memory_usage.py.
struct TheoreticalMemory {
  double weights_and_optimizer = 0;
  double activations = 0;
};
/// `selective_recompute`: Megatron's --recompute-activations together with sequence parallelism.
TheoreticalMemory theoretical_memory(const config::Run& run, bool selective_recompute);

}  // namespace colonnade::cost
