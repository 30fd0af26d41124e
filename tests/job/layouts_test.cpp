// Three steps of a model of width 512, with an odd vocabulary and 512 tokens per step, are the same on one
// rank and in every layout.
#include <cmath>
#include <numeric>

#include "job/runs.h"

namespace colonnade::job {
namespace {

using test::operator+;

// Other settings are Megatron's defaults: learned positions, LayerNorm, biases, dropout 0.1, tied
// embeddings.
constexpr const char* kCommon =
    "--num-layers 4 --hidden-size 512 --ffn-hidden-size 256 --num-attention-heads 8 --kv-channels 16 "
    "--vocab-size 517 --seq-length 128 --max-position-embeddings 128 --micro-batch-size 1 "
    "--global-batch-size 8 --clip-grad 1.0 ";
constexpr const char* kLlama =
    "--position-embedding-type rope --normalization RMSNorm --swiglu --disable-bias-linear "
    "--hidden-dropout 0 --attention-dropout 0 --group-query-attention --num-query-groups 2 ";
constexpr const char* kUntied = "--untie-embeddings-and-output-weights ";

const std::vector<test::Layout> kLossLayouts = test::with_model_parallel({
    {"Dp2", 2, ""},
    {"Dp2DistributedOverlap", 2,
     "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --ddp-bucket-size 300000"},
    {"Tp2SpPp2Dp2", 8,
     "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2 "
     "--use-distributed-optimizer --overlap-grad-reduce --ddp-bucket-size 100000"},
});

void expect_losses_agree(const std::string& model, const std::vector<test::Layout>& layouts = kLossLayouts) {
  const auto flags = test::words(kCommon + model);
  const test::Curve one = test::train(test::settings(1, flags), 3);
  EXPECT_LT(one.loss[2], one.loss[0]);
  for (const test::Layout& layout : layouts) {
    SCOPED_TRACE(layout.name);
    const test::Curve got = test::train(test::settings(layout.world, flags + test::words(layout.flags)), 3);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_NEAR(got.loss[i], one.loss[i], 2e-5 * one.loss[i]) << "step " << i + 1;
      EXPECT_NEAR(got.grad_norm[i], one.grad_norm[i], 1e-4 * one.grad_norm[i]) << "step " << i + 1;
    }
  }
}

TEST(Layouts, LlamaAgrees) { expect_losses_agree(fmt::format("{}{}", kLlama, kUntied)); }

TEST(Layouts, LlamaWithMuonAgrees) {
  expect_losses_agree(
      fmt::format("{}{}--optimizer muon --decoupled-lr 0.002 --muon-nesterov ", kLlama, kUntied));
}

TEST(Layouts, ContextParallelLlamaAgrees) {
  expect_losses_agree(fmt::format("{}{}", kLlama, kUntied),
                      {{"Cp4", 4, "--context-parallel-size 4"},
                       {"Cp2Dp2DistributedOverlap", 4,
                        "--context-parallel-size 2 --cp-comm-type all_gather --use-distributed-optimizer "
                        "--overlap-grad-reduce --overlap-param-gather --ddp-bucket-size 300000"},
                       {"Cp2Tp2SpPp2", 8,
                        "--context-parallel-size 2 --tensor-model-parallel-size 2 --sequence-parallel "
                        "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 1 "
                        "--use-distributed-optimizer --cp-comm-type p2p a2a all_gather a2a"}});
}

/// Expects runs that reduce gradients in bf16 to stay close to the run in fp32. The norm is that of rounded
/// sums: single elements differ by rounding, their norm hardly does.
void expect_close_in_bf16(const std::string& size, const std::vector<const char*>& shardings) {
  const auto flags = test::words(fmt::format("{}{}{}--bf16 {}", kCommon, kLlama, kUntied, size));
  const auto trained = [&](const std::string& more) {
    return test::train(test::settings(4, flags + test::words("--overlap-grad-reduce " + more)), 3);
  };
  const test::Curve exact = trained("");
  for (const char* sharding : shardings) {
    SCOPED_TRACE(sharding);
    const test::Curve got = trained(std::string(sharding) + "--grad-reduce-in-bf16 ");
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_NEAR(got.loss[i], exact.loss[i], 2e-3 * exact.loss[i]) << "step " << i + 1;
      EXPECT_NEAR(got.grad_norm[i], exact.grad_norm[i], 4e-3 * exact.grad_norm[i]) << "step " << i + 1;
    }
    EXPECT_GT(std::abs(got.grad_norm[0] / exact.grad_norm[0] - 1), 1e-8) << "rounded";
  }
}

