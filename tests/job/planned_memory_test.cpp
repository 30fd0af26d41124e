// The memory plan against jobs that are really built: what lies between steps to the byte, what a
// micro-batch keeps within 64 bytes (on meta tensors 8 more for each token: positions that at::arange makes
// there pass the allocator by), the peak of a step within a few percent.
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include "colonnade/plan/memory.h"
#include "colonnade/tensor/deferred.h"
#include "job/planned.h"

namespace colonnade::job {
namespace {

using test::Planned;

constexpr std::int64_t kScalars = 64;  // of the loss

void count() {
  static const bool kOnce = [] {
    tensor::count_cpu_memory();
    tensor::count_meta_memory();
    return true;
  }();
  static_cast<void>(kOnce);
}

std::int64_t alive(const Job& job) {
  return static_cast<std::int64_t>(tensor::memory_use(job.options().device()).now);
}

std::int64_t bytes_of(const at::Tensor& x) { return x.defined() ? static_cast<std::int64_t>(x.nbytes()) : 0; }

/// What the executor holds of a micro-batch between forward and backward.
struct Kept {
  at::Tensor input, output;
  torch::autograd::Edge edge;
};

Kept forward(Job& job, tensor::Stage& stage, const tensor::Batch& batch) {
  const config::Run& run = job.run;
  const std::int64_t s = run.training.seq_length / run.parallel.context_parallel_size /
                         (run.parallel.sequence_parallel ? run.parallel.tensor_model_parallel_size : 1);
  at::Tensor x;
  if (!stage.first)
    x = at::zeros({s, run.training.micro_batch_size, run.model.hidden_size}, job.options()).requires_grad_();
  const at::Tensor y = stage.forward(x, {.batch = batch});
  if (!stage.last) return {x, y.detach(), torch::autograd::impl::gradient_edge(y)};
  return {x, {}, torch::autograd::impl::gradient_edge(gpt_loss(y, batch, false).value)};
}

/// Every rank of the run, one after the other: body(rank's job, its plan).
void on_every_rank(const config::Run& run, const std::function<void(Job&, const plan::StageMemory&)>& body) {
  count();
  const auto memory = plan::plan_memory(run);
  for (int rank = 0; rank < run.parallel.world_size; ++rank) {
    SCOPED_TRACE(fmt::format("rank {}", rank));
    test::Alone alone(run, rank);
    body(alone.job, memory[alone.pipeline_rank()]);
  }
}

void expect_resident(const config::Run& run) {
  const auto plans = plan::plan_memory(run);
  std::vector<std::int64_t> most(plans.size(), 0);
  on_every_rank(run, [&](Job& job, const plan::StageMemory& plan) {
    EXPECT_EQ(bytes_of(job.buffers().params()), plan.parameters);
    EXPECT_EQ(bytes_of(job.buffers().grads()), plan.gradients);
    std::int64_t elements = 0;
    for (const tensor::Parameter* p : job.parameters()) elements += p->spec.trained ? p->value.numel() : 0;
    EXPECT_EQ(elements, plan.num_parameters);
    std::int64_t& largest = most[static_cast<std::size_t>(job.ranks.coord(plan::Axis::kPp))];
    largest = std::max(largest, optimizer_bytes(job));
  });
  for (std::size_t i = 0; i < plans.size(); ++i) EXPECT_EQ(most[i], plans[i].optimizer) << "stage " << i;
}

/// Nothing else stays alive: the whole of a job is its plan.
void expect_nothing_else(const config::Run& run) {
  count();
  const auto device = at::Device(run.training.device);
  const std::uint64_t before = tensor::memory_use(device).now;
  test::Alone alone(run, 0);
  const auto plan = plan::plan_memory(run)[0];
  EXPECT_EQ(static_cast<std::int64_t>(tensor::memory_use(device).now - before),
            plan.resident() - plan.optimizer + optimizer_bytes(alone.job));
}

void expect_activations(const config::Run& run) {
  const std::int64_t tokens = run.training.micro_batch_size * run.training.seq_length;
  const std::int64_t bound = kScalars + (run.training.device == "meta" ? 8 * tokens : 0);
  on_every_rank(run, [&](Job& job, const plan::StageMemory& plan) {
    const tensor::Batch batch = empty_batch(run);
    for (std::size_t chunk = 0; chunk < plan.stages.size(); ++chunk) {
      const std::int64_t before = alive(job);
      const Kept kept = forward(job, *job.model.stages[chunk], batch);
      EXPECT_NEAR(alive(job) - before, plan::stage_activations(run, plan.stages[chunk]), bound)
          << "chunk " << chunk;
    }
  });
}

/// What stays of a micro-batch between the gradient of its input and those of the weights.
void expect_waiting(const config::Run& run) {
  on_every_rank(run, [&](Job& job, const plan::StageMemory& plan) {
    const tensor::Batch batch = empty_batch(run);
    const auto parameters = job.parameters();
    for (std::size_t chunk = 0; chunk < plan.stages.size(); ++chunk) {
      const std::int64_t before = alive(job);
      tensor::DeferredProducts left;
      {
        const Kept kept = forward(job, *job.model.stages[chunk], batch);
        const at::Tensor grad = kept.output.defined()
                                    ? at::ones_like(kept.output)
                                    : at::ones({}, at::dtype(at::kFloat).device(run.training.device));
        const tensor::DeferScope scope(parameters, left);
        torch::autograd::Engine::get_default_engine().execute({kept.edge}, {grad}, false, false, true);
      }
      EXPECT_NEAR(alive(job) - before, plan::stage_waiting(run, plan.stages[chunk]), kScalars)
          << "chunk " << chunk;
      left.run(/*last=*/false);
      EXPECT_NEAR(alive(job), before, kScalars) << "chunk " << chunk;
    }
  });
}

constexpr Planned kLayouts[] = {
    {"OneRank", 1, "--micro-batch-size 1"},
    {"TwoSequences", 1, "--micro-batch-size 2"},
    {"Tp2", 2, "--tensor-model-parallel-size 2 --micro-batch-size 2"},
    {"Tp2Sp", 2, "--tensor-model-parallel-size 2 --sequence-parallel --micro-batch-size 1"},
    {"Tp2SpTwoSequences", 2, "--tensor-model-parallel-size 2 --sequence-parallel --micro-batch-size 2"},
    {"Pp2", 2, "--pipeline-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 4"},
    {"Pp2Virtual2", 2,
     "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 --micro-batch-size 1 "
     "--global-batch-size 4"},
    {"Pp2ZbH1", 2,
     "--pipeline-model-parallel-size 2 --pipeline-schedule zb-h1 --micro-batch-size 1 --global-batch-size 6"},
    {"Pp2ZbV", 2,
     "--pipeline-model-parallel-size 2 --pipeline-schedule zb-v --micro-batch-size 1 --global-batch-size 6"},
    {"Pp2DualPipeV", 2,
     "--pipeline-model-parallel-size 2 --pipeline-schedule dualpipe-v --micro-batch-size 1 "
     "--global-batch-size 6"},
    {"Dp2Distributed", 2, "--use-distributed-optimizer --micro-batch-size 1 --ddp-bucket-size 1000000"},
    {"Dp3Distributed", 3, "--use-distributed-optimizer --micro-batch-size 1 --global-batch-size 3"},
    {"All", 8,
     "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2 "
     "--use-distributed-optimizer --micro-batch-size 2 --global-batch-size 16"},
};

constexpr const char* kTwoBases =
    "--position-embedding-type rope --window-size 8,0 --window-attn-skip-freq 2 --rotary-base-local 500000 "
    "--softmax-type learnable ";
constexpr const char* kSandwich =
    "--normalization RMSNorm --sandwich-norm --scale-embeddings --disable-bias-linear "
    "--attn-logit-softcapping 30 ";
constexpr const char* kMoreModels[] = {
    "--attention-dropout 0.1 ",
    "--qk-layernorm ",
    "--group-query-attention --num-query-groups 2 ",
    "--position-embedding-type rope --window-size 8,0 ",
    kTwoBases,
    kSandwich,
    "--attn-logit-softcapping 30 --softmax-type off-by-one --window-size 8,0 ",
    "--attn-logit-softcapping 30 --attention-dropout 0.1 ",
    "--untie-embeddings-and-output-weights --swiglu ",
    "--optimizer sgd --bf16 ",
};

void on_every_setting(const std::string& device, const std::function<void(const config::Run&)>& body) {
  const bool meta = device == "meta";
  for (const Planned& layout : kLayouts) {
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
};
constexpr const char* kFurtherModels[] = {
    "--mtp-num-layers 1 --position-embedding-type rope ",
    "--mtp-num-layers 2 --position-embedding-type rope --untie-embeddings-and-output-weights --bf16 --swiglu "
    "--disable-bias-linear --normalization RMSNorm ",
};

/// Multi-latent attention, and further tokens.
void on_every_new_setting(const std::string& device, const std::function<void(const config::Run&)>& body) {
  const bool meta = device == "meta";
  for (const Planned& layout :
       meta ? std::vector{kLayouts[0], kLayouts[2], kLayouts[4], kLayouts[8], kLayouts[12]}
            : std::vector{kLayouts[1], kLayouts[3]}) {
    SCOPED_TRACE(layout.name);
    for (const char* more : kLatentModels) {
      SCOPED_TRACE(more);
      body(test::planned_run(layout, test::latent(more), device));
    }
    for (const char* more : kFurtherModels) {
      SCOPED_TRACE(more);
      body(test::planned_run(layout, test::odd(more), device));
    }
  }
}

TEST(PlannedMemory, OfLatentAttentionAndFurtherTokensBetweenSteps) {
  on_every_new_setting("meta", expect_resident);
  on_every_new_setting("cpu", expect_nothing_else);
}

TEST(PlannedMemory, OfLatentAttentionAndFurtherTokensActivationsOfAMicroBatch) {
  on_every_new_setting("meta", expect_activations);
  on_every_new_setting("cpu", expect_activations);
}

TEST(PlannedMemory, OfLatentAttentionAndFurtherTokensWhatWaits) {
  on_every_new_setting("meta", expect_waiting);
  on_every_new_setting("cpu", expect_waiting);
}

/// Context ranks in every way to exchange, and beside all others.
constexpr Planned kContextLayouts[] = {
    {"Cp2", 2, "--context-parallel-size 2 --micro-batch-size 1"},
    {"Cp4Gather", 4, "--context-parallel-size 4 --cp-comm-type all_gather --micro-batch-size 2"},
    {"Cp2A2a", 2, "--context-parallel-size 2 --cp-comm-type a2a --micro-batch-size 1"},
    {"Cp2A2aTp2Sp", 4,
     "--context-parallel-size 2 --cp-comm-type a2a --tensor-model-parallel-size 2 --sequence-parallel "
     "--micro-batch-size 2"},
    {"Cp4TwoLevels", 4,
     "--context-parallel-size 4 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 2 "
     "--micro-batch-size 1 --use-distributed-optimizer"},
    {"Cp2Pp2EachKind", 4,
     "--context-parallel-size 2 --cp-comm-type p2p a2a all_gather a2a --pipeline-model-parallel-size 2 "
     "--micro-batch-size 2 --global-batch-size 8"},
};

constexpr const char* kContextModels[] = {
    "",
    "--qk-layernorm --position-embedding-type rope ",
    "--group-query-attention --num-query-groups 2 ",
    "--position-embedding-type rope --window-size 8,0 ",
    "--reset-attention-mask --reset-position-ids ",
};

void on_every_context_setting(const std::function<void(const config::Run&)>& body) {
  for (const char* device : {"meta", "cpu"})
    for (const Planned& layout : kContextLayouts)
      for (const char* model : kContextModels) {
        SCOPED_TRACE(fmt::format("{} {} {}", layout.name, model, device));
        body(test::planned_run(layout, test::odd(model), device));
      }
}

TEST(PlannedMemory, OfContextRanksBetweenStepsIsExact) { on_every_context_setting(expect_resident); }

TEST(PlannedMemory, OfContextRanksActivationsOfAMicroBatch) { on_every_context_setting(expect_activations); }

TEST(PlannedMemory, OfContextRanksWhatWaitsForWeightGradients) { on_every_context_setting(expect_waiting); }

/// Experts in every second layer, cut every way.
constexpr Planned kExpertLayouts[] = {
    {"OneRank", 1, "--micro-batch-size 2"},
    {"Ep2", 2, "--expert-model-parallel-size 2 --micro-batch-size 1"},
    {"Etp2OverDp", 2, "--expert-tensor-parallel-size 2 --micro-batch-size 1 --use-distributed-optimizer"},
    {"Tp2SpEp2", 4,
     "--tensor-model-parallel-size 2 --sequence-parallel --expert-model-parallel-size 2 --micro-batch-size 2"},
    {"Tp2SpPp2Ep4Etp1", 8,
     "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2 "
     "--expert-model-parallel-size 4 --expert-tensor-parallel-size 1 --micro-batch-size 1 "
     "--global-batch-size 4 --use-distributed-optimizer"},
};

constexpr const char* kExpertModels[] = {
    "--num-experts 8 --moe-layer-freq 2 --moe-ffn-hidden-size 40 --swiglu --disable-bias-linear ",
    "--num-experts 8 --moe-layer-freq 2 --moe-ffn-hidden-size 40 --swiglu --disable-bias-linear "
    "--moe-shared-expert-intermediate-size 20 --moe-router-topk 3 --moe-token-dispatcher-type alltoall "
    "--moe-z-loss-coeff 0.01 --moe-shared-expert-gate ",
    "--num-experts 8 --moe-layer-freq 2 --moe-ffn-hidden-size 40 --quick-geglu --softmax-type learnable ",
};

/// Routing on meta is balanced: as many rows as the plan takes.
void on_every_expert_setting(const std::function<void(const config::Run&)>& body) {
  for (const Planned& layout : kExpertLayouts)
    for (const char* model : kExpertModels) {
      SCOPED_TRACE(fmt::format("{} {}", layout.name, model));
      body(test::planned_run(layout, test::odd(model), "meta"));
    }
}

TEST(PlannedMemory, OfExpertsBetweenStepsIsExact) { on_every_expert_setting(expect_resident); }

TEST(PlannedMemory, OfExpertsActivationsOfAMicroBatch) { on_every_expert_setting(expect_activations); }

TEST(PlannedMemory, OfExpertsWhatWaitsForWeightGradients) { on_every_expert_setting(expect_waiting); }

TEST(PlannedMemory, BetweenStepsIsExactOnMeta) { on_every_setting("meta", expect_resident); }

TEST(PlannedMemory, HasNothingLeftOut) {
  on_every_setting("meta", expect_nothing_else);
  on_every_setting("cpu", expect_nothing_else);
}

TEST(PlannedMemory, ActivationsOfAMicroBatchOnMeta) { on_every_setting("meta", expect_activations); }

TEST(PlannedMemory, ActivationsOfAMicroBatchOnTheCpu) { on_every_setting("cpu", expect_activations); }

TEST(PlannedMemory, WhatWaitsForWeightGradientsOnMeta) { on_every_setting("meta", expect_waiting); }

TEST(PlannedMemory, WhatWaitsForWeightGradientsOnTheCpu) { on_every_setting("cpu", expect_waiting); }

/// Mixtral's layers, two of them.
std::string mixtral(const std::string& more) {
  return "--num-layers 2 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 "
         "--group-query-attention --num-query-groups 8 --vocab-size 32000 --max-position-embeddings 4096 "
         "--position-embedding-type rope --normalization RMSNorm --swiglu --disable-bias-linear --bf16 "
         "--untie-embeddings-and-output-weights --hidden-dropout 0 --attention-dropout 0 "
         "--num-experts 8 --seq-length 2048 " +
         more;
}

TEST(PlannedMemory, OfExpertsPeakOfAStepAndOfAnEvaluation) {
  count();
  for (const char* dispatcher : {"allgather", "alltoall"})
    for (const Planned& layout : kExpertLayouts) {
      const config::Run run = test::planned_run(
          layout, mixtral(fmt::format("--moe-token-dispatcher-type {} ", dispatcher)), "meta");
      on_every_rank(run, [&](Job& job, const plan::StageMemory& plan) {
        const std::int64_t now = alive(job);
        const std::int64_t others = now - plan.resident() + plan.optimizer - optimizer_bytes(job);
        tensor::reset_peak(at::kMeta);
        test::forward_backward(job);
        const auto peak = static_cast<std::int64_t>(tensor::take_peak(at::kMeta)) - others;
        const double ratio = static_cast<double>(peak) / static_cast<double>(plan.peak());
        EXPECT_GT(ratio, 0.97) << layout.name << ": " << dispatcher;
        EXPECT_LT(ratio, 1.03) << layout.name << ": " << dispatcher;
        tensor::reset_peak(at::kMeta);
        test::evaluation(job);
        const auto seen = static_cast<std::int64_t>(tensor::take_peak(at::kMeta)) - now;
        EXPECT_NEAR(static_cast<double>(seen) / static_cast<double>(plan.evaluation), 1.0, 0.1)
            << layout.name << ": " << dispatcher;
      });
    }
}

/// The peak of forward and backward, of the plan and measured, on the rank that needs most.
void expect_peak(const Planned& layout, const std::string& model) {
  const config::Run run = test::planned_run(layout, model, "meta");
  on_every_rank(run, [&](Job& job, const plan::StageMemory& plan) {
    const std::int64_t others = alive(job) - plan.resident() + plan.optimizer - optimizer_bytes(job);
    tensor::reset_peak(at::kMeta);
    test::forward_backward(job);
    const auto peak = static_cast<std::int64_t>(tensor::take_peak(at::kMeta)) - others;
    const double ratio = static_cast<double>(peak) / static_cast<double>(plan.peak());
    EXPECT_GT(ratio, 0.95) << layout.name << ": " << model;
    EXPECT_LT(ratio, 1.02) << layout.name << ": " << model;
  });
}

TEST(PlannedMemory, PeakOfAStep) {
  count();
  for (const std::string& model :
       {test::llama(""), test::gpt2(""), test::llama("--reset-attention-mask --reset-position-ids ")})
    for (const Planned& layout : kLayouts) expect_peak(layout, model);
}

// The second model is mostly attention. Layers that exchange in different ways have their peaks at different
// times, and the plan takes the largest part of each.
TEST(PlannedMemory, OfContextRanksPeakOfAStep) {
  count();
  for (const Planned& layout : kContextLayouts) {
    expect_peak(layout, test::llama(""));
    if (std::string(layout.name) != "Cp2Pp2EachKind")
      expect_peak(layout, test::llama("--seq-length 8192 --ffn-hidden-size 1024 --vocab-size 1024 "));
  }
}

TEST(PlannedMemory, PeakOfAnEvaluation) {
  count();
  for (const std::string& model : {test::llama(""), test::gpt2("")})
    for (const Planned& layout : kLayouts) {
      const config::Run run = test::planned_run(layout, model, "meta");
      on_every_rank(run, [&](Job& job, const plan::StageMemory& plan) {
        const std::int64_t before = alive(job);
        tensor::reset_peak(at::kMeta);
        test::evaluation(job);
        const auto peak = static_cast<std::int64_t>(tensor::take_peak(at::kMeta)) - before;
        const auto planned = static_cast<double>(plan.evaluation);
        const double ratio = static_cast<double>(peak) / planned;
        EXPECT_GT(ratio, 0.9) << layout.name << ": " << model;
        EXPECT_LT(ratio, 1.1) << layout.name << ": " << model;
      });
    }
}

/// Layers of DeepSeek-V3's shape, a quarter as wide and dense.
std::string deepseek(const std::string& more) {
  return "--num-layers 2 --hidden-size 1792 --ffn-hidden-size 4608 --num-attention-heads 32 --vocab-size 32320 "
         "--max-position-embeddings 4096 --position-embedding-type rope --normalization RMSNorm --swiglu "
         "--disable-bias-linear --bf16 --untie-embeddings-and-output-weights --hidden-dropout 0 "
         "--attention-dropout 0 --multi-latent-attention --q-lora-rank 384 --kv-lora-rank 128 --qk-layernorm "
         "--seq-length 2048 " +
         more;
}

TEST(PlannedMemory, OfLatentAttentionPeakOfAStepAndOfAnEvaluation) {
  count();
  for (const Planned& layout : {kLayouts[0], kLayouts[2], kLayouts[4], kLayouts[5]}) {
    const config::Run run = test::planned_run(layout, deepseek(""), "meta");
    on_every_rank(run, [&](Job& job, const plan::StageMemory& plan) {
      const std::int64_t now = alive(job);
      const std::int64_t others = now - plan.resident() + plan.optimizer - optimizer_bytes(job);
      tensor::reset_peak(at::kMeta);
      test::forward_backward(job);
      const auto peak = static_cast<std::int64_t>(tensor::take_peak(at::kMeta)) - others;
      EXPECT_NEAR(static_cast<double>(peak) / static_cast<double>(plan.peak()), 1.0, 0.04) << layout.name;
      tensor::reset_peak(at::kMeta);
      test::evaluation(job);
      const auto seen = static_cast<std::int64_t>(tensor::take_peak(at::kMeta)) - now;
      EXPECT_NEAR(static_cast<double>(seen) / static_cast<double>(plan.evaluation), 1.0, 0.1) << layout.name;
    });
  }
}

TEST(PlannedMemory, AStepReportsItsPeaks) {
  count();
  const config::Run run = test::planned_run(kLayouts[1], test::odd("--global-batch-size 4 "), "cpu");
  const auto before = static_cast<double>(tensor::memory_use(at::kCPU).now);
  test::Alone alone(run, 0);
  const auto plan = plan::plan_memory(run)[0];
  for (int step = 0; step < 2; ++step) {
    {
      const at::Tensor between = at::empty({10'000'000}, at::kByte);
    }  // what happens between steps is not told
    const auto peaks = alone.job.train_step(test::steps_after(alone.job, 0), {.learning_rate = 1e-3}).peaks;
    const auto planned = static_cast<double>(plan.peak());
    EXPECT_NEAR(static_cast<double>(peaks.forward_backward) - before, planned, 0.05 * planned);
    const auto resident = static_cast<double>(plan.resident());
    EXPECT_NEAR(static_cast<double>(peaks.optimizer) - before, resident, 0.02 * resident);
  }
}

}  // namespace
}  // namespace colonnade::job
