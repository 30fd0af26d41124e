// See model.h.
#include "colonnade/job/model.h"

#include "colonnade/models/gpt/model.h"

namespace colonnade::job {

Model build_gpt(const Site& site) {
  Model model;
  for (auto& built : models::gpt::build(site.blocks, site.run.model, site.run.parallel, site.layers, site.run.training.seq_length)) {
    model.stages.push_back(std::make_unique<tensor::Stage>(std::move(built.stage)));
    if (built.word_table != nullptr) model.tied = built.word_table;
  }
  return model;
}

}  // namespace colonnade::job
