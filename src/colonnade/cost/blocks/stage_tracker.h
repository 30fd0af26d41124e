// Memory during the backward pass of a virtual stage.
#pragma once

#include <algorithm>

#include "colonnade/cost/unit_bytes.h"
#include "colonnade/layout/blocks.h"

namespace colonnade::cost {

/// Bytes alive during a stage's backward pass, relative to the saved activations at its start, with their
/// peak. Blocks run their backward pass on it, the last one first.
class StageTracker {
 public:
  StageTracker(const layout::StageBlocks& stage, bool delay_wgrad)
      : stage_(stage), delay_wgrad_(delay_wgrad) {}

  /// The next blocks form one FSDP unit, which has these bytes.
  void start_unit(const UnitBytes& unit) {
    unit_ = unit;
    unit_peak_ = now_;
  }
  /// The gradients of the unit are complete and are reduce-scattered, alongside `hidden` bytes.
  void reduce_unit(std::int64_t hidden) {
    now_ -= unit_.kept_params;
    raise(hidden + (delay_wgrad_ ? unit_.reduce_input : unit_.reduce));
    if (!delay_wgrad_) now_ += unit_.pending_sum;
  }
  /// The same for gradients of parameters with replicas of their own (layout::ParamGroup).
  void reduce_own_group(std::int64_t bytes) {
    if (!delay_wgrad_ && unit_.reduce_own_group > 0) raise(unit_.reduce_own_group + bytes);
  }

  /// `bytes` alive for a moment on top of the current ones and those of the unit.
  void transient(std::int64_t bytes) {
    raise(bytes + (delay_wgrad_ ? unit_.backward_input : unit_.backward));
  }
  void allocate(std::int64_t bytes) { now_ += bytes; }
  /// Frees `saved` activations, except `wgrad_saved` with delayed weight gradients.
  void release(std::int64_t saved, std::int64_t wgrad_saved) {
    now_ += (delay_wgrad_ ? wgrad_saved : 0) - saved;
  }

  [[nodiscard]] const layout::StageBlocks& stage() const { return stage_; }
  [[nodiscard]] bool delay_wgrad() const { return delay_wgrad_; }
  [[nodiscard]] std::int64_t peak() const { return peak_; }
  [[nodiscard]] std::int64_t unit_peak() const { return unit_peak_; }  ///< since start_unit()
  [[nodiscard]] std::int64_t now() const { return now_; }

 private:
  void raise(std::int64_t bytes) {
    peak_ = std::max(peak_, now_ + bytes);
    unit_peak_ = std::max(unit_peak_, now_ + bytes);
  }

  const layout::StageBlocks& stage_;
  bool delay_wgrad_;
  UnitBytes unit_;
  std::int64_t now_ = 0, peak_ = 0, unit_peak_ = 0;
};

}  // namespace colonnade::cost