// Stages would not accept messages of another dtype.
TEST(Layouts, Fp32ResidualStreamsOfEveryModelStayClose) {
  const std::string small = fmt::format(
      "{}--hidden-size 128 --seq-length 32 --max-position-embeddings 32 --bf16 "
      "--fp32-residual-connection ",
      kCommon);
  const std::string recomputed =
      "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1 ";
  const test::Layout stages{"Tp2SpPp2", 4,
                            "--tensor-model-parallel-size 2 --sequence-parallel "
                            "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 1 "};
  const test::Layout head_alone{
      "HeadAlone", 3, "--pipeline-model-parallel-size 3 --pipeline-model-parallel-layout Ettt|tm|L "};
  const test::Layout encoder{"Pp2", 2, "--pipeline-model-parallel-size 2 "};
  for (const auto& [model, layout] :
       {std::pair{std::string(kLlama), stages}, std::pair{recomputed, stages},
        std::pair{std::string("bert "), stages},
        std::pair{std::string("bert --apply-residual-connection-post-layernorm --bert-no-binary-head "),
                  encoder},
        std::pair{std::string("t5 --encoder-num-layers 4 --decoder-seq-length 8 --vocab-extra-ids 5 "),
                  encoder},
        std::pair{std::string("--mtp-num-layers 1 --position-embedding-type rope "), head_alone}}) {
    SCOPED_TRACE(model);
    const auto flags = test::words(small + model);
    const test::Curve one = test::train(test::settings(1, flags), 2);
    const test::Curve got = test::train(test::settings(layout.world, flags + test::words(layout.flags)), 2);
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_NEAR(got.loss[i], one.loss[i], 4e-3 * one.loss[i]) << "step " << i + 1;
      EXPECT_NEAR(got.grad_norm[i], one.grad_norm[i], 2e-2 * one.grad_norm[i]) << "step " << i + 1;
    }
  }
}

// A narrow model: products in bf16 are slow on processors without instructions for them.
TEST(Layouts, GradientsReducedInBf16StayClose) {
  expect_close_in_bf16(
      "--num-layers 2 --hidden-size 128 --global-batch-size 8 ",
      {"", "--use-distributed-optimizer ",
       "--use-distributed-optimizer --ddp-reduce-scatter-with-fp32-accumulation ",
       "--use-distributed-optimizer --num-distributed-optimizer-instances 2 --ddp-num-buckets 5 ",
       "--use-megatron-fsdp --num-distributed-optimizer-instances 2 --outer-dp-sharding-strategy optim "});
}

// Gradients of bf16 weights, summed in fp32 after each micro-batch: little is rounded, which shows in a wide
// model.
TEST(Layouts, Bf16GradientsSummedInFp32StayClose) {
  expect_close_in_bf16("--global-batch-size 8 ",
                       {"--use-megatron-fsdp --ddp-reduce-scatter-with-fp32-accumulation "
                        "--ddp-pad-buckets-for-high-nccl-busbw "});
}

TEST(Layouts, TiedLlamaAgrees) { expect_losses_agree(kLlama); }

TEST(Layouts, GptWithDropoutAgrees) { expect_losses_agree(""); }

TEST(Layouts, UntiedGptWithDropoutAgree) { expect_losses_agree(kUntied); }

TEST(Layouts, EmptyStageAgrees) {
  expect_losses_agree(
      "", {{"Pp3", 3, "--pipeline-model-parallel-size 3 --pipeline-model-parallel-layout Ett||ttL"},
           {"Pp3Distributed", 3,
            "--pipeline-model-parallel-size 3 --pipeline-model-parallel-layout Ettt||tL "
            "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather"}});
}

