// See model.h.
#include "colonnade/job/model.h"

#include "colonnade/models/gpt/model.h"

namespace colonnade::job {

std::vector<plan::StageBlocks> blocks_of(const config::Run& run, int pp_rank) {
  const auto stages = plan::split_stages(run.model, run.parallel);
  std::vector<plan::StageBlocks> mine;
  for (std::size_t v = static_cast<std::size_t>(pp_rank); v < stages.size();
       v += static_cast<std::size_t>(run.parallel.pipeline_model_parallel_size))
    mine.push_back(stages[v]);
  return mine;
}

Model build_gpt(const Site& site) {
  Model model;
  for (auto& built : models::gpt::build(site.blocks, site.run.model, site.run.parallel, site.layers,
                                        site.run.training.seq_length)) {
    model.stages.push_back(std::make_unique<tensor::Stage>(std::move(built.stage)));
    if (built.word_table != nullptr) model.tied = built.word_table;
  }
  return model;
}

}  // namespace colonnade::job
