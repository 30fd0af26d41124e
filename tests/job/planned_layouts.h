// Layouts and kinds of recomputation in which tests compare memory plans with real jobs.
#pragma once

#include "colonnade/cost/memory.h"
#include "job/planned.h"

namespace colonnade::test {

inline void count_memory() {
  static const bool kOnce = [] {
    tensor::count_cpu_memory();
    tensor::count_meta_memory();
    return true;
  }();
  static_cast<void>(kOnce);
}

inline std::int64_t allocated_bytes(const job::Job& job) {
  return static_cast<std::int64_t>(tensor::memory_use(job.options().device()).now);
}

/// Calls body(job, plan) for every rank of the run, one after the other.
inline void on_every_rank(const config::Run& run,
                          const std::function<void(job::Job&, const cost::StageMemory&)>& body) {
  count_memory();
  const auto memory = cost::plan_memory(run);
  for (int rank = 0; rank < run.parallel.world_size; ++rank) {
    SCOPED_TRACE(fmt::format("rank {}", rank));
    SingleRank single(run, rank);
    body(single.job, memory[single.pipeline_rank()]);
  }
}

/// Compares the measured peak of forward and backward with the plan, on every rank.
inline void expect_peak(const config::Run& run, double lowest, double highest) {
  on_every_rank(run, [&](job::Job& job, const cost::StageMemory& plan) {
    const std::int64_t others =
        allocated_bytes(job) - plan.resident() + plan.optimizer - job::optimizer_bytes(job);
    tensor::reset_peak(at::kMeta);
    forward_backward(job);
    const auto peak = static_cast<std::int64_t>(tensor::take_peak(at::kMeta)) - others;
    const double ratio = static_cast<double>(peak) / static_cast<double>(plan.peak());
    EXPECT_GT(ratio, lowest);
    EXPECT_LT(ratio, highest);
  });
}

inline constexpr Planned kLayouts[] = {
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

/// Context parallelism of every kind, and combined with other parallelism.
inline constexpr Planned kContextLayouts[] = {
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

/// Kinds of recomputation, each with a model that it affects.
inline constexpr const char* kRecomputed[] = {
    "--recompute-activations ",
    "--recompute-activations --attention-dropout 0.1 ",
    "--recompute-activations --position-embedding-type rope --window-size 8,0 ",
    "--recompute-activations --attention-output-gate ",
    "--recompute-granularity selective --recompute-modules layernorm mlp ",
    "--recompute-granularity selective --recompute-modules layernorm core_attn --qk-layernorm ",
    "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1 ",
    "--recompute-granularity full --recompute-method uniform --recompute-num-layers 3 ",
    "--recompute-granularity full --recompute-method block --recompute-num-layers 1 ",
};

inline void on_every_recomputation(const std::string& device,
                                   const std::function<void(const config::Run&)>& body) {
  for (const Planned& layout : kLayouts)
    for (const char* again : kRecomputed) {
      SCOPED_TRACE(fmt::format("{} {}", layout.name, again));
      body(planned_run(layout, odd(again), device));
      if (device == "meta") body(planned_run(layout, llama(again), device));
    }
}

/// Experts in every second layer, in every expert layout.
inline constexpr Planned kExpertLayouts[] = {
    {"OneRank", 1, "--micro-batch-size 2"},
    {"Ep2", 2, "--expert-model-parallel-size 2 --micro-batch-size 1"},
    {"Etp2OverDp", 2, "--expert-tensor-parallel-size 2 --micro-batch-size 1 --use-distributed-optimizer"},
    {"Tp2SpEp2", 4,
     "--tensor-model-parallel-size 2 --sequence-parallel --expert-model-parallel-size 2 --micro-batch-size 2"},
    {"Tp2SpPp2Ep4Etp1", 8,
     "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2 "
     "--expert-model-parallel-size 4 --expert-tensor-parallel-size 1 --micro-batch-size 1 "
     "--global-batch-size 4 --use-distributed-optimizer"},
    {"Pp2ZbH1Ep2", 4,
     "--pipeline-model-parallel-size 2 --pipeline-schedule zb-h1 --expert-model-parallel-size 2 "
     "--micro-batch-size 1 --global-batch-size 12"},
};

inline constexpr const char* kExpertModels[] = {
    "--num-experts 8 --moe-layer-freq 2 --moe-ffn-hidden-size 40 --swiglu --disable-bias-linear ",
    "--num-experts 8 --moe-layer-freq 2 --moe-ffn-hidden-size 40 --swiglu --disable-bias-linear "
    "--moe-shared-expert-intermediate-size 20 --moe-router-topk 3 --moe-token-dispatcher-type alltoall "
    "--moe-z-loss-coeff 0.01 --moe-shared-expert-gate ",
    "--num-experts 8 --moe-layer-freq 2 --moe-ffn-hidden-size 40 --quick-geglu --softmax-type learnable ",
    "--num-experts 8 --moe-layer-freq 2 --moe-ffn-hidden-size 40 --swiglu --disable-bias-linear "
    "--moe-shared-expert-intermediate-size 20 --moe-token-dispatcher-type alltoall --moe-shared-expert-overlap "
    "--moe-shared-expert-gate --moe-input-jitter-eps 0.1 --moe-expert-capacity-factor 0.6 ",
    "--num-experts 8 --moe-layer-freq 2 --moe-ffn-hidden-size 40 --moe-router-topk 3 "
    "--moe-token-dispatcher-type alltoall --moe-expert-capacity-factor 1.3 "
    "--moe-pad-expert-input-to-capacity --bf16 --moe-input-jitter-eps 0.1 ",
    "--num-experts 8 --moe-layer-freq 2 --moe-ffn-hidden-size 40 --moe-expert-capacity-factor 0.6 ",
    ("--num-experts 8 --moe-layer-freq 2 --moe-ffn-hidden-size 40 --moe-expert-capacity-factor 1.3 "
     "--moe-pad-expert-input-to-capacity --moe-token-drop-policy position "),
    "--num-experts 8 --moe-layer-freq 2 --moe-ffn-hidden-size 40 --moe-latent-size 28 --moe-router-topk 3 ",
    ("--num-experts 8 --moe-layer-freq 2 --moe-ffn-hidden-size 40 --swiglu --disable-bias-linear --bf16 "
     "--moe-latent-size 28 --moe-shared-expert-intermediate-size 20 --moe-token-dispatcher-type alltoall "),
};

inline constexpr const char* kRecomputedExperts[] = {
    "--recompute-granularity selective --recompute-modules moe_act shared_experts layernorm ",
    "--recompute-granularity selective --recompute-modules moe core_attn ",
    "--recompute-granularity full --recompute-method uniform --recompute-num-layers 2 ",
    "--recompute-granularity full --recompute-method block --recompute-num-layers 1 ",
};

/// Sharded data parallelism.
inline constexpr Planned kSharded[] = {
    {"Dp2Gradients", 2,
     "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads --micro-batch-size 1 --global-batch-size 4"},
    {"Dp2", 2, "--use-megatron-fsdp --micro-batch-size 1 --global-batch-size 4"},
    {"Dp2Stays", 2,
     "--use-megatron-fsdp --torch-fsdp2-no-reshard-after-forward --micro-batch-size 1 --global-batch-size 4"},
    {"Dp3Overlapped", 3,
     "--use-megatron-fsdp --overlap-grad-reduce --overlap-param-gather --micro-batch-size 1 --global-batch-size 6"},
    {"Dp2Deterministic", 2, "--deterministic-mode --micro-batch-size 1 --global-batch-size 6"},
    {"Dp2InOneOrderOverlapped", 2,
     "--deterministic-mode --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather "
     "--micro-batch-size 1 --global-batch-size 4"},
    {"Dp4TwoLevels", 4,
     "--use-megatron-fsdp --num-distributed-optimizer-instances 2 --overlap-grad-reduce --overlap-param-gather "
     "--micro-batch-size 1 --global-batch-size 8"},
    {"Dp4TwoLevelsShared", 4,
     "--use-megatron-fsdp --num-distributed-optimizer-instances 2 --outer-dp-sharding-strategy optim "
     "--micro-batch-size 1 --global-batch-size 8"},
    {"Dp4DistributedTwoLevels", 4,
     "--use-distributed-optimizer --num-distributed-optimizer-instances 2 --overlap-grad-reduce "
     "--micro-batch-size 1 --global-batch-size 8"},
    {"Dp6DistributedTwoLevelsShared", 6,
     "--use-distributed-optimizer --num-distributed-optimizer-instances 2 --outer-dp-sharding-strategy optim "
     "--micro-batch-size 1 --global-batch-size 6"},
    {"Tp2SpPp2Dp2Recomputed", 8,
     "--use-megatron-fsdp --tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2 "
     "--micro-batch-size 1 --global-batch-size 8 "
     "--recompute-granularity full --recompute-method uniform --recompute-num-layers 2"},
    {"Pp2ZbH1Dp2", 4,
     "--use-megatron-fsdp --pipeline-model-parallel-size 2 --pipeline-schedule zb-h1 --micro-batch-size 1 "
     "--global-batch-size 12"},
    {"Pp2ZbVDp2Overlapped", 4,
     "--use-megatron-fsdp --overlap-grad-reduce --overlap-param-gather --pipeline-model-parallel-size 2 "
     "--pipeline-schedule zb-v --micro-batch-size 1 --global-batch-size 12"},
    {"Pp2DualPipeVDp2Gradients", 4,
     "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads --pipeline-model-parallel-size 2 "
     "--pipeline-schedule dualpipe-v --micro-batch-size 1 --global-batch-size 12"},
    {"Pp2DelayedDeterministic", 4,
     "--deterministic-mode --pipeline-model-parallel-size 2 --delay-wgrad-compute --micro-batch-size 1 "
     "--global-batch-size 12"},
};

/// Gradients reduced in bf16, in bf16 runs.
inline constexpr Planned kReducedInBf16[] = {
    {"Dp2", 2, "--grad-reduce-in-bf16 --micro-batch-size 1 --global-batch-size 4"},
    {"Dp4TwoLevelsOverlapped", 4,
     "--grad-reduce-in-bf16 --use-distributed-optimizer --num-distributed-optimizer-instances 2 "
     "--overlap-grad-reduce --micro-batch-size 1 --global-batch-size 8"},
    {"Dp2Gradients", 2,
     "--grad-reduce-in-bf16 --use-megatron-fsdp --data-parallel-sharding-strategy optim_grads "
     "--micro-batch-size 1 --global-batch-size 4"},
    {"Dp4TwoLevelsParametersOverlapped", 4,
     "--grad-reduce-in-bf16 --use-megatron-fsdp --num-distributed-optimizer-instances 2 "
     "--outer-dp-sharding-strategy optim --overlap-grad-reduce --overlap-param-gather --micro-batch-size 1 "
     "--global-batch-size 8"},
};

}  // namespace colonnade::test