/// Two steps of a model with load-balancing losses, with a loss on every token.
test::Curve two_full_steps(int world, const std::string& more) {
  const config::Run run = test::settings(
      world,
      test::words(std::string("--num-layers 2 --hidden-size 32 --num-attention-heads 4 --vocab-size 61 "
                              "--seq-length 16 --micro-batch-size 2 --global-batch-size 8 --num-experts 4 "
                              "--moe-aux-loss-coeff 0.5 --moe-z-loss-coeff 0.1 --clip-grad 0 ") +
                  kLlama + kUntied + more));
  test::Curve curve;
  test::on_jobs(run, [&](Job& job) {
    for (int step = 0; step < 2; ++step) {
      pipeline::Steps steps = test::steps_after(job, job.counters.consumed_samples);
      steps.batch = [&job, batch = steps.batch](int microbatch) {
        tensor::Batch full = batch(microbatch);
        full.set(tensor::Field::kLossMask, at::ones_like(full.at(tensor::Field::kLossMask)));
        full.set(tensor::Field::kLossCount,
                 full.at(tensor::Field::kLossMask).sum() * job.run.parallel.context_parallel_size);
        return full;
      };
      const auto report = job.train_step(steps, {.learning_rate = 1e-3, .weight_decay = 0.1});
      if (job.ranks.rank() != 0) continue;
      curve.loss.push_back(report.losses.at("lm_loss"));
      curve.grad_norm.push_back(report.optimizer.grad_norm);
    }
  });
  return curve;
}

TEST(Layouts, BalancingLossesKeepTheirWeightUnderEveryNormalization) {
  const test::Curve mean = two_full_steps(1, "");
  EXPECT_GT(std::abs(two_full_steps(1, "--moe-z-loss-coeff 0 ").grad_norm[0] / mean.grad_norm[0] - 1), 1e-3)
      << "the losses must show in the norm";
  for (const auto& [world, more] :
       {std::pair{1, "--calculate-per-token-loss "},
        std::pair{2, "--calculate-per-token-loss --expert-model-parallel-size 2 "},
        std::pair{2, "--context-parallel-size 2 "},
        std::pair{4, "--context-parallel-size 2 --calculate-per-token-loss --expert-model-parallel-size 4 "},
        std::pair{1, "--loss-scale 1024 --fp16 "}}) {
    SCOPED_TRACE(more);
    const bool half = std::string(more).find("fp16") != std::string::npos;
    const test::Curve got = two_full_steps(world, more);
    for (std::size_t i = 0; i < 2; ++i)
      EXPECT_NEAR(got.grad_norm[i] / mean.grad_norm[i], 1.0, half ? 1e-2 : 1e-5) << "step " << i + 1;
  }
}

constexpr const char* kSmallMoe =
    "--num-layers 4 --hidden-size 32 --num-attention-heads 4 --vocab-size 61 --seq-length 16 --micro-batch-size 2 "
    "--global-batch-size 8 --num-experts 4 --moe-layer-freq [0,1,1,1] --moe-ffn-hidden-size 16 ";

/// Losses of three steps in float64.
std::vector<double> moe_losses(int world, const std::string& more) {
  const config::Run run =
      test::settings(world, test::words(std::string(kSmallMoe) + kLlama + kUntied + more));
  std::vector<double> losses;
  test::on_jobs(
      run,
      [&](Job& job) {
        const test::Curve mine = test::train(job, 3);
        if (job.ranks.rank() == 0) losses = mine.loss;
      },
      test::kFloat64);
  return losses;
}

