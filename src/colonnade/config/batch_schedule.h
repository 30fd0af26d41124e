// Global batch sizes of a run whose batch size grows.
// Source: Megatron's core/num_microbatches_calculator.py; --rampup-batch-size as until April 2026.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "colonnade/config/run.h"

namespace colonnade::config {

/// The global batch size of every step as a function of the samples consumed before it. All methods are exact
/// integer arithmetic, in time proportional to the number of sizes.
class BatchSchedule {
 public:
  /// Steps that begin after at least `from_samples` consumed samples have this size.
  struct Size {
    std::int64_t from_samples = 0;
    std::int64_t global_batch_size = 0;
    friend bool operator==(const Size&, const Size&) = default;
  };

  explicit BatchSchedule(std::int64_t global_batch_size) : sizes_{{0, global_batch_size}} {}
  /// `sizes` begin at 0 samples, in increasing order. Of several sizes from the same sample the last counts,
  /// and a size equal to the one before it is dropped.
  explicit BatchSchedule(const std::vector<Size>& sizes);

  /// Size of the step that begins after `consumed` samples.
  [[nodiscard]] std::int64_t batch_size_at(std::int64_t consumed) const;
  /// Consumed samples after `steps` more steps.
  [[nodiscard]] std::int64_t samples_after(std::int64_t consumed, std::int64_t steps) const;
  /// Steps that read whole global batches within [consumed, end).
  [[nodiscard]] std::int64_t steps_within(std::int64_t consumed, std::int64_t end) const;

  [[nodiscard]] bool is_constant() const { return sizes_.size() == 1; }
  [[nodiscard]] std::int64_t final_size() const { return sizes_.back().global_batch_size; }
  [[nodiscard]] const std::vector<Size>& sizes() const { return sizes_; }
  /// "768, 1536 from 61035156 samples"; with more than four sizes "16 to 1536, 96 sizes up to 5859375
  /// samples".
  [[nodiscard]] std::string text() const;

 private:
  [[nodiscard]] std::size_t index_at(std::int64_t consumed) const;

  std::vector<Size> sizes_;
};

/// The schedule of a derived run: of --step-batch-size-schedule or --rampup-batch-size, else constant. With
/// --decrease-batch-size-if-needed each size is rounded down to a multiple of Training::batch_multiple.
/// Faulty values (step_schedule_fault, rampup_fault) yield the constant --global-batch-size: rules::check
/// reports them.
///
///   step schedule  the size of the last entry with consumed >= tokens / seq_length (rounded down)
///   ramp           start + floor(consumed / (samples / n)) * increment, n = (global - start) / increment, in
///                  float64 as in Megatron; the global batch size once consumed exceeds `samples`
BatchSchedule batch_schedule(const Training& training);
/// batch_schedule(training).final_size(), without memory where the batch size is constant.
std::int64_t final_batch_size(const Training& training);

/// The final size of --step-batch-size-schedule; 0 without one or if it cannot be parsed.
std::int64_t final_size_of_step_schedule(const Training& training);

/// Violated rule of a value, as in "must begin at 0 tokens"; "" if there is none or no such flag.
std::string step_schedule_fault(const Training& training);
std::string rampup_fault(const Training& training);

/// Samples of an evaluation step: --eval-global-batch-size, else the final size of the run.
std::int64_t eval_batch_size(const Training& training);
/// Samples of a micro-batch of an evaluation step: --eval-micro-batch-size, else those of training.
std::int64_t eval_micro_batch_size(const Training& training);
/// Whether evaluation steps may have another size than the last training steps.
bool has_eval_batch_size(const Training& training);

/// The settings of a run in which every step has this size.
Training with_constant_batch_size(Training training, std::int64_t global_batch_size);

}  // namespace colonnade::config
