// Costs of all blocks of a run's model.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "colonnade/cost/blocks/block_cost.h"
#include "colonnade/cost/blocks/layer.h"
#include "colonnade/layout/blocks.h"

namespace colonnade::cost {

/// Layers with equal traits share one cost, so that it is cheap to make for each candidate of a search.
class ModelCost {
 public:
  /// `run` must outlive it.
  explicit ModelCost(const config::Run& run);
  ModelCost(const ModelCost&) = delete;
  ModelCost& operator=(const ModelCost&) = delete;

  [[nodiscard]] const config::Run& run() const { return sequences_.tokens().run; }
  [[nodiscard]] const Sequences& sequences() const { return sequences_; }
  /// Bytes of the hidden states that blocks pass on.
  [[nodiscard]] std::int64_t hidden() const { return sequences_.hidden(); }
  [[nodiscard]] const BlockCost& block(const layout::BlockId& id) const;
  /// `layer`: global number.
  [[nodiscard]] const LayerCost& layer(std::int64_t layer) const {
    return *layers_[static_cast<std::size_t>(layer)];
  }
  /// Layers with different traits, in the order of these.
  [[nodiscard]] const std::map<LayerTraits, LayerCost>& distinct_layers() const { return distinct_layers_; }

 private:
  Sequences sequences_;
  std::map<LayerTraits, LayerCost> distinct_layers_;
  std::vector<const LayerCost*> layers_;                                         ///< by number
  std::map<layout::BlockKind, std::vector<std::unique_ptr<BlockCost>>> others_;  ///< by kind and index
};

}  // namespace colonnade::cost
