// See model_cost.h.
#include "colonnade/cost/model_cost.h"

#include "colonnade/cost/blocks/embedding.h"
#include "colonnade/cost/blocks/final_norm.h"
#include "colonnade/cost/blocks/head.h"
#include "colonnade/cost/blocks/mtp.h"

namespace colonnade::cost {

using layout::BlockKind;

ModelCost::ModelCost(const config::Run& run) : sequences_(run) {
  for (const LayerTraits& traits : layer_traits(run))
    layers_.push_back(&distinct_layers_.try_emplace(traits, sequences_, traits).first->second);
  others_[BlockKind::kEmbedding].push_back(std::make_unique<EmbeddingCost>(sequences_));
  others_[BlockKind::kFinalNorm].push_back(std::make_unique<FinalNormCost>(sequences_));
  for (std::int64_t i = 0; i < run.model.mtp_num_layers; ++i)
    others_[BlockKind::kMtpLayer].push_back(std::make_unique<MtpCost>(sequences_, *layers_.back(), i));
  others_[BlockKind::kHead].push_back(std::make_unique<HeadCost>(sequences_));
}

const BlockCost& ModelCost::block(const layout::BlockId& id) const {
  if (id.kind == BlockKind::kLayer) return layer(id.index);
  return *others_.at(id.kind)[static_cast<std::size_t>(id.index)];
}

}  // namespace colonnade::cost
