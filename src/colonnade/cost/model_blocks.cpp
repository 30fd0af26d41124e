// See model_blocks.h.
#include "colonnade/cost/model_blocks.h"

#include "colonnade/layout/params/gpt.h"

namespace colonnade::cost {

ModelBlocks::ModelBlocks(const config::Run& run,
                         const std::vector<std::vector<std::vector<layout::ParamSpec>>>& parameters)
    : run_(run) {
  for (const auto& stage : parameters) {
    const std::int64_t first = std::ssize(custom_parameters_);
    custom_parameters_.insert(custom_parameters_.end(), stage.begin(), stage.end());
    custom_stages_.push_back(layout::stage_of_layers({first, std::ssize(custom_parameters_)}));
  }
}

std::vector<layout::BlockId> ModelBlocks::blocks() const {
  return is_custom() ? layout::stage_of_layers({0, std::ssize(custom_parameters_)}).blocks
                     : layout::model_blocks(run_.model);
}

std::vector<layout::StageBlocks> ModelBlocks::stages() const {
  return is_custom() ? custom_stages_ : layout::split_stages(run_.model, run_.parallel);
}

std::vector<std::vector<layout::StageBlocks>> ModelBlocks::stages_by_rank() const {
  return layout::stages_by_rank(stages(), run_.parallel);
}

void ModelBlocks::for_each_param(const layout::BlockId& id,
                                 const std::function<void(const layout::ParamSpec&)>& f) const {
  if (!is_custom()) return layout::for_each_param(run_.model, run_.parallel, id, f);
  for (const layout::ParamSpec& spec : custom_parameters_[static_cast<std::size_t>(id.index)]) f(spec);
}

layout::FirstReaders ModelBlocks::first_readers(const std::vector<layout::StageBlocks>& stages) const {
  return is_custom() ? layout::FirstReaders() : layout::first_readers(run_.model, stages);
}

}  // namespace colonnade::cost
