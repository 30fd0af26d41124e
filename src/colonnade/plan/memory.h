// What each rank will hold, in bytes, before a tensor exists: parameters, gradients, optimizer
// states, and the activations that the schedule keeps alive.
// Counted are bytes of tensors; the allocator's rounding, communication buffers of libraries and the
// program itself come on top.
#pragma once

#include <cstdint>
#include <vector>

#include "colonnade/config/run.h"
#include "colonnade/plan/program.h"
#include "colonnade/plan/stages.h"

namespace colonnade::plan {

/// The ranks of one pipeline coordinate; over tensor and data ranks the numbers are equal (the last
/// rank of a distributed optimizer may hold a little less).
struct StageMemory {
  std::vector<StageBlocks> stages;  ///< by chunk
  std::int64_t num_parameters = 0;  ///< local elements, with filling and tied copies
  std::int64_t parameters = 0;      ///< bytes, in params_dtype
  std::int64_t gradients = 0;       ///< fp32, for every parameter
  std::int64_t optimizer = 0;       ///< fp32 main parameters under 16-bit ones, moments; its shard with
                                    ///< the distributed optimizer
  std::int64_t activations = 0;     ///< most that the schedule keeps between forward and backward
  std::int64_t working = 0;         ///< largest temporary tensors of one forward or backward
  int peak_live = 0;                ///< (micro-batch, chunk) pairs at that moment, at most

  /// Between steps, and while the optimizer steps.
  [[nodiscard]] std::int64_t resident() const { return parameters + gradients + optimizer; }
  /// In forward and backward.
  [[nodiscard]] std::int64_t peak() const { return resident() + activations + working; }
};

/// The schedule that the run executes, with global batch / (micro-batch * data size) micro-batches, 1
/// when no global batch is set. Throws ConfigError when that is not whole.
Schedule schedule_of(const config::Run& run);

/// By pipeline coordinate. Throws ConfigError where mesh, stages or schedule do.
std::vector<StageMemory> plan_memory(const config::Run& run);

/// Bytes that one virtual stage keeps from a micro-batch's forward until its backward, with t tensor
/// ranks, n = s*b tokens, r = n/t with sequence parallelism and n without, element size e:
///   each layer  r h e 4 (two norm inputs and outputs) + r (statistics of two norms)
///               + n e (q + 2 kv)/t (and (q + kv)/t before q/k norms) + n e q/t (attention output,
///               twice when b > 1) + n 4 heads/t (log-sum-exp)
///               + n e ffn (2, gated 3)/t (fc1 and activation outputs)
///   attention dropout adds the scores, 2 e b s^2 heads/t
///   head        r h e 2 + r (statistics) + n e V/t (logits) + 16 n
///   other stages keep their output, r h e
std::int64_t stage_activations(const config::Run& run, const StageBlocks& stage);

/// Megatron's estimate of the fullest rank, in bytes.
/// Source: Megatron's training/theoretical_memory_usage.py.
struct TheoreticalMemory {
  double weights_and_optimizer = 0;
  double activations = 0;
};
/// `selective_recompute`: Megatron's --recompute-activations together with sequence parallelism.
TheoreticalMemory theoretical_memory(const config::Run& run, bool selective_recompute);

}  // namespace colonnade::plan
