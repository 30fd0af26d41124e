// See model_cost.h.
#include "colonnade/cost/model_cost.h"

#include <algorithm>
#include <iterator>

#include "colonnade/cost/blocks/embedding.h"
#include "colonnade/cost/blocks/final_norm.h"
#include "colonnade/cost/blocks/head.h"
#include "colonnade/cost/blocks/mtp.h"
#include "colonnade/layout/params/gpt.h"

namespace colonnade::cost {

using layout::BlockKind;

ModelCost::ModelCost(const config::Run& run) : sequences_(run), blocks_(layout::model_blocks(run.model)) {
  for (const LayerTraits& traits : layer_traits(run))
    layers_.push_back(&distinct_layers_.try_emplace(traits, sequences_, traits).first->second);
  others_[BlockKind::kEmbedding].push_back(std::make_unique<EmbeddingCost>(sequences_));
  others_[BlockKind::kFinalNorm].push_back(std::make_unique<FinalNormCost>(sequences_));
  for (std::int64_t i = 0; i < run.model.mtp_num_layers; ++i)
    others_[BlockKind::kMtpLayer].push_back(std::make_unique<MtpCost>(sequences_, *layers_.back(), i));
  others_[BlockKind::kHead].push_back(std::make_unique<HeadCost>(sequences_));
}

ModelCost::ModelCost(const config::Run& run, std::vector<std::vector<RecordedBlock>> stages)
    : sequences_(run) {
  for (std::vector<RecordedBlock>& stage : stages) {
    const std::int64_t first = std::ssize(recorded_);
    std::ranges::move(stage, std::back_inserter(recorded_));
    recorded_stages_.push_back(layout::stage_of_layers({first, std::ssize(recorded_)}));
  }
  blocks_ = layout::stage_of_layers({0, std::ssize(recorded_)}).blocks;
}

std::vector<layout::StageBlocks> ModelCost::stages() const {
  return is_custom() ? recorded_stages_ : layout::split_stages(run().model, run().parallel);
}

std::vector<layout::StageBlocks> ModelCost::stages_of_rank(int rank) const {
  const std::vector<layout::StageBlocks> all = stages();
  const schedule::Placement placement = layout::placement_of(all, run().parallel);
  std::vector<layout::StageBlocks> own;
  for (int chunk = 0; chunk < placement.chunks(); ++chunk)
    own.push_back(all[static_cast<std::size_t>(placement.stage(rank, chunk))]);
  return own;
}

void ModelCost::for_each_param(const layout::BlockId& id,
                               const std::function<void(const layout::ParamSpec&)>& f) const {
  if (!is_custom()) return layout::for_each_param(run().model, run().parallel, id, f);
  for (const layout::ParamSpec& spec : recorded_[static_cast<std::size_t>(id.index)].parameters) f(spec);
}

layout::FirstReaders ModelCost::first_readers(const std::vector<layout::StageBlocks>& stages) const {
  return is_custom() ? layout::FirstReaders() : layout::first_readers(run().model, stages);
}

const BlockCost& ModelCost::block(const layout::BlockId& id) const {
  if (is_custom()) return *recorded_[static_cast<std::size_t>(id.index)].cost;
  if (id.kind == BlockKind::kLayer) return layer(id.index);
  return *others_.at(id.kind)[static_cast<std::size_t>(id.index)];
}

}  // namespace colonnade::cost
