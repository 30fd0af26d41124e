// See recorded_model.h.
#include "colonnade/job/recorded_model.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "colonnade/base/error.h"
#include "colonnade/comm/null_backend.h"
#include "colonnade/config/derive.h"
#include "colonnade/cost/describe.h"
#include "colonnade/cost/step_time.h"
#include "colonnade/cost/verdict.h"
#include "colonnade/job/block_recorder.h"
#include "colonnade/job/dry_run.h"
#include "colonnade/layout/context_groups.h"
#include "colonnade/layout/context_parallel.h"
#include "colonnade/rules/rules.h"

namespace colonnade::job {
namespace {

/// Ranks that read the same samples, so that a block's FLOPs are those of all of them.
double model_ranks(const config::Parallel& p) {
  return static_cast<double>(p.tensor_model_parallel_size) * p.context_parallel_size;
}

/// A call as one or two collectives; nothing for groups other than tensor, context and dispatch ranks.
void add_collective(const comm::LoggedCall& call, bool forward, cost::BlockCompute& compute) {
  const bool tensor = call.axes == "tp", context = call.axes == "cp",
             dispatch = call.axes == "ep" || call.axes == "etp" || call.axes == "etp-ep";
  if ((!tensor && !dispatch && !context) || call.operation == "recv") return;
  const bool all_to_all = call.operation == "all_to_all";
  const int times = call.operation == "all_reduce" ? 2 : 1;
  compute.collectives.push_back({dispatch     ? cost::GroupKind::kDispatch
                                 : tensor     ? cost::GroupKind::kTensor
                                 : all_to_all ? cost::GroupKind::kContextAllToAll
                                              : cost::GroupKind::kContextRing,
                                 all_to_all, static_cast<double>(call.bytes), forward ? times : 0,
                                 forward ? 0 : times});
}

class RecordedCost final : public cost::BlockCost {
 public:
  /// `batch`: bytes of the micro-batch that only this block counts.
  RecordedCost(const cost::Sequences& sequences, BlockRecord record, std::int64_t batch)
      : BlockCost(sequences), record_(std::move(record)), batch_(batch) {}

  [[nodiscard]] std::int64_t batch() const override { return batch_; }
  [[nodiscard]] std::int64_t saved() const override { return record_.saved; }
  void backward(cost::StageTracker& tracker) const override {
    // The earlier blocks hold as much in the forward pass.
    tracker.transient(std::max(record_.forward_peak,
                               tracker.delay_wgrad() ? record_.backward_input_peak : record_.backward_peak));
    tracker.release(record_.saved, record_.wgrad_saved);
  }
  [[nodiscard]] std::int64_t wgrad_saved() const override { return record_.wgrad_saved; }
  [[nodiscard]] std::int64_t largest_weight_gradient() const override {
    return record_.weight_gradients_peak;
  }
  [[nodiscard]] std::int64_t evaluation() const override { return record_.evaluation; }

  void add_compute(cost::AttentionKernel /*kernel*/,
                   std::vector<cost::RepeatedCompute>& parts) const override {
    cost::BlockCompute compute;
    compute.matmuls = record_.forward.matmuls;
    compute.attention.flops = record_.forward.attention_forward;
    compute.add_elementwise(record_.forward.bytes, record_.backward.bytes, record_.forward.kernels,
                            record_.backward.kernels);
    compute.context = layout::context_layer(z_.run.parallel, 0);
    for (const comm::LoggedCall& call : record_.forward_calls) add_collective(call, true, compute);
    for (const comm::LoggedCall& call : record_.backward_calls) add_collective(call, false, compute);
    parts.push_back({std::move(compute)});
    if (const OpCounts repeated = recomputed(); repeated.linears() + repeated.attention_forward > 0) {
      cost::BlockCompute forward;  // its bytes and collectives are part of the backward pass above
      forward.matmuls = repeated.matmuls;
      forward.attention.flops = repeated.attention_forward;
      parts.push_back({.compute = std::move(forward), .times = 0, .recomputed = 1});
    }
  }

  [[nodiscard]] cost::ForwardFlops flops() const override { return flops_of(record_.forward); }
  [[nodiscard]] cost::ForwardFlops recomputed_flops() const override { return flops_of(recomputed()); }

 private:
  /// Forward matmuls and attention that the backward pass repeats. A backward pass has twice the FLOPs of
  /// the forward pass; what it has beyond that is recomputed.
  [[nodiscard]] OpCounts recomputed() const {
    const double forward = record_.forward.linears();
    const double share = forward > 0 ? std::max(record_.backward.linears() / forward - 2, 0.0) : 0;
    OpCounts repeated;
    repeated.attention_forward = record_.backward.attention_forward;
    if (share == 0) return repeated;
    repeated.matmuls = record_.forward.matmuls;
    for (cost::Matmul& matmul : repeated.matmuls) matmul.count *= share;
    return repeated;
  }
  /// Forward FLOPs of all ranks that share a sample: a matmul that several of them repeat counts for each.
  [[nodiscard]] cost::ForwardFlops flops_of(const OpCounts& counts) const {
    const double ranks = model_ranks(z_.run.parallel) / static_cast<double>(z_.run.training.micro_batch_size);
    return {.linears = ranks * counts.linears(), .attention = ranks * counts.attention_forward};
  }

