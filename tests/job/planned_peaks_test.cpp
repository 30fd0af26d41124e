// Measured peaks of steps and evaluations on meta tensors against the plan: equal within a few
// percent.
#include "colonnade/job/checkpoint.h"
#include "job/planned_layouts.h"

namespace colonnade::job {
namespace {

using test::expect_peak;
using test::Planned;

/// Two layers of Mixtral.
std::string mixtral(const std::string& more) {
  return "--num-layers 2 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 "
         "--group-query-attention --num-query-groups 8 --vocab-size 32000 --max-position-embeddings 4096 "
         "--position-embedding-type rope --normalization RMSNorm --swiglu --disable-bias-linear --bf16 "
         "--untie-embeddings-and-output-weights --hidden-dropout 0 --attention-dropout 0 "
         "--num-experts 8 --seq-length 2048 " +
         more;
}

/// Compares the peak of evaluation with the plan, within 10 %, on every rank.
void expect_evaluation(const config::Run& run) {
  test::on_every_rank(run, [](Job& job, const cost::StageMemory& plan) {
    const std::int64_t now = test::allocated_bytes(job);
    tensor::reset_peak(at::kMeta);
    test::evaluation(job);
    const auto seen = static_cast<std::int64_t>(tensor::take_peak(at::kMeta)) - now;
    EXPECT_NEAR(static_cast<double>(seen) / static_cast<double>(plan.evaluation), 1.0, 0.1);
  });
}

TEST(PlannedPeaks, PeakOfAStepWithRecomputation) {
  test::on_every_recomputation("meta", [](const config::Run& run) {
    if (run.model.hidden_size > 1000) expect_peak(run, 0.965, 1.02);
  });
  for (const Planned& layout : test::kExpertLayouts)
    for (const char* again : test::kRecomputedExperts) {
      const std::string shared = "--moe-shared-expert-intermediate-size 4096 ";
      SCOPED_TRACE(fmt::format("{} {}", layout.name, again));
      expect_peak(test::planned_run(layout, mixtral(shared + again), "meta"), 0.97, 1.03);
    }
}

TEST(PlannedPeaks, LatentExperts) {
  for (const Planned& layout : test::kExpertLayouts)
    for (const char* more : {"", "--moe-token-dispatcher-type alltoall "}) {
      SCOPED_TRACE(fmt::format("{} {}", layout.name, more));
      const config::Run run =
          test::planned_run(layout, mixtral(std::string("--moe-latent-size 1024 ") + more), "meta");
      expect_peak(run, 0.97, 1.03);
      expect_evaluation(run);
    }
}

// Embedding tables with one use and with two, with and without deferred weight gradients.
TEST(PlannedPeaks, ShardedUnits) {
  for (const std::string& model :
       {test::llama(""), test::gpt2(""), test::llama("--mtp-num-layers 1 "), mixtral("--num-layers 4 "),
        mixtral("--num-layers 4 --moe-shared-expert-intermediate-size 14336 --moe-layer-freq 2 ")})
    for (const Planned& layout : test::kSharded) {
      SCOPED_TRACE(fmt::format("{}: {}", layout.name, model));
      expect_peak(test::planned_run(layout, model, "meta"), 0.97, 1.03);
    }
}

// Weight gradients of bf16 layers need no copies, and that of the table is summed in fp32.
TEST(PlannedPeaks, MainGradientsInBf16) {
  const std::string dtypes = "--use-precision-aware-optimizer --main-grads-dtype bf16 --exp-avg-dtype bf16 ";
  for (const Planned& layout : {test::kLayouts[0], test::kLayouts[3], test::kLayouts[5], test::kSharded[1]}) {
    SCOPED_TRACE(layout.name);
    expect_peak(test::planned_run(layout, test::llama(dtypes), "meta"), 0.97, 1.03);
  }
}

// Activations are as large as in-flight gradients, and a block's gradients are in one bucket.
TEST(PlannedPeaks, ShardedUnitsOfSmallModels) {
  const std::string model =
      "--num-layers 4 --hidden-size 512 --ffn-hidden-size 1024 --num-attention-heads 8 --vocab-size 4096 "
      "--seq-length 512 --max-position-embeddings 512 --position-embedding-type rope --normalization RMSNorm "
      "--swiglu --disable-bias-linear --hidden-dropout 0 --attention-dropout 0 ";
  const std::string untied = "--untie-embeddings-and-output-weights ";
  for (const std::string& more :
       {std::string(), untied, untied + "--num-experts 8 --moe-ffn-hidden-size 512 "}) {
    const auto expect = [&](const Planned& layout) {
      SCOPED_TRACE(fmt::format("{}: {}", layout.name, more));
      expect_peak(test::planned_run(layout, model + more, "meta"), 0.97, 1.03);
    };
    for (const Planned& layout : test::kSharded) expect(layout);
    expect({"Dp2StaysRecomputed", 2,
            "--use-megatron-fsdp --torch-fsdp2-no-reshard-after-forward --micro-batch-size 1 "
            "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"});
    expect(
        {"Pp2Dp4Overlapped", 8,
         "--use-megatron-fsdp --overlap-grad-reduce --overlap-param-gather --pipeline-model-parallel-size 2 "
         "--micro-batch-size 1 --global-batch-size 8"});
    for (const char* schedule : {"1f1b", "zb-h1", "1f1b --delay-wgrad-compute"}) {
      const std::string flags = fmt::format(
          "--deterministic-mode --pipeline-model-parallel-size 4 --micro-batch-size 1 "
          "--global-batch-size 8 --pipeline-schedule {}",
          schedule);
      expect({schedule, 8, flags.c_str()});
    }
  }
}

TEST(PlannedPeaks, MtpInAStageBeforeTheHead) {
  const std::string stages = "--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout Ett|tt|";
  const std::string chunks = "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et|tt|t";
  for (const std::string& flags :
       {stages + "m|L", stages + "m|L --pipeline-schedule zb-h1", chunks + "m|L",
        chunks + "m|L --pipeline-schedule zb-v", chunks + "m|L --use-megatron-fsdp",
        chunks + "m|L --use-megatron-fsdp --pipeline-schedule zb-v",
        stages + "m|L --recompute-granularity full --recompute-method uniform --recompute-num-layers 1"}) {
    const std::string all = flags + " --micro-batch-size 1 --global-batch-size 12";
    const Planned layout{"HeadAlone",
                         flags.find("fsdp") != std::string::npos ? 4
                         : flags.starts_with(stages)             ? 4
                                                                 : 2,
                         all.c_str()};
    SCOPED_TRACE(all);
    for (const char* more : {"", "--fp32-residual-connection "}) {
      SCOPED_TRACE(more);
      const config::Run run =
          test::planned_run(layout, test::llama(std::string("--mtp-num-layers 1 ") + more), "meta");
      expect_peak(run, 0.97, 1.03);
      expect_evaluation(run);
    }
  }
}

// A rank with two stages that only pass activations on.
TEST(PlannedPeaks, EmptyAdjacentStagesOnOneRank) {
  for (const char* more : {"Ettttmm|||L --mtp-num-layers 2", "Etttt|||L"}) {
    const std::string flags = fmt::format(
        "--pipeline-model-parallel-size 2 --pipeline-schedule zb-v --micro-batch-size 1 --global-batch-size 8 "
        "--pipeline-model-parallel-layout {}",
        more);
    SCOPED_TRACE(flags);
    expect_peak(test::planned_run({"Empty", 2, flags.c_str()},
                                  "--num-layers 4 --hidden-size 512 --num-attention-heads 8 --seq-length 256 "
                                  "--max-position-embeddings 256 --position-embedding-type rope "
                                  "--vocab-size 4096 --attention-dropout 0 ",
                                  "meta"),
                0.97, 1.03);
  }
}

// Hidden states are most of the memory of the head's rank.
TEST(PlannedPeaks, ManyMtpDepthsInAStageBeforeTheHead) {
  for (const char* schedule : {"1f1b", "1f1b --delay-wgrad-compute", "zb-h1"})
    for (const char* layout : {"Ettt|tm*6|L", "Ettttm*6||L"}) {
      const std::string flags = fmt::format(
          "--pipeline-model-parallel-size 3 --pipeline-schedule {} --pipeline-model-parallel-layout {} "
          "--micro-batch-size 1 --global-batch-size 6",
          schedule, layout);
      SCOPED_TRACE(flags);
      expect_peak(
          test::planned_run({"HeadAlone", 3, flags.c_str()},
                            "--num-layers 4 --hidden-size 512 --num-attention-heads 8 --seq-length 256 "
                            "--max-position-embeddings 256 --position-embedding-type rope "
                            "--mtp-num-layers 6 --vocab-size 64 --attention-dropout 0 ",
                            "meta"),
          0.97, 1.03);
    }
}

TEST(PlannedPeaks, ShardedUnitsPeakOfAnEvaluation) {
  test::count_memory();
  for (const std::string& model : {test::llama(""), test::gpt2("")})
    for (const Planned& layout : test::kSharded) {
      SCOPED_TRACE(fmt::format("{}: {}", layout.name, model));
      expect_evaluation(test::planned_run(layout, model, "meta"));
    }
}

/// Weights are initialized, loaded and saved shard by shard: besides the resident memory there is never more
/// than one full bucket with its gradients.
TEST(PlannedPeaks, BuildingWithShardedWeightsHoldsOneBlockAtATime) {
  test::count_memory();
  const Planned layout{"Fsdp", 8, "--use-megatron-fsdp --micro-batch-size 1"};
  const config::Run run = test::planned_run(layout, test::llama(""), "meta");
  const auto before = tensor::memory_use(at::kMeta).now;
  tensor::reset_peak(at::kMeta);
  test::SingleRank single(run, 0);
  const auto peak = static_cast<double>(tensor::take_peak(at::kMeta) - before);
  const auto stays = static_cast<double>(tensor::memory_use(at::kMeta).now - before);
  const cost::StageMemory plan = cost::plan_memory(run).front();
  EXPECT_GT(plan.init_bucket, 0);
  EXPECT_NEAR(peak / static_cast<double>(plan.start_up()), 1, 0.02);
  tensor::reset_peak(at::kMeta);
  const checkpoint::Snapshot shot = snapshot(single.job);
  EXPECT_EQ(tensor::take_peak(at::kMeta) - before, stays);
}

TEST(PlannedPeaks, GradientsReducedInBf16) {
  for (const Planned& layout : test::kReducedInBf16) {
    SCOPED_TRACE(layout.name);
    expect_peak(test::planned_run(layout, test::llama(""), "meta"), 0.97, 1.03);
  }
}

TEST(PlannedPeaks, ExpertsPeakOfAStepAndOfAnEvaluation) {
  test::count_memory();
  for (const char* dispatcher : {"allgather", "alltoall"})
    for (const Planned& layout : test::kExpertLayouts) {
      const config::Run run = test::planned_run(
          layout, mixtral(fmt::format("--moe-token-dispatcher-type {} ", dispatcher)), "meta");
      SCOPED_TRACE(fmt::format("{}: {}", layout.name, dispatcher));
      expect_peak(run, 0.97, 1.03);
      expect_evaluation(run);
    }
}

TEST(PlannedPeaks, ExpertsBesideAttentionInOneSublayer) {
  for (const Planned& layout : test::kExpertLayouts) {
    SCOPED_TRACE(layout.name);
    for (const char* more : {"", "--moe-shared-expert-intermediate-size 4096 ",
                             "--recompute-granularity selective --recompute-modules moe layernorm "}) {
      SCOPED_TRACE(more);
      expect_peak(test::planned_run(layout, mixtral(std::string("--parallel-residual ") + more), "meta"),
                  0.97, 1.03);
    }
  }
}

TEST(PlannedPeaks, PeakOfAStep) {
  for (const std::string& model :
       {test::llama(""), test::gpt2(""), test::llama("--reset-attention-mask --reset-position-ids "),
        test::llama("--parallel-residual "), test::gpt2("--parallel-residual "),
        test::llama("--fp32-residual-connection ")})
    for (const Planned& layout : test::kLayouts) {
      SCOPED_TRACE(fmt::format("{}: {}", layout.name, model));
      expect_peak(test::planned_run(layout, model, "meta"), 0.97, 1.02);
    }
}

// In-flight activations dominate where there is little else: ranks without blocks, one layer of a small
// model.
TEST(PlannedPeaks, EmptyAndThinStagesPeakOfAStep) {
  const Planned empty[] = {
      {"Pp4", 4,
       "--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout Et*2||t*2|L --micro-batch-size 1 "
       "--global-batch-size 8"},
      {"Pp4Alone", 4,
       "--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout E||t*4|L --micro-batch-size 1 "
       "--global-batch-size 16"},
      {"Tp2SpPp3Gpipe", 6,
       "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 3 "
       "--pipeline-schedule gpipe --pipeline-model-parallel-layout Et*2||t*2L --micro-batch-size 1 "
       "--global-batch-size 4"}};
  for (const Planned& layout : empty) {
    SCOPED_TRACE(layout.name);
    expect_peak(test::planned_run(layout, test::llama(""), "meta"), 0.98, 1.02);
  }
  const std::string thin = test::llama(
      "--num-layers 8 --hidden-size 128 --ffn-hidden-size 512 --num-attention-heads 4 --num-query-groups 4 "
      "--vocab-size 512 ");
  for (const char* schedule :
       {"", "--num-virtual-stages-per-pipeline-rank 2 ", "--pipeline-schedule gpipe "}) {
    SCOPED_TRACE(schedule);
    const std::string flags = fmt::format(
        "--pipeline-model-parallel-size 4 --micro-batch-size 1 --global-batch-size 16 {}", schedule);
    expect_peak(test::planned_run({"", 4, flags.c_str()}, thin, "meta"), 0.98, 1.02);
  }
}

// Two adjacent stages without blocks: on two ranks, or on one, where both hold the same tensor.
TEST(PlannedPeaks, EmptyAdjacentStagesPeakOfAStep) {
  const auto expect = [](const char* layout, const char* schedule, int microbatches) {
    SCOPED_TRACE(fmt::format("{} {}: {}", layout, schedule, microbatches));
    const std::string flags = fmt::format(
        "--num-layers 4 --pipeline-model-parallel-size 4 --pipeline-model-parallel-layout {} {} "
        "--micro-batch-size 1 --global-batch-size {}",
        layout, schedule, microbatches);
    expect_peak(test::planned_run({"", 4, flags.c_str()}, test::llama(""), "meta"), 0.98, 1.02);
  };
  for (const int microbatches : {2, 3, 4, 8}) {
    expect("Et|||tttL", "", microbatches);
    expect("Ettt|||tL", "--pipeline-schedule gpipe", microbatches);
    expect("Ettt|||tL", "--pipeline-schedule zb-h1", microbatches);
  }
  for (const int microbatches : {4, 8}) {
    expect("Et|||tt||||tL", "", microbatches);
    for (const char* vee : {"--pipeline-schedule zb-v", "--pipeline-schedule dualpipe-v"}) {
      expect("Et|||||||tttL", vee, microbatches);
      expect("Et|t|t|||||tL", vee, microbatches);
    }
  }
}

// The second model is mostly attention.
TEST(PlannedPeaks, ContextParallelPeakOfAStep) {
  for (const Planned& layout : test::kContextLayouts)
    for (const char* again : {"", "--recompute-activations "}) {
      SCOPED_TRACE(fmt::format("{}: {}", layout.name, again));
      expect_peak(test::planned_run(layout, test::llama(again), "meta"), 0.97, 1.03);
      const auto wide = std::string("--seq-length 8192 --ffn-hidden-size 1024 --vocab-size 1024 ") + again;
      expect_peak(test::planned_run(layout, test::llama(wide), "meta"), 0.97, 1.03);
    }
}

/// Largest ratio, over ranks, of the measured peak of forward and backward to the plan: the plan is that of
/// the context rank with the largest block.
double largest_peak_over_plan(const config::Run& run) {
  const at::Device device(run.training.device);
  double most = 0;
  test::on_every_rank(run, [&](Job& job, const cost::StageMemory& plan) {
    const std::int64_t others =
        test::allocated_bytes(job) - plan.resident() + plan.optimizer - optimizer_bytes(job);
    tensor::reset_peak(device);
    test::forward_backward(job);
    const auto peak = static_cast<std::int64_t>(tensor::take_peak(device)) - others;
    most = std::max(most, static_cast<double>(peak) / static_cast<double>(plan.peak()));
  });
  return most;
}

// Attention scores of blocks are computed in pieces: in full, or in parts for long sequences. On the CPU they
// are really computed.
TEST(PlannedPeaks, ContextParallelWithExplicitScoresPeakOfAStep) {
  const std::string small =
      "--num-layers 2 --hidden-size 64 --ffn-hidden-size 64 --num-attention-heads 8 --vocab-size 64 "
      "--seq-length 1024 --max-position-embeddings 1024 --hidden-dropout 0 ";
  for (const Planned& layout : {test::kContextLayouts[0], test::kContextLayouts[1], test::kContextLayouts[4]})
    for (const char* scores :
         {"--attention-dropout 0 --attn-logit-softcapping 30 ", "--attention-dropout 0.1 ",
          "--attn-logit-softcapping 30 --attention-dropout 0.1 --recompute-activations "}) {
      SCOPED_TRACE(fmt::format("{}: {}", layout.name, scores));
      EXPECT_NEAR(largest_peak_over_plan(test::planned_run(layout, small + scores, "cpu")), 1, 0.03);
      EXPECT_NEAR(largest_peak_over_plan(test::planned_run(layout, test::llama(scores), "meta")), 1, 0.03);
      const auto wide = std::string("--seq-length 4096 --ffn-hidden-size 1024 --vocab-size 1024 ") + scores;
      EXPECT_NEAR(largest_peak_over_plan(test::planned_run(layout, test::llama(wide), "meta")), 1, 0.03);
    }
}

TEST(PlannedPeaks, PeakOfAnEvaluation) {
  test::count_memory();
  for (const std::string& model : {test::llama(""), test::gpt2("")})
    for (const Planned& layout : test::kLayouts) {
      const config::Run run = test::planned_run(layout, model, "meta");
      SCOPED_TRACE(fmt::format("{}: {}", layout.name, model));
      expect_evaluation(run);
    }
}

/// Dense layers of DeepSeek-V3's shape at a quarter of its width.
std::string deepseek(const std::string& more) {
  return "--num-layers 2 --hidden-size 1792 --ffn-hidden-size 4608 --num-attention-heads 32 --vocab-size 32320 "
         "--max-position-embeddings 4096 --position-embedding-type rope --normalization RMSNorm --swiglu "
         "--disable-bias-linear --bf16 --untie-embeddings-and-output-weights --hidden-dropout 0 "
         "--attention-dropout 0 --multi-latent-attention --q-lora-rank 384 --kv-lora-rank 128 --qk-layernorm "
         "--seq-length 2048 " +
         more;
}

TEST(PlannedPeaks, LatentAttentionPeakOfAStepAndOfAnEvaluation) {
  test::count_memory();
  for (const Planned& layout : {test::kLayouts[0], test::kLayouts[2], test::kLayouts[4], test::kLayouts[5]}) {
    const config::Run run = test::planned_run(layout, deepseek(""), "meta");
    SCOPED_TRACE(layout.name);
    expect_peak(run, 0.97, 1.03);
    for (const char* again : {"--recompute-granularity selective --recompute-modules mla_up_proj ",
                              "--recompute-granularity selective --recompute-modules mla_up_proj core_attn ",
                              "--mtp-num-layers 1 "})
      expect_peak(test::planned_run(layout, deepseek(again), "meta"), 0.97, 1.03);
    expect_evaluation(run);
  }
}

TEST(PlannedPeaks, ContextParallelLatentAttentionPeakOfAStep) {
  for (const Planned& layout : test::kContextLayouts)
    for (const char* again :
         {"", "--recompute-granularity selective --recompute-modules mla_up_proj ",
          "--recompute-granularity selective --recompute-modules mla_up_proj core_attn "}) {
      SCOPED_TRACE(fmt::format("{}: {}", layout.name, again));
      expect_peak(test::planned_run(layout, deepseek(std::string("--num-layers 4 ") + again), "meta"), 0.97,
                  1.03);
      const auto wide =
          std::string(
              "--num-layers 4 --seq-length 8192 --max-position-embeddings 8192 --ffn-hidden-size 1024 --vocab-size 1024 ") +
          again;
      expect_peak(test::planned_run(layout, deepseek(wide), "meta"), 0.97, 1.03);
    }
}

TEST(PlannedPeaks, StepReportsItsPeaks) {
  test::count_memory();
  const config::Run run = test::planned_run(test::kLayouts[1], test::odd("--global-batch-size 4 "), "cpu");
  const auto before = static_cast<double>(tensor::memory_use(at::kCPU).now);
  test::SingleRank single(run, 0);
  const auto plan = cost::plan_memory(run)[0];
  for (int step = 0; step < 2; ++step) {
    {
      const at::Tensor between = at::empty({10'000'000}, at::kByte);
    }  // allocations between steps are not reported
    const auto peaks = single.job.train_step(test::steps_after(single.job, 0), {.learning_rate = 1e-3}).peaks;
    const auto planned = static_cast<double>(plan.peak());
    EXPECT_NEAR(static_cast<double>(peaks.forward_backward) - before, planned, 0.05 * planned);
    const auto resident = static_cast<double>(plan.resident());
    EXPECT_NEAR(static_cast<double>(peaks.optimizer) - before, resident, 0.02 * resident);
  }
}

}  // namespace
}  // namespace colonnade::job
