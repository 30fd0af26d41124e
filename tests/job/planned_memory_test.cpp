// The memory plan against jobs that are really built: memory between steps to the byte, activations of a
// micro-batch within 64 bytes (on meta tensors 8 more per token: positions that at::arange makes there bypass
// the allocator). Peaks are in planned_peaks_test.cpp.
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include "colonnade/cost/activations.h"
#include "colonnade/tensor/deferred_weight_grads.h"
#include "job/planned_layouts.h"

namespace colonnade::job {
namespace {

using test::Planned;

constexpr std::int64_t kScalars = 64;  // bytes of loss scalars

std::int64_t bytes_of(const at::Tensor& x) { return x.defined() ? static_cast<std::int64_t>(x.nbytes()) : 0; }

/// Tensors of a micro-batch that the executor holds between forward and backward, and its output.
struct InFlight {
  at::Tensor input, output;
  torch::autograd::Edge edge;
};

/// `states`: layout::StageBlocks::states_in.
InFlight forward(Job& job, tensor::Stage& stage, std::int64_t states, const tensor::Batch& batch) {
  const config::Run& run = job.run;
  const std::int64_t s = states * run.training.seq_length / run.parallel.context_parallel_size /
                         (run.parallel.sequence_parallel ? run.parallel.tensor_model_parallel_size : 1);
  at::Tensor x;
  if (!stage.first)
    x = at::zeros({s, run.training.micro_batch_size, run.model.hidden_size}, job.options()).requires_grad_();
  const at::Tensor y = stage.forward(x, {.batch = batch});
  if (!stage.last) return {x, y.detach(), torch::autograd::impl::gradient_edge(y)};
  return {x, {}, torch::autograd::impl::gradient_edge(token_loss(y, batch, false).value)};
}

void expect_resident(const config::Run& run) {
  const auto plans = cost::plan_memory(run);
  std::vector<std::int64_t> most(plans.size(), 0);
  test::on_every_rank(run, [&](Job& job, const cost::StageMemory& plan) {
    EXPECT_EQ(bytes_of(job.buffers().params()), plan.parameters);
    EXPECT_EQ(bytes_of(job.buffers().grads()), plan.gradients);
    std::int64_t elements = 0;
    for (const tensor::Parameter* p : job.parameters()) elements += p->spec.trained ? p->value.numel() : 0;
    EXPECT_EQ(elements, plan.num_parameters);
    std::int64_t& largest = most[static_cast<std::size_t>(job.ranks.coord(layout::Axis::kPp))];
    largest = std::max(largest, optimizer_bytes(job));
  });
  for (std::size_t i = 0; i < plans.size(); ++i) EXPECT_EQ(most[i], plans[i].optimizer) << "stage " << i;
}

/// The job holds no memory besides the plan.
void expect_nothing_else(const config::Run& run) {
  test::count_memory();
  const auto device = at::Device(run.training.device);
  const std::uint64_t before = tensor::memory_use(device).now;
  test::SingleRank single(run, 0);
  const auto plan = cost::plan_memory(run)[0];
  EXPECT_EQ(static_cast<std::int64_t>(tensor::memory_use(device).now - before),
            plan.resident() - plan.optimizer + optimizer_bytes(single.job));
}

void expect_activations(const config::Run& run) {
  const std::int64_t tokens = run.training.micro_batch_size * run.training.seq_length;
  const std::int64_t bound = kScalars + (run.training.device == "meta" ? 8 * tokens : 0);
  test::on_every_rank(run, [&](Job& job, const cost::StageMemory& plan) {
    const tensor::Batch batch = empty_batch(run);
    for (std::size_t chunk = 0; chunk < plan.stages.size(); ++chunk) {
      const std::int64_t before = test::allocated_bytes(job);
      const InFlight kept = forward(job, *job.model.stages[chunk], plan.stages[chunk].states_in, batch);
      // The output is counted while it is sent; for an empty stage it is the input.
      const std::int64_t output = plan.stages[chunk].empty() ? 0 : bytes_of(kept.output);
      EXPECT_NEAR(test::allocated_bytes(job) - before - output,
                  cost::stage_activations(cost::ModelCost(run), plan.stages[chunk]) + plan.gathered, bound)
          << "chunk " << chunk;
    }
  });
}

/// Memory of a micro-batch between its input gradient and its weight gradients.
void expect_deferred(const config::Run& run) {
  test::on_every_rank(run, [&](Job& job, const cost::StageMemory& plan) {
    const tensor::Batch batch = empty_batch(run);
    const auto parameters = job.parameters();
    for (std::size_t chunk = 0; chunk < plan.stages.size(); ++chunk) {
      const std::int64_t before = test::allocated_bytes(job);
      tensor::DeferredWeightGrads left;
      {
        const InFlight kept = forward(job, *job.model.stages[chunk], plan.stages[chunk].states_in, batch);
        const at::Tensor grad = kept.output.defined()
                                    ? at::ones_like(kept.output)
                                    : at::ones({}, at::dtype(at::kFloat).device(run.training.device));
        const tensor::DeferScope scope(parameters, left);
        torch::autograd::Engine::get_default_engine().execute({kept.edge}, {grad}, false, false, true);
      }
      EXPECT_NEAR(test::allocated_bytes(job) - before,
                  cost::stage_wgrad_saved(cost::ModelCost(run), plan.stages[chunk]), kScalars)
          << "chunk " << chunk;
      left.run(/*last=*/false);
      EXPECT_NEAR(test::allocated_bytes(job), before, kScalars) << "chunk " << chunk;
    }
  });
}

constexpr const char* kTwoBases =
    "--position-embedding-type rope --window-size 8,0 --window-attn-skip-freq 2 --rotary-base-local 500000 "
    "--softmax-type learnable ";
constexpr const char* kSandwich =
    "--normalization RMSNorm --sandwich-norm --scale-embeddings --disable-bias-linear "
    "--attn-logit-softcapping 30 --final-logit-softcapping 30 ";
constexpr const char* kMoreModels[] = {
    "--parallel-residual ",
    "--parallel-residual --hidden-dropout 0 --normalization RMSNorm --disable-bias-linear --swiglu ",
    "--attention-dropout 0.1 ",
    "--qk-layernorm ",
    "--qk-l2-norm --position-embedding-type rope ",
    "--attention-output-gate --group-query-attention --num-query-groups 2 ",
    "--attention-output-gate --attention-dropout 0.1 --bf16 ",
    "--group-query-attention --num-query-groups 2 ",
    "--position-embedding-type rope --window-size 8,0 ",
    kTwoBases,
    kSandwich,
    "--normalization RMSNorm --sandwich-norm --no-input-norms --disable-bias-linear ",
    "--normalization RMSNorm --sandwich-norm --no-input-norms --disable-bias-linear --hidden-dropout 0 ",
    "--normalization RMSNorm --qk-layernorm --qk-norm-across-heads --group-query-attention "
    "--num-query-groups 2 --position-embedding-type rope ",
    "--qk-layernorm --qk-norm-after-rope --position-embedding-type rope --no-rope-freq 2 ",
    "--clip-qkv 1 ",
    "--residual-factor 0.5 --embedding-factor 2 --logit-factor 0.25 --no-layernorm-bias ",
    "--attn-logit-softcapping 30 --softmax-type off-by-one --window-size 8,0 ",
    "--attn-logit-softcapping 30 --attention-dropout 0.1 ",
    "--untie-embeddings-and-output-weights --swiglu ",
    "--optimizer sgd --bf16 ",
    "--bf16 --use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16 ",
    "--bf16 --fp32-residual-connection ",
};

constexpr const char* kOptimizerDtypes[] = {
    "--bf16 --use-precision-aware-optimizer --exp-avg-dtype fp8 --exp-avg-sq-dtype fp16 ",
    "--bf16 --use-precision-aware-optimizer --main-params-dtype fp16 --main-grads-dtype bf16 ",
    "--fp16 --use-precision-aware-optimizer --main-params-dtype fp16 --exp-avg-sq-dtype bf16 ",
};

void on_every_setting(const std::string& device, const std::function<void(const config::Run&)>& body) {
  const bool meta = device == "meta";
  for (const Planned& layout : test::kLayouts) {
    SCOPED_TRACE(layout.name);
    body(test::planned_run(layout, test::odd(""), device));
    for (const char* more : kMoreModels) {
      SCOPED_TRACE(more);
      body(test::planned_run(layout, test::odd(more), device));
    }
    if (!meta) continue;
    body(test::planned_run(layout, test::llama(""), device));
    body(test::planned_run(layout, test::gpt2(""), device));
  }
}

constexpr const char* kLatentModels[] = {
    "--q-lora-rank 24 --qk-layernorm --normalization RMSNorm ",
    "--v-head-dim 30 --bf16 ",
    "--attention-dropout 0.1 --q-lora-rank 24 ",
    "--q-lora-rank 24 --recompute-granularity selective --recompute-modules mla_up_proj ",
    "--recompute-granularity selective --recompute-modules mla_up_proj core_attn layernorm ",
};
constexpr const char* kMtpModels[] = {
    "--mtp-num-layers 1 --position-embedding-type rope ",
    "--mtp-num-layers 2 --position-embedding-type rope --untie-embeddings-and-output-weights --bf16 --swiglu "
    "--disable-bias-linear --normalization RMSNorm ",
    "--mtp-num-layers 2 --position-embedding-type rope --bf16 --fp32-residual-connection ",
    "--mtp-num-layers 1 --position-embedding-type rope --recompute-granularity full --recompute-method uniform "
    "--recompute-num-layers 2 ",
};

/// MTP in a stage before that of the head: adjacent, and with an empty stage between.
void on_mtp_before_the_head(const std::string& model, const std::string& device,
                            const std::function<void(const config::Run&)>& body) {
  const char* mtp = model.starts_with("--mtp-num-layers 2") ? "mm" : "m";
  for (const char* more : {"1", "2", "1 --tensor-model-parallel-size 2 --sequence-parallel"})
    for (const char* layout : {"Ett|tt|{}|L", "Ett|tt{}||L"}) {
      const std::string flags = fmt::format(
          "--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout {} --micro-batch-size {}",
          fmt::format(fmt::runtime(layout), mtp), more);
      SCOPED_TRACE(flags + model);
      const int world = flags.find("--tensor") == std::string::npos ? 4 : 8;
      body(test::planned_run({"HeadAlone", world, flags.c_str()}, test::odd(model), device));
    }
}

/// Multi-latent attention and multi-token prediction.
void on_every_mla_and_mtp_setting(const std::string& device,
                                  const std::function<void(const config::Run&)>& body) {
  const bool meta = device == "meta";
  for (const Planned& layout : meta ? std::vector{test::kLayouts[0], test::kLayouts[2], test::kLayouts[4],
                                                  test::kLayouts[8], test::kLayouts[12]}
                                    : std::vector{test::kLayouts[1], test::kLayouts[3]}) {
    SCOPED_TRACE(layout.name);
    for (const char* more : kLatentModels) {
      SCOPED_TRACE(more);
      body(test::planned_run(layout, test::latent(more), device));
    }
    for (const char* more : kMtpModels) {
      SCOPED_TRACE(more);
      body(test::planned_run(layout, test::odd(more), device));
    }
  }
  for (const char* more : kMtpModels) on_mtp_before_the_head(more, device, body);
}

TEST(PlannedMemory, OptimizerDtypesBetweenSteps) {
  for (const Planned& layout : test::kLayouts)
    for (const char* more : kOptimizerDtypes) {
      SCOPED_TRACE(fmt::format("{}: {}", layout.name, more));
      expect_resident(test::planned_run(layout, test::odd(more), "meta"));
    }
}

// Matrices have one state, other parameters two, frozen ones neither states nor main copies.
TEST(PlannedMemory, TwoOptimizersAndFrozenParametersBetweenSteps) {
  for (const Planned& layout : test::kLayouts)
    for (const char* more : {"--optimizer muon ", "--optimizer muon --muon-tp-mode blockwise --bf16 ",
                             "--freeze-parameters embedding.* *.linear_fc1.* --bf16 "}) {
      SCOPED_TRACE(fmt::format("{}: {}", layout.name, more));
      expect_resident(test::planned_run(layout, test::odd(more), "meta"));
    }
}

TEST(PlannedMemory, LatentAttentionAndMtpBetweenSteps) {
  on_every_mla_and_mtp_setting("meta", expect_resident);
  on_every_mla_and_mtp_setting("cpu", expect_nothing_else);
}

TEST(PlannedMemory, LatentAttentionAndMtpActivations) {
  on_every_mla_and_mtp_setting("meta", expect_activations);
  on_every_mla_and_mtp_setting("cpu", expect_activations);
}

TEST(PlannedMemory, LatentAttentionAndMtpDeferredWeightGradients) {
  on_every_mla_and_mtp_setting("meta", expect_deferred);
  on_every_mla_and_mtp_setting("cpu", expect_deferred);
}

constexpr const char* kContextModels[] = {
    "",
    "--qk-layernorm --position-embedding-type rope ",
    "--group-query-attention --num-query-groups 2 --attention-output-gate ",
    "--position-embedding-type rope --window-size 8,0 ",
    "--reset-attention-mask --reset-position-ids ",
    "--softmax-type learnable ",
    "--mtp-num-layers 1 --position-embedding-type rope ",
    "--attn-logit-softcapping 30 --softmax-type learnable ",
    "--attention-dropout 0.1 ",
    "--attn-logit-softcapping 30 --attention-dropout 0.1 --recompute-activations ",
};

/// MLA with value heads narrower, and wider, than those of keys.
constexpr const char* kLatentContextModels[] = {
    "--q-lora-rank 24 ",
    "--v-head-dim 30 ",
    "--recompute-granularity selective --recompute-modules mla_up_proj core_attn ",
    "--q-lora-rank 24 --recompute-granularity selective --recompute-modules mla_up_proj ",
    "--v-head-dim 30 --recompute-granularity selective --recompute-modules mla_up_proj --bf16 ",
};

void on_every_context_setting(const std::function<void(const config::Run&)>& body) {
  for (const char* device : {"meta", "cpu"})
    for (const Planned& layout : test::kContextLayouts) {
      for (const char* model : kContextModels) {
        SCOPED_TRACE(fmt::format("{} {} {}", layout.name, model, device));
        body(test::planned_run(layout, test::odd(model), device));
      }
      for (const char* model : kLatentContextModels) {
        SCOPED_TRACE(fmt::format("{} {} {}", layout.name, model, device));
        body(test::planned_run(layout, test::latent(model), device));
      }
    }
}

TEST(PlannedMemory, ContextParallelBetweenStepsIsExact) { on_every_context_setting(expect_resident); }

TEST(PlannedMemory, ContextParallelActivations) { on_every_context_setting(expect_activations); }

TEST(PlannedMemory, ContextParallelDeferredWeightGradients) { on_every_context_setting(expect_deferred); }

/// Routing on meta is balanced: the tokens per expert are those of the plan.
void on_every_expert_setting(const std::function<void(const config::Run&)>& body) {
  for (const Planned& layout : test::kExpertLayouts)
    for (const char* model : test::kExpertModels) {
      SCOPED_TRACE(fmt::format("{} {}", layout.name, model));
      body(test::planned_run(layout, test::odd(model), "meta"));
    }
}

void on_every_recomputation_of_experts(const std::function<void(const config::Run&)>& body) {
  for (const Planned& layout : test::kExpertLayouts)
    for (const char* again : test::kRecomputedExperts) {
      SCOPED_TRACE(fmt::format("{} {}", layout.name, again));
      body(test::planned_run(layout, test::odd(std::string(test::kExpertModels[1]) + again), "meta"));
    }
}

TEST(PlannedMemory, RecomputedActivations) {
  test::on_every_recomputation("meta", expect_activations);
  test::on_every_recomputation("cpu", expect_activations);
  on_every_recomputation_of_experts(expect_activations);
}

TEST(PlannedMemory, DeferredWeightGradientsWithRecomputation) {
  test::on_every_recomputation("meta", expect_deferred);
  on_every_recomputation_of_experts(expect_deferred);
}

TEST(PlannedMemory, ExpertsBetweenStepsIsExact) { on_every_expert_setting(expect_resident); }

TEST(PlannedMemory, ExpertActivations) { on_every_expert_setting(expect_activations); }

TEST(PlannedMemory, ExpertDeferredWeightGradients) { on_every_expert_setting(expect_deferred); }

TEST(PlannedMemory, BetweenStepsIsExactOnMeta) { on_every_setting("meta", expect_resident); }

TEST(PlannedMemory, CoversAllMemory) {
  on_every_setting("meta", expect_nothing_else);
  on_every_setting("cpu", expect_nothing_else);
}

TEST(PlannedMemory, ActivationsOfAMicroBatchOnMeta) { on_every_setting("meta", expect_activations); }

TEST(PlannedMemory, ActivationsOfAMicroBatchOnTheCpu) { on_every_setting("cpu", expect_activations); }

TEST(PlannedMemory, DeferredWeightGradientsOnMeta) { on_every_setting("meta", expect_deferred); }

TEST(PlannedMemory, DeferredWeightGradientsOnTheCpu) { on_every_setting("cpu", expect_deferred); }

TEST(PlannedMemory, ShardedUnits) {
  for (const Planned& layout : test::kSharded) {
    SCOPED_TRACE(layout.name);
    for (const char* device : {"meta", "cpu"})
      expect_resident(test::planned_run(layout, test::odd("--untie-embeddings-and-output-weights "), device));
    expect_activations(
        test::planned_run(layout, test::odd("--untie-embeddings-and-output-weights "), "meta"));
    const auto experts = std::string(test::kExpertModels[0]) + "--untie-embeddings-and-output-weights ";
    expect_resident(test::planned_run(layout, test::odd(experts), "meta"));
  }
}

TEST(PlannedMemory, OptimizerInstancesWithExpertParallelism) {
  const Planned layout{
      "Ep2Dp8", 8,
      "--use-distributed-optimizer --num-distributed-optimizer-instances 2 "
      "--outer-dp-sharding-strategy optim --expert-model-parallel-size 2 --micro-batch-size 1"};
  expect_resident(test::planned_run(layout, test::odd(test::kExpertModels[0]), "meta"));
}

}  // namespace
}  // namespace colonnade::job