  BlockRecord record_;
  std::int64_t batch_;
};

/// `run` on meta tensors, with unsharded parameters on every rank.
config::Run recorded_run(config::Run run) {
  run.training.device = "meta";
  config::Parallel& p = run.parallel;
  p.use_megatron_fsdp = p.use_distributed_optimizer = p.deterministic_mode = false;
  p.overlap_grad_reduce = p.overlap_param_gather = false;
  p.num_distributed_optimizer_instances = 1;
  return run;
}

/// The first rank of each pipeline stage.
struct PipelineJobs {
  PipelineJobs(const config::Run& run, const ModelBuilder& builder) {
    const config::Run meta = recorded_run(run);
    const layout::Mesh mesh(meta.parallel);
    for (const int rank : mesh.peers(0, {layout::Axis::kPp})) {
      logs.push_back(std::make_shared<comm::CallLog>());
      jobs.push_back(std::make_unique<Job>(meta,
                                           comm::Communicators(mesh, rank, comm::null_factory(logs.back())),
                                           builder, InitialValues::kRestored));
    }
  }
  std::vector<std::shared_ptr<comm::CallLog>> logs;
  std::vector<std::unique_ptr<Job>> jobs;
};

std::int64_t bytes_in(const tensor::Batch& batch) {
  std::int64_t bytes = 0;
  for (const tensor::BatchKey& key : batch.keys()) bytes += static_cast<std::int64_t>(batch.at(key).nbytes());
  return bytes;
}

/// The batch in memory of its own: what a block's graph keeps of it counts as saved.
tensor::Batch copy_of(const tensor::Batch& batch) {
  tensor::Batch copy = batch;
  for (const tensor::BatchKey& key : batch.keys()) copy.set(key, batch.at(key).clone());
  return copy;
}

/// Records the blocks of all stages in order; each receives the previous one's output.
std::vector<std::vector<cost::RecordedBlock>> record_stages(PipelineJobs& pipeline, const StepsOf& steps_of,
                                                            const cost::Sequences& sequences) {
  const schedule::Placement placement = pipeline.jobs.front()->executor().schedule().placement;
  const pipeline::Steps steps = steps_of(*pipeline.jobs.back());
  if (steps.forward)
    throw ConfigError(
        "steps.forward must be empty in a plan, which runs the model's blocks one by one; got a function; move it into "
        "a block");
  const tensor::Batch batch = steps.batch(0).to(at::kMeta);
  std::int64_t batch_bytes = bytes_in(batch);
  std::vector<std::int64_t> shape;
  std::vector<std::vector<cost::RecordedBlock>> stages;
  for (int s = 0; s < placement.stages(); ++s) {
    const auto [rank, chunk] = placement.location(s);
    Job& job = *pipeline.jobs[static_cast<std::size_t>(rank)];
    const tensor::Stage& stage = *job.model.stages.at(static_cast<std::size_t>(chunk));
    std::vector<cost::RecordedBlock>& blocks = stages.emplace_back();
    for (const auto& block : stage.blocks) {
      const bool ends = stage.last && block == stage.blocks.back();
      const BlockPass pass = [&](const at::Tensor& x, const tensor::Pass& p) {
        const tensor::Batch own = copy_of(p.batch);
        const at::Tensor y = block->forward(x, {.batch = own, .training = p.training});
        return ends ? steps.loss(y, own).value : y;
      };
      BlockRecord record =
          record_block(job, *pipeline.logs[static_cast<std::size_t>(rank)], batch, pass, shape);
      shape = record.output_shape;
      cost::RecordedBlock& recorded = blocks.emplace_back();
      recorded.cost =
          std::make_unique<RecordedCost>(sequences, std::move(record), std::exchange(batch_bytes, 0));
      for (const tensor::Parameter* p : block->parameters()) recorded.parameters.push_back(p->spec);
    }
  }
  return stages;
}

}  // namespace

std::unique_ptr<RecordedModel> record_model(const config::Run& run, const ModelBuilder& builder,
                                            const StepsOf& steps) {
  count_meta_tensors();
  const config::Run recorded = layout::with_fixed_context_size(run);
  config::Run planned = recorded;
  planned.recompute = {};
  auto model = std::make_unique<RecordedModel>(std::move(planned));
  try {
    PipelineJobs pipeline(recorded, builder);
    model->cost =
        std::make_unique<cost::ModelCost>(model->run, record_stages(pipeline, steps, model->sequences));
  } catch (const c10::NotImplementedError& error) {
    throw ConfigError(fmt::format(
        "blocks and loss of a planned model must not read values of tensors; got \"{}\"; compute with tensors only, "
        "and read values after the step",
        error.what_without_backtrace()));
  }
  return model;
}

std::string plan_text(config::Run run, const ModelBuilder& builder, const StepsOf& steps,
                      const std::string& hardware) {
  config::derive(run);
  rules::require(run, rules::Purpose::kPlan);
  const auto model = record_model(run, builder, steps);
  if (hardware.empty()) return cost::describe(*model->cost);
  const cost::Hardware device = cost::read_hardware(hardware);
  return fmt::format("{}\n{}\n{}", cost::fit_text(cost::fit_of(*model->cost, device)),
                     cost::describe(*model->cost),
                     cost::step_time_text(cost::estimate_step(*model->cost, device), device));
}

}  // namespace colonnade::job
