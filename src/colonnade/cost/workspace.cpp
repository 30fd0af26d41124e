// Peak workspace of backward passes on top of the saved activations.
#include <algorithm>
#include <utility>

#include "colonnade/cost/activations.h"
#include "colonnade/cost/pair_memory.h"
#include "colonnade/layout/recompute.h"

namespace colonnade::cost {
namespace {

using layout::BlockId;
using layout::BlockKind;

/// Backward pass of a stage, unit by unit, last block first.
class StageBackward {
 public:
  StageBackward(const ModelCost& model, const layout::StageBlocks& stage, bool delay_wgrad,
                const std::vector<UnitBytes>& units)
      : model_(model), stage_(stage), units_(units), left_(units.size()), tracker_(stage, delay_wgrad) {}

  std::int64_t peak() {
    auto block = stage_.blocks.rbegin();
    const auto end = stage_.blocks.rend();
    if (block != end && is_after_layers(*block)) {
      start_unit();
      for (; block != end && is_after_layers(*block); ++block) {
        model_.block(*block).backward(tracker_);
        waits_ += model_.block(*block).backward_waits();
      }
      reduce_unit();
    }
    layers();
    if (stage_.has(BlockKind::kEmbedding)) {
      start_unit();
      model_.block({BlockKind::kEmbedding}).backward(tracker_);
      reduce_unit();
    }
    if (stage_.empty()) return stage_.states_in * model_.hidden();
    return std::max(tracker_.peak(), model_.hidden());
  }
  /// After peak(): its units in the order of the pass.
  [[nodiscard]] std::vector<PassPart> parts() const { return parts_; }

 private:
  static bool is_after_layers(const BlockId& block) {
    return block.kind != BlockKind::kLayer && block.kind != BlockKind::kEmbedding;
  }

  void layers() {
    std::int64_t layer = stage_.layers().last;
    const auto spans = layout::recompute_spans(model_.run().recompute, stage_.layers().size());
    const std::int64_t first_saved =
        stage_.layers().first + layout::recomputed_layers(model_.run().recompute, stage_.layers().size());
    while (layer > first_saved) {
      start_unit();
      model_.block({BlockKind::kLayer, --layer}).backward(tracker_);
      if (!model_.is_custom()) waits_ += model_.layer(layer).backward_waits();
      reduce_unit();
    }
    for (auto length = spans.rbegin(); length != spans.rend(); ++length) {
      recomputed_span(layer - *length, layer);
      layer -= *length;
    }
  }

  /// A recomputed span holds its activations, instead of its input, until its backward pass is done.
  void recomputed_span(std::int64_t first, std::int64_t last) {
    tracker_.release(model_.hidden(), 0);
    for (std::int64_t i = first; i < last; ++i) tracker_.allocate(model_.layer(i).saved());
    start_unit();
    tracker_.transient(model_.hidden() + model_.layer(last - 1).output_workspace());
    for (std::int64_t i = last; i > first; --i) {
      model_.layer(i - 1).backward(tracker_);
      waits_ += model_.layer(i - 1).forward_waits() + model_.layer(i - 1).backward_waits();
    }
    reduce_unit();
  }

  void start_unit() { tracker_.start_unit(left_ > 0 ? units_[--left_] : UnitBytes()); }
  void reduce_unit() {
    tracker_.reduce_unit(model_.hidden());
    parts_.push_back(
        {.peak = tracker_.unit_peak(), .after = tracker_.now(), .hand_overs = std::exchange(waits_, 0)});
  }

  const ModelCost& model_;
  const layout::StageBlocks& stage_;
  const std::vector<UnitBytes>& units_;
  std::size_t left_;  ///< units not yet processed
  StageTracker tracker_;
  int waits_ = 0;  ///< of the current unit
  std::vector<PassPart> parts_;
};

/// Delayed weight-gradient pass of a stage, unit by unit.
class WeightGradients {
 public:
  explicit WeightGradients(const std::vector<UnitBytes>& units) : units_(units), left_(units.size()) {}

  /// A unit whose largest weight gradient and saved inputs have these bytes.
  void compute(std::int64_t gradient, std::int64_t saved) {
    const UnitBytes unit = left_ > 0 ? units_[--left_] : UnitBytes();
    peak_ = std::max(peak_, now_ + gradient + unit.backward_weight);
    now_ -= saved;
    peak_ = std::max(peak_, now_ + unit.reduce_weight);
    now_ += unit.pending_sum;
  }
  [[nodiscard]] std::int64_t peak() const { return peak_; }

 private:
  const std::vector<UnitBytes>& units_;
  std::size_t left_;
  std::int64_t now_ = 0, peak_ = 0;
};

}  // namespace

std::int64_t stage_workspace(const ModelCost& model, const layout::StageBlocks& stage, bool delay_wgrad,
                             const std::vector<UnitBytes>& units) {
  return StageBackward(model, stage, delay_wgrad, units).peak();
}

std::vector<PassPart> backward_parts(const ModelCost& model, const layout::StageBlocks& stage,
                                     bool delay_wgrad, const std::vector<UnitBytes>& units) {
  StageBackward pass(model, stage, delay_wgrad, units);
  pass.peak();
  return pass.parts();
}

std::int64_t stage_wgrad_workspace(const ModelCost& model, const layout::StageBlocks& stage,
                                   const std::vector<UnitBytes>& units) {
  WeightGradients pass(units);
  std::int64_t gradient = 0, saved = 0;
  const auto add = [&](const BlockCost& block) {
    gradient = std::max(gradient, block.largest_weight_gradient());
    saved += block.wgrad_saved();
  };
  const auto compute = [&] {
    pass.compute(gradient, saved);
    gradient = saved = 0;
  };
  bool has_end = false;  // blocks after the layers are one unit
  for (const BlockId& block : stage.blocks) {
    if (block.kind == BlockKind::kLayer || block.kind == BlockKind::kEmbedding) continue;
    add(model.block(block));
    has_end = true;
  }
  if (has_end) compute();
  auto spans = layout::recompute_spans(model.run().recompute, stage.layers().size());
  std::int64_t layer = stage.layers().last;
  const std::int64_t recomputed = layout::recomputed_layers(model.run().recompute, stage.layers().size());
  spans.insert(spans.end(), static_cast<std::size_t>(stage.layers().size() - recomputed), 1);
  for (auto length = spans.rbegin(); length != spans.rend(); ++length) {
    for (std::int64_t i = 0; i < *length; ++i) add(model.block({BlockKind::kLayer, --layer}));
    compute();
  }
  return pass.peak();
}

}  // namespace colonnade::cost
