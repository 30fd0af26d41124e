// See buffers.h.
#include "colonnade/job/buffers.h"

#include "colonnade/fault/inject.h"
#include "colonnade/job/model.h"
#include "colonnade/layout/buckets.h"
#include "colonnade/schedule/kinds.h"

namespace colonnade::job {
namespace {

data_parallel::Options buffer_options(const config::Run& run, int replicas,
                                      const std::vector<tensor::Stage*>& stages, const config::Dtypes& dtypes,
                                      const at::Device& device) {
  data_parallel::Options options{
      .dtypes = dtypes, .units = data_parallel::units_of(stages), .device = device};
  const config::Parallel& p = run.parallel;
  options.overlap_grad_reduce = p.overlap_grad_reduce;
  options.overlap_param_gather = p.overlap_param_gather;
  options.sharding = layout::sharding_of(p);
  options.deterministic = p.deterministic_mode;
  options.reshard_after_forward = p.torch_fsdp2_reshard_after_forward;
  options.defers_weight_grads = schedule::splits_backward(p);
  options.pairs_passes = p.pairs_passes();
  options.shard_outer = p.outer_dp_sharding_strategy == "optim";
  options.reduce_by_all_to_all = p.ddp_reduce_scatter_with_fp32_accumulation;
  std::int64_t parameters = 0;
  for (const tensor::Stage* stage : stages)
    for (const tensor::Parameter* parameter : stage->trained_parameters())
      parameters += parameter->value.numel();
  options.records_norms = run.training.check_for_large_grads && !device.is_meta();
  options.bucket_elements = layout::bucket_elements(p, replicas, parameters);
  options.bucket_alignment = layout::bucket_alignment(p);
  return options;
}

data_parallel::ReplicaGroups replica_levels(comm::Communicators& ranks, const config::Run& run,
                                            layout::ParamGroup group) {
  const int inner = layout::replica_levels(run.parallel, ranks.mesh()).inner.of(group);
  auto [instance, places] = ranks.inner_outer_groups(layout::data_axes(group), inner);
  return {std::move(instance), std::move(places)};
}

/// Groups of the expert parameters' replicas; none for a model without experts.
data_parallel::ReplicaGroups expert_replicas(comm::Communicators& ranks, const config::Run& run,
                                             const std::vector<std::vector<tensor::Parameter*>>& chunks) {
  for (const auto& chunk : chunks)
    for (const tensor::Parameter* p : chunk)
      if (p->spec.param_group == layout::ParamGroup::kExpert)
        return replica_levels(ranks, run, layout::ParamGroup::kExpert);
  return {};
}

}  // namespace

std::unique_ptr<data_parallel::GradBuffers> make_buffers(const config::Run& run, comm::Communicators& ranks,
                                                         const std::vector<tensor::Stage*>& stages,
                                                         const config::Dtypes& dtypes,
                                                         const at::Device& device) {
  std::vector<std::vector<tensor::Parameter*>> chunks;
  for (tensor::Stage* stage : stages) chunks.push_back(stage->trained_parameters());
  auto buffers = std::make_unique<data_parallel::GradBuffers>(
      chunks,
      data_parallel::Groups{replica_levels(ranks, run, layout::ParamGroup::kDense),
                            ranks.group({layout::Axis::kTp}), stage_groups(run, ranks),
                            expert_replicas(ranks, run, chunks)},
      buffer_options(run, ranks.mesh().size(layout::data_axes(layout::ParamGroup::kDense)), stages, dtypes,
                     device));
  for (tensor::Stage* stage : stages) buffers->attach(*stage);
  return buffers;
}

pipeline::GradientEvents gradient_events(data_parallel::GradBuffers& buffers) {
  return {.before_last_backward =
              [&buffers](int chunk) {
                fault::point("backward");
                buffers.mark_last_microbatch(chunk);
              },
          .before_weights = [&buffers] { buffers.begin_weight_grads(); },
          .before_product = [&buffers](const tensor::Parameter& p) { buffers.begin_weight_grad(p); }};
}

}  // namespace colonnade::job
