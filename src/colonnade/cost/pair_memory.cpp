// See pair_memory.h; workspace.cpp has the parts of a backward pass.
#include "colonnade/cost/pair_memory.h"

#include <algorithm>

#include "colonnade/layout/recompute.h"

namespace colonnade::cost {
namespace {

/// Progress of one pass.
class PassProgress {
 public:
  explicit PassProgress(const std::vector<PassPart>& parts) : parts_(parts) { enter(); }

  [[nodiscard]] bool ended() const { return part_ == parts_.size(); }
  /// Bytes while the pass waits, or after its end.
  [[nodiscard]] std::int64_t held() const {
    if (!ended()) return parts_[part_].peak;
    return parts_.empty() ? 0 : parts_.back().after;
  }
  /// Runs up to the next hand-over or to the end. Peak since the previous one.
  std::int64_t run() {
    std::int64_t peak = held();
    while (!ended()) {
      peak = std::max(peak, parts_[part_].peak);
      if (left_ > 0) {
        --left_;
        return peak;
      }
      ++part_;
      enter();
    }
    return std::max(peak, held());
  }

 private:
  void enter() { left_ = ended() ? 0 : parts_[part_].hand_overs; }

  const std::vector<PassPart>& parts_;
  std::size_t part_ = 0;
  int left_ = 0;  ///< hand-overs of this part
};

}  // namespace

std::vector<PassPart> forward_parts(const ModelCost& model, const layout::StageBlocks& stage) {
  std::vector<PassPart> parts;
  std::int64_t now = 0;
  const auto add = [&](std::int64_t saved, int hand_overs) {
    now += saved;
    parts.push_back({.peak = now, .after = now, .hand_overs = hand_overs});
  };
  std::int64_t span_end = stage.layers().first;
  for (const std::int64_t length : layout::recompute_spans(model.run().recompute, stage.layers().size())) {
    int hand_overs = 0;
    for (std::int64_t i = span_end; i < span_end + length; ++i) hand_overs += model.layer(i).forward_waits();
    add(model.hidden(), hand_overs);
    span_end += length;
  }
  for (const layout::BlockId& block : stage.blocks)
    if (block.kind != layout::BlockKind::kLayer || block.index >= span_end)
      add(model.block(block).saved(), model.block(block).forward_waits());
  return parts;
}

std::int64_t pair_peak(const std::vector<PassPart>& forward, const std::vector<PassPart>& backward) {
  PassProgress f(forward), b(backward);
  std::int64_t f_held = 0, peak = 0;
  while (!f.ended() || !b.ended()) {
    if (!b.ended()) peak = std::max(peak, f_held + b.run());
    if (f.ended()) continue;
    peak = std::max(peak, b.held() + f.run());
    f_held = f.held();
  }
  return peak;
}

}  // namespace colonnade::cost