TEST(Layouts, SinkhornRoutersThatSeeTheSameTokensAgree) {
  const std::string sinkhorn = "--moe-router-load-balancing-type sinkhorn --moe-router-topk 1 ";
  const std::vector<double> one = moe_losses(1, sinkhorn);
  EXPECT_GT(std::abs(moe_losses(1, "--moe-router-topk 1 --moe-router-score-function sigmoid ")[0] - one[0]),
            1e-6)
      << "other experts";
  for (const char* layout : {"", "--pipeline-model-parallel-size 2", "--expert-model-parallel-size 2"}) {
    const std::vector<double> two = moe_losses(2, sinkhorn + layout);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(two[i], one[i], 1e-9) << layout << " step " << i + 1;
  }
}

/// Losses of the first step in float64, by name.
std::map<std::string, double> router_losses(int world, const std::string& more) {
  const config::Run run =
      test::settings(world, test::words(std::string(kSmallMoe) + kLlama + kUntied +
                                        "--moe-aux-loss-coeff 0.5 --moe-z-loss-coeff 0.1 --mtp-num-layers 1 "
                                        "--moe-per-layer-logging " +
                                        more));
  std::map<std::string, double> losses;
  test::on_jobs(
      run,
      [&](Job& job) {
        auto report = job.train_step(test::steps_after(job, 0), {.learning_rate = 1e-3, .weight_decay = 0.1});
        if (job.ranks.rank() == 0) losses = std::move(report.losses);
      },
      test::kFloat64);
  return losses;
}

/// The reported loss is the mean over the three MoE layers and the MTP layer; every layout reports the same.
TEST(Layouts, RouterLossesOfEachLayerAgree) {
  const auto one = router_losses(1, "");
  for (const std::string name : {"load_balancing_loss", "z_loss"}) {
    std::vector<double> layers;
    for (const auto& [key, loss] : one)
      if (key.starts_with("layer_loss/" + name + "/")) layers.push_back(loss);
    ASSERT_EQ(layers.size(), 4U);
    EXPECT_NEAR(std::accumulate(layers.begin(), layers.end(), 0.0) / 4, one.at(name), 1e-12) << name;
    EXPECT_GT(*std::ranges::max_element(layers) - *std::ranges::min_element(layers), 1e-6) << name;
  }
  for (const test::Layout& layout : std::vector<test::Layout>{
           {"Dp2", 2, ""},
           {"Cp2Ep2", 2,
            "--context-parallel-size 2 --expert-model-parallel-size 2 --moe-token-dispatcher-type alltoall"},
           {"Tp2SpPp2Virtual", 4,
            "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2 "
            "--num-layers-per-virtual-pipeline-stage 1"}}) {
    SCOPED_TRACE(layout.name);
    const auto got = router_losses(layout.world, layout.flags);
    ASSERT_EQ(got.size(), one.size());
    for (const auto& [name, loss] : one) EXPECT_NEAR(got.at(name), loss, 1e-9) << name;
  }
}

/// Tokens of each expert in the first step, by router.
std::map<std::string, std::vector<double>> tokens_per_expert(int world, const std::string& more) {
  const config::Run run =
      test::settings(world, test::words(std::string(kSmallMoe) + kLlama + kUntied + more));
  std::map<std::string, std::vector<double>> counts;
  comm::run_ranks(run.parallel, [&](comm::Communicators& ranks) {
    Job job(run, ranks, build_model, InitialValues::kRandom, test::kFloat64);
    auto report = job.train_step(test::steps_after(job, 0), {.learning_rate = 1e-3, .weight_decay = 0.1});
    if (ranks.rank() == 0) counts = std::move(report.counts);
  });
  return counts;
}

TEST(Layouts, CountEachExpertTokenOnce) {
  const auto one = tokens_per_expert(1, "");
  ASSERT_EQ(one.size(), 3U);
  for (const auto& [name, tokens] : one)
    EXPECT_EQ(std::accumulate(tokens.begin(), tokens.end(), 0.0), 8 * 16 * 2) << name;
  for (const test::Layout& layout : std::vector<test::Layout>{
           {"Dp4", 4, "--micro-batch-size 1"},
           {"Ep2Etp2", 4, "--expert-model-parallel-size 2 --expert-tensor-parallel-size 2"},
           {"Tp2SpPp2", 4,
            "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2 "
            "--num-layers-per-virtual-pipeline-stage 1"},
           {"Cp2Dp2", 4, "--context-parallel-size 2 --moe-token-dispatcher-type alltoall"},
           {"Pp2ZbV", 2, "--pipeline-model-parallel-size 2 --pipeline-schedule zb-v"}})
    EXPECT_EQ(tokens_per_expert(layout.world, layout.flags), one) << layout.name;
}

