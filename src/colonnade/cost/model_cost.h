// Costs of all blocks of a run's model.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "colonnade/cost/blocks/block_cost.h"
#include "colonnade/cost/blocks/layer.h"
#include "colonnade/cost/model_blocks.h"

namespace colonnade::cost {

/// A block without a formula: its cost and parameters were recorded (job/recorded_model.h).
struct RecordedBlock {
  std::unique_ptr<BlockCost> cost;
  std::vector<layout::ParamSpec> parameters;
};

/// Layers with equal traits share one cost.
class ModelCost final : public ModelBlocks {
 public:
  /// `run` must outlive it.
  explicit ModelCost(const config::Run& run);
  /// A custom model, by virtual stage; `run` selects no recomputation, which the recorded costs contain.
  ModelCost(const config::Run& run, std::vector<std::vector<RecordedBlock>> stages);

  [[nodiscard]] const Sequences& sequences() const { return sequences_; }
  /// Bytes of the hidden states that blocks pass on.
  [[nodiscard]] std::int64_t hidden() const { return sequences_.hidden(); }
  [[nodiscard]] const BlockCost& block(const layout::BlockId& id) const;
  /// Cost of a layer that is not recorded; `layer`: global number.
  [[nodiscard]] const LayerCost& layer(std::int64_t layer) const {
    return *layers_[static_cast<std::size_t>(layer)];
  }
  /// Calls f(cost) for the layers with different costs, in the order of their traits; for every block of a
  /// custom model.
  template <typename F>
  void for_each_distinct_layer(const F& f) const {
    for (const auto& [traits, layer] : distinct_layers_) f(layer);
    for (const std::unique_ptr<BlockCost>& block : recorded_) f(*block);
  }

 private:
  Sequences sequences_;
  std::map<LayerTraits, LayerCost> distinct_layers_;
  std::vector<const LayerCost*> layers_;                                         ///< by number
  std::map<layout::BlockKind, std::vector<std::unique_ptr<BlockCost>>> others_;  ///< by kind and index
  std::vector<std::unique_ptr<BlockCost>> recorded_;                             ///< by number
};

}  // namespace colonnade::cost
