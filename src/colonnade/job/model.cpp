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

layers::Context layer_context(const config::Run& run, comm::Communicators& ranks,
                              const at::TensorOptions& options) {
  using plan::Axis;
  layers::Context context{.tp = ranks.group({Axis::kTp}),
                          .sequence_parallel = run.parallel.sequence_parallel,
                          .options = options,
                          .seed = static_cast<std::uint64_t>(run.training.seed)};
  if (run.model.moe.num_experts > 0) {
    context.experts = ranks.group(plan::model_axes(plan::Family::kExpert));
    context.expert_tensor = ranks.mesh().size(Axis::kEtp);
    if (run.model.moe.router_enable_expert_bias)
      context.readers = ranks.group({Axis::kTp, Axis::kCp, Axis::kDp});
  }
  return context;
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
