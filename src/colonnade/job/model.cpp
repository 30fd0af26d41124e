// See model.h.
#include "colonnade/job/model.h"

#include <algorithm>
#include <tuple>

#include "colonnade/config/stacks.h"
#include "colonnade/layout/context_groups.h"
#include "colonnade/layout/layer_kind.h"
#include "colonnade/models/model.h"

namespace colonnade::job {

std::vector<layout::StageBlocks> blocks_of(const config::Run& run, int pp_rank) {
  return layout::stages_of_rank(run.model, run.parallel, pp_rank);
}

pipeline::Activation activation_of(const config::Run& run, const std::vector<layout::StageBlocks>& blocks,
                                   const layout::SequenceShard& part) {
  std::vector<std::int64_t> states;
  for (const layout::StageBlocks& stage : blocks) states.push_back(stage.states_in);
  return [states, b = run.training.micro_batch_size, s = run.training.seq_length / part.ranks(),
          parts = part.parts, h = run.model.hidden_size](const tensor::Batch& batch, int chunk,
                                                         bool training) -> std::vector<std::int64_t> {
    const at::Tensor tokens = batch.find(tensor::Field::kTokens);
    const std::int64_t all = training ? states[static_cast<std::size_t>(chunk)] : 1;
    if (!tokens.defined()) return {all * s, b, h};
    return {all * (batch.tokens_per_sample() / parts), tokens.size(0), h};
  };
}

std::map<layout::HeldBy, comm::Group> stage_groups(const config::Run& run, comm::Communicators& ranks) {
  const auto stages = layout::split_stages(run.model, run.parallel);
  std::map<layout::HeldBy, comm::Group> groups;
  for (const auto& [held_by, name] : layout::kSharedParameters) {
    const std::vector<int> pp_ranks = layout::holders(run.model, run.parallel, stages, held_by);
    if (pp_ranks.size() > 1) groups[held_by] = ranks.pipeline_group(pp_ranks, name);
  }
  return groups;
}

namespace {

/// Context-parallel groups of every power of two: aligned runs of the data and context ranks.
layers::ContextParallelGroups ranks_by_size(const config::Parallel& parallel, comm::Communicators& ranks) {
  layers::ContextParallelGroups cp{.parallel = parallel};
  for (int size = 1; size <= layout::hybrid_ranks(parallel); size *= 2)
    cp.by_size[size] =
        size == 1 ? comm::Group() : ranks.inner_group(layout::data_axes(layout::ParamGroup::kDense), size);
  return cp;
}

layers::ContextParallelGroups context_ranks(const config::Parallel& parallel, comm::Communicators& ranks) {
  if (parallel.hybrid_context_parallel) return ranks_by_size(parallel, ranks);
  if (parallel.context_parallel_size == 1) return {};
  layers::ContextParallelGroups cp{.all = ranks.group({layout::Axis::kCp}), .parallel = parallel};
  if (!parallel.hierarchical_context_parallel_sizes.empty())
    std::tie(cp.a2a, cp.p2p) =
        ranks.inner_outer_groups({layout::Axis::kCp}, parallel.hierarchical_context_parallel_sizes.front());
  return cp;
}

}  // namespace

layers::Context layer_context(const config::Run& run, comm::Communicators& ranks,
                              const at::TensorOptions& parameters) {
  using layout::Axis;
  layers::Context context{.tp = ranks.group({Axis::kTp}),
                          .sequence_parallel = run.parallel.sequence_parallel,
                          .options = parameters,
                          .seed = static_cast<std::uint64_t>(run.training.seed),
                          .recompute = run.recompute};
  context.cp = context_ranks(run.parallel, ranks);
  if (run.parallel.pairs_passes()) context.turns = std::make_shared<Turns>();
  context.track_max_logits = run.tracks_attention_logits();
  if (layout::routes_tokens(run.model)) {
    context.dispatch = ranks.group(layout::kDispatchAxes);
    context.etp = ranks.mesh().size(Axis::kEtp);
  }
  if (layout::sums_router_counts(run.model))
    context.token_ranks = ranks.group({Axis::kTp, Axis::kCp, Axis::kDp});
  return context;
}

Model build_model(const BuildContext& context) {
  const config::Run& run = context.run;
  auto stages = models::build(context.blocks, run.model, run.parallel, context.layers,
                              std::ranges::max(config::sequence_lengths(run.model, run.training)));
  Model model{.stages = {}, .from_settings = true};
  for (tensor::Stage& stage : stages)
    model.stages.push_back(std::make_unique<tensor::Stage>(std::move(stage)));
  return model;
}

}  // namespace colonnade::job