/// Choices by global micro-batch, shifted by one expert, decide in every layout, also in recomputed passes.
TEST(Layouts, ReplayedChoicesAgree) {
  std::map<int, std::shared_ptr<tensor::RoutingChoices>> choices;
  const auto step = [&choices](int world, const std::string& more) {
    const config::Run run =
        test::settings(world, test::words(std::string(kSmallMoe) + kLlama + kUntied + more));
    double norm = 0;
    test::on_jobs(
        run,
        [&](Job& job) {
          pipeline::Steps steps = test::steps_after(job, 0);
          steps.routing = [&](int m) { return choices.at(m * job.data_ranks() + job.data_rank()); };
          const auto report = job.train_step(steps, {.learning_rate = 1e-3, .weight_decay = 0.1});
          if (job.ranks.rank() == 0) norm = report.optimizer.grad_norm;
        },
        test::kFloat64);
    return norm;
  };
  for (int m = 0; m < 4; ++m) choices[m] = std::make_shared<tensor::RoutingChoices>();
  const double recorded = step(1, "");
  for (const auto& [m, choice] : choices) {
    choice->replay = true;
    EXPECT_EQ(choice->by_router.size(), 3U) << "micro-batch " << m;
  }
  EXPECT_NEAR(step(1, ""), recorded, 1e-12 * recorded);
  for (const auto& [m, choice] : choices)
    for (auto& [router, experts] : choice->by_router) experts = (experts + 1) % 4;
  const double shifted = step(1, "");
  EXPECT_GT(std::abs(shifted / recorded - 1), 1e-6);
  for (const test::Layout& layout : std::vector<test::Layout>{
           {"Ep2", 2, "--expert-model-parallel-size 2"},
           {"Pp2Virtual2Recomputed", 2,
            "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 1 "
            "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"}})
    EXPECT_NEAR(step(layout.world, layout.flags), shifted, 1e-9 * shifted) << layout.name;
}

/// 8 x 16 tokens with two of four experts each: 64 tokens per expert, standard deviation about 5.7.
TEST(Layouts, ForcedLoadBalancingIsUniform) {
  const std::string force = "--moe-router-force-load-balancing ";
  const auto forced = tokens_per_expert(1, force);
  for (const auto& [name, tokens] : forced)
    for (const double count : tokens) EXPECT_NEAR(count, 64, 29) << name;
  EXPECT_EQ(forced, tokens_per_expert(1, force));
  EXPECT_EQ(forced, tokens_per_expert(2, force + "--tensor-model-parallel-size 2 --sequence-parallel"));
  EXPECT_NE(forced, tokens_per_expert(1, force + "--seed 4321"));
  const std::vector<double> losses = moe_losses(1, force);
  EXPECT_EQ(losses, moe_losses(1, force));
  EXPECT_GT(std::abs(losses[0] - moe_losses(1, "")[0]), 1e-6);
}

TEST(Layouts, CountTokensKeptByTheCapacity) {
  const std::string capacity = "--moe-expert-capacity-factor 0.75 --expert-tensor-parallel-size 1 ";
  const auto one = tokens_per_expert(1, capacity);
  ASSERT_EQ(one.size(), 6U);
  for (const auto& [name, tokens] : one)
    if (name.starts_with("kept_tokens/")) {
      EXPECT_LE(*std::ranges::max_element(tokens), 4 * 12) << "ceil(32 x 2 / 4 x 0.75) of 4 micro-batches";
    }
  EXPECT_EQ(
      tokens_per_expert(4, capacity + "--expert-model-parallel-size 2 --pipeline-model-parallel-size 2"),
      one);
}

}  // namespace
}  // namespace colonnade::job
