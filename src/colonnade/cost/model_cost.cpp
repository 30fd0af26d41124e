// See model_cost.h.
#include "colonnade/cost/model_cost.h"

#include <utility>

#include "colonnade/cost/blocks/embedding.h"
#include "colonnade/cost/blocks/final_norm.h"
#include "colonnade/cost/blocks/head.h"
#include "colonnade/cost/blocks/mtp.h"

namespace colonnade::cost {

using layout::BlockKind;

ModelCost::ModelCost(const config::Run& run) : ModelBlocks(run), sequences_(run) {
  for (const LayerTraits& traits : layer_traits(run))
    layers_.push_back(&distinct_layers_.try_emplace(traits, sequences_, traits).first->second);
  others_[BlockKind::kEmbedding].push_back(std::make_unique<EmbeddingCost>(sequences_));
  others_[BlockKind::kFinalNorm].push_back(std::make_unique<FinalNormCost>(sequences_));
  for (std::int64_t i = 0; i < run.model.mtp_num_layers; ++i)
    others_[BlockKind::kMtpLayer].push_back(std::make_unique<MtpCost>(sequences_, *layers_.back(), i));
  others_[BlockKind::kHead].push_back(std::make_unique<HeadCost>(sequences_));
}

namespace {

/// Parameters by virtual stage and block.
std::vector<std::vector<std::vector<layout::ParamSpec>>> parameters_of(
    const std::vector<std::vector<RecordedBlock>>& stages) {
  std::vector<std::vector<std::vector<layout::ParamSpec>>> parameters;
  for (const std::vector<RecordedBlock>& stage : stages) {
    parameters.emplace_back();
    for (const RecordedBlock& block : stage) parameters.back().push_back(block.parameters);
  }
  return parameters;
}

}  // namespace

ModelCost::ModelCost(const config::Run& run, std::vector<std::vector<RecordedBlock>> stages)
    : ModelBlocks(run, parameters_of(stages)), sequences_(run) {
  for (std::vector<RecordedBlock>& stage : stages)
    for (RecordedBlock& block : stage) recorded_.push_back(std::move(block.cost));
}

const BlockCost& ModelCost::block(const layout::BlockId& id) const {
  if (is_custom()) return *recorded_[static_cast<std::size_t>(id.index)];
  if (id.kind == BlockKind::kLayer) return layer(id.index);
  return *others_.at(id.kind)[static_cast<std::size_t>(id.index)];
}

}  // namespace colonnade::cost
