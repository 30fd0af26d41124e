// Costs of all blocks of a run's model, its blocks, and their parameters.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "colonnade/cost/blocks/block_cost.h"
#include "colonnade/cost/blocks/layer.h"
#include "colonnade/layout/param.h"
#include "colonnade/layout/stages.h"

namespace colonnade::cost {

/// A block without a formula: its cost and parameters were recorded (job/block_recorder.h).
struct RecordedBlock {
  std::unique_ptr<BlockCost> cost;
  std::vector<layout::ParamSpec> parameters;
};

/// Layers with equal traits share one cost, so that it is cheap to make for each candidate of a search.
class ModelCost {
 public:
  /// `run` must outlive it.
  explicit ModelCost(const config::Run& run);
  /// A custom model, by virtual stage. Its blocks count as layers, numbered in order; it shares no parameters
  /// between stages, and `run` selects no recomputation, which the recorded costs contain.
  ModelCost(const config::Run& run, std::vector<std::vector<RecordedBlock>> stages);
  ModelCost(const ModelCost&) = delete;
  ModelCost& operator=(const ModelCost&) = delete;

  [[nodiscard]] const config::Run& run() const { return sequences_.tokens().run; }
  [[nodiscard]] const Sequences& sequences() const { return sequences_; }
  /// Bytes of the hidden states that blocks pass on.
  [[nodiscard]] std::int64_t hidden() const { return sequences_.hidden(); }
  /// All blocks in order, and those of each virtual stage.
  [[nodiscard]] const std::vector<layout::BlockId>& blocks() const { return blocks_; }
  [[nodiscard]] std::vector<layout::StageBlocks> stages() const;
  /// Stages of a pipeline rank, by chunk.
  [[nodiscard]] std::vector<layout::StageBlocks> stages_of_rank(int rank) const;
  [[nodiscard]] bool is_custom() const { return !recorded_stages_.empty(); }
  /// Calls f(spec) for every parameter of a block, as layout::for_each_param.
  void for_each_param(const layout::BlockId& id,
                      const std::function<void(const layout::ParamSpec&)>& f) const;

  /// layout::first_readers(); none in a custom model.
  [[nodiscard]] layout::FirstReaders first_readers(const std::vector<layout::StageBlocks>& stages) const;

  [[nodiscard]] const BlockCost& block(const layout::BlockId& id) const;
  /// Cost of a layer that is not recorded; `layer`: global number.
  [[nodiscard]] const LayerCost& layer(std::int64_t layer) const {
    return *layers_[static_cast<std::size_t>(layer)];
  }
  /// Layers with different traits, in the order of these.
  [[nodiscard]] const std::map<LayerTraits, LayerCost>& distinct_layers() const { return distinct_layers_; }

 private:
  Sequences sequences_;
  std::map<LayerTraits, LayerCost> distinct_layers_;
  std::vector<layout::BlockId> blocks_;
  std::vector<const LayerCost*> layers_;                                         ///< by number
  std::map<layout::BlockKind, std::vector<std::unique_ptr<BlockCost>>> others_;  ///< by kind and index
  std::vector<RecordedBlock> recorded_;                                          ///< by number
  std::vector<layout::StageBlocks> recorded_stages_;                             ///< by virtual stage
};

}  // namespace colonnade::cost
