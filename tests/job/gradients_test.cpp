// Every gradient is the same in float64 on one rank and in every layout, with hidden and
// attention dropout: dropout masks depend on (seed, name, global index) only.
#include "job/gradients.h"

namespace colonnade::job {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace)

const std::vector<Layout> kLayouts = with_model_parallel({
    {"Dp2", 2, "--overlap-grad-reduce --ddp-bucket-size 5000"},
    {"Tp2SpPp2Dp2", 8, "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2"},
});

/// Compares with the gradients of one rank, or of the layout `base`.
void expect_all_agree(const std::string& model, const std::vector<Layout>& layouts = kLayouts,
                      const Layout& base = {"One", 1, ""}) {
  const auto flags = words(kCommon + model);
  const Gradients one = gradients(settings(base.world, flags + words(base.flags)));
  for (const auto& [name, gradient] : one) EXPECT_GT(gradient.abs().max().item<double>(), 1e-9) << name;
  for (const Layout& layout : layouts) {
    SCOPED_TRACE(layout.name);
    const Gradients got = gradients(settings(layout.world, flags + words(layout.flags)));
    ASSERT_EQ(got.size(), one.size());
    for (const auto& [name, gradient] : one) EXPECT_LT(distance(got.at(name), gradient), 1e-9) << name;
  }
}

TEST(Gradients, TiedGptWithDropoutAgree) { expect_all_agree(""); }

TEST(Gradients, UntiedGptWithDropoutAgree) { expect_all_agree(kUntied); }

TEST(Gradients, GroupedQueryGptWithDropoutAgree) { expect_all_agree(fmt::format("{}{}", kGroups, kUntied)); }

/// Layouts with stages of the encoder, of the decoder, and with layers of both.
const std::vector<Layout> kEncoderLayouts = with_model_parallel({
    {"Pp4", 4, "--pipeline-model-parallel-size 4"},
    {"Pp3LayersOfBothInOne", 3,
     "--pipeline-model-parallel-size 3 --pipeline-model-parallel-layout Ee*3|ett|ttL"},
    {"Pp2ZbV", 2, "--pipeline-model-parallel-size 2 --pipeline-schedule zb-v"},
    {"Pp2GpipeDelayed", 2,
     "--pipeline-model-parallel-size 2 --pipeline-schedule gpipe --delay-wgrad-compute"},
    {"Pp2Virtual2Dp2Overlapped", 4,
     "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 --use-distributed-optimizer "
     "--overlap-grad-reduce --overlap-param-gather --ddp-bucket-size 5000"},
    {"Dp2Sharded", 2,
     "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params --overlap-grad-reduce "
     "--overlap-param-gather"},
    {"Pp2Dp2ShardedGradients", 4,
     "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads --pipeline-model-parallel-size 2 "
     "--pipeline-schedule zb-h1"},
    {"Tp2SpPp2Dp2", 8, "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2"},
    {"Pp2Dp2Recomputed", 4,
     "--pipeline-model-parallel-size 2 --recompute-granularity full --recompute-method uniform "
     "--recompute-num-layers 1 --overlap-grad-reduce --ddp-bucket-size 5000"},
    {"Tp2SpSelectivelyRecomputed", 2,
     "--tensor-model-parallel-size 2 --sequence-parallel --recompute-granularity selective --recompute-modules "
     "core_attn layernorm mlp"},
});

TEST(Gradients, T5WithDropoutAgree) { expect_all_agree(kT5, kEncoderLayouts); }

TEST(Gradients, UntiedT5Agree) {
  expect_all_agree(
      fmt::format("{}{}--position-embedding-type rope --output-layer-bias --normalization RMSNorm "
                  "--swiglu --disable-bias-linear ",
                  kT5Layers, kUntied),
      kEncoderLayouts);
}

const std::vector<Layout> kBertLayouts = with_model_parallel({
    {"Tp2Sp", 2, "--tensor-model-parallel-size 2 --sequence-parallel"},
    {"Pp2ZbV", 2, "--pipeline-model-parallel-size 2 --pipeline-schedule zb-v"},
    {"Tp2SpPp2ZbH1", 4,
     "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2 --pipeline-schedule "
     "zb-h1"},
    {"Pp4Distributed", 8,
     "--pipeline-model-parallel-size 4 --use-distributed-optimizer --overlap-grad-reduce "
     "--overlap-param-gather --ddp-bucket-size 5000"},
    {"Dp2Sharded", 2,
     "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params --overlap-grad-reduce "
     "--overlap-param-gather"},
    {"Pp2Dp2ShardedGradients", 4,
     "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads --pipeline-model-parallel-size 2 "
     "--pipeline-schedule zb-h1"},
    {"Pp2Dp2Recomputed", 4,
     "--pipeline-model-parallel-size 2 --recompute-granularity full --recompute-method uniform "
     "--recompute-num-layers 1 --overlap-grad-reduce --ddp-bucket-size 5000"},
    {"Tp2SpSelectivelyRecomputed", 2,
     "--tensor-model-parallel-size 2 --sequence-parallel --recompute-granularity selective --recompute-modules "
     "core_attn mlp"},
});

TEST(Gradients, BertWithDropoutAgree) { expect_all_agree(kBert, kBertLayouts); }

TEST(Gradients, PublishedBertWithDropoutAgree) {
  expect_all_agree(kPublishedBert, kBertLayouts);
  expect_all_agree(fmt::format("{}{}--hidden-dropout 0 --disable-bias-linear ", kPublishedBert, kUntied),
                   {kBertLayouts[1], kBertLayouts[2]});
}

constexpr const char* kNoAttentionDropout = "--attention-dropout 0 ";

const std::vector<Layout> kContextLayouts = {
    {"Cp2", 2, "--context-parallel-size 2"},
    {"Cp4AllGather", 4, "--context-parallel-size 4 --cp-comm-type all_gather"},
    {"Cp2A2a", 2, "--context-parallel-size 2 --cp-comm-type a2a"},
    {"Cp4TwoLevels", 4,
     "--context-parallel-size 4 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 2"},
    {"Cp2Tp2SpEachKind", 4,
     "--context-parallel-size 2 --tensor-model-parallel-size 2 --sequence-parallel "
     "--cp-comm-type p2p a2a all_gather p2p"},
    {"Cp2Pp2Virtual2", 4,
     "--context-parallel-size 2 --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 1"},
    {"Cp2Dp2", 4, "--context-parallel-size 2 --overlap-grad-reduce --ddp-bucket-size 5000"},
};

TEST(Gradients, ContextParallelGptAgree) { expect_all_agree(kNoAttentionDropout, kContextLayouts); }

// Attention dropout depends on the global indices of query and key, whatever block they are in.
TEST(Gradients, ContextParallelGptWithAttentionDropoutAgree) {
  std::vector<Layout> layouts = kContextLayouts;
  layouts.push_back({"Cp2Recomputed", 2,
                     "--context-parallel-size 2 --recompute-granularity full --recompute-method uniform "
                     "--recompute-num-layers 1"});
  layouts.push_back({"Cp4TwoLevelsRecomputed", 4,
                     "--context-parallel-size 4 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes "
                     "2 2 --recompute-activations"});
  expect_all_agree("", layouts);
  expect_all_agree(fmt::format("{}{}--window-size 6,0 --attn-logit-softcapping 0.5 ", kGroups, kUntied),
                   layouts);
  expect_all_agree(kLatentWithoutQueryLora, {layouts[0], layouts[1], layouts[3]});
}

TEST(Gradients, ContextParallelSoftCappedScoresAgree) {
  const std::string capped = "--attn-logit-softcapping 0.5 ";
  const std::string documents = "--reset-attention-mask --reset-position-ids ";
  expect_all_agree(kNoAttentionDropout + capped + documents, kContextLayouts);
  expect_all_agree(kGptOss + capped + "--num-query-groups 4 ",
                   {kContextLayouts[0], kContextLayouts[1], kContextLayouts[2], kContextLayouts[3]});
}

TEST(Gradients, ContextParallelGroupedQueriesWithAWindowAgree) {
  expect_all_agree(fmt::format("{}{}{}--window-size 6,0 ", kNoAttentionDropout, kGroups, kUntied),
                   kContextLayouts);
}

const std::vector<Layout> kExpertLayouts = {
    {"Dp2", 2, "--overlap-grad-reduce --ddp-bucket-size 5000"},
    {"Ep2", 2, "--expert-model-parallel-size 2"},
    {"Ep2Of4", 4, "--expert-model-parallel-size 2 --overlap-grad-reduce --ddp-bucket-size 5000"},
    {"Ep4", 4, "--expert-model-parallel-size 4"},
    {"Etp2OverDp", 2, "--expert-tensor-parallel-size 2"},
    {"Tp2Sp", 2, "--tensor-model-parallel-size 2 --sequence-parallel"},
    {"Tp2SpEp2", 2,
     "--tensor-model-parallel-size 2 --sequence-parallel --expert-model-parallel-size 2 "
     "--expert-tensor-parallel-size 1"},
    {"Tp2SpEp2Etp2", 4, "--tensor-model-parallel-size 2 --sequence-parallel --expert-model-parallel-size 2"},
    {"Tp4SpEp2Etp1", 4,
     "--tensor-model-parallel-size 4 --sequence-parallel --expert-model-parallel-size 2 "
     "--expert-tensor-parallel-size 1"},
    {"Tp2SpPp2Ep4", 8,
     "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2 "
     "--expert-model-parallel-size 4 --expert-tensor-parallel-size 1"},
};

TEST(Gradients, ContextParallelAttentionKindsAgree) {
  for (const char* model : {kLatent, kLatentWithoutQueryLora})
    expect_all_agree(std::string(model) + kNoAttentionDropout, kContextLayouts);
  expect_all_agree(std::string(kGptOss) + "--num-query-groups 4 ",
                   {kContextLayouts[0], kContextLayouts[1], kContextLayouts[2], kContextLayouts[3]});
}

// Every rank has the sinks of the heads that it computes.
TEST(Gradients, ContextParallelOffByOneSoftmaxAgree) {
  expect_all_agree(fmt::format("{}{}--softmax-type off-by-one ", kNoAttentionDropout, kGroups),
                   kContextLayouts);
}

TEST(Gradients, ContextParallelMtpAgree) {
  for (const char* documents : {"", "--reset-attention-mask --reset-position-ids "})
    expect_all_agree(
        fmt::format("{}{}{}", kMtp, documents, kNoAttentionDropout),
        {{"Cp2", 2, "--context-parallel-size 2"},
         {"Cp2Pp2Tp2Sp", 8,
          "--context-parallel-size 2 --pipeline-model-parallel-size 2 --tensor-model-parallel-size 2 "
          "--sequence-parallel --cp-comm-type a2a"}});
}

TEST(Gradients, ExpertsWithAllGatherAgree) { expect_all_agree(kExperts, kExpertLayouts); }

TEST(Gradients, ExpertsWithAllToAllAgree) {
  expect_all_agree(fmt::format("{}--moe-token-dispatcher-type alltoall ", kExperts), kExpertLayouts);
}

TEST(Gradients, LatentExpertsAgree) {
  for (const char* dispatcher : {"allgather", "alltoall"})
    expect_all_agree(
        fmt::format("{}--moe-latent-size 20 --init-method-std 0.2 --moe-token-dispatcher-type {} ", kExperts,
                    dispatcher),
        {kExpertLayouts[1],
         kExpertLayouts[7],
         kExpertLayouts[9],
         {"Cp2Ep2", 2, "--context-parallel-size 2 --expert-model-parallel-size 2"},
         {"Ep2Sharded", 4, "--use-megatron-fsdp --expert-model-parallel-size 2"},
         {"Pp2ZbVRecomputed", 2,
          "--pipeline-model-parallel-size 2 --pipeline-schedule zb-v --recompute-granularity selective "
          "--recompute-modules moe layernorm"}});
  // With biases of the projections and the experts.
  expect_all_agree(
      "--num-experts 8 --moe-ffn-hidden-size 20 --moe-latent-size 20 --init-method-std 0.2 "
      "--moe-aux-loss-coeff 0.05 ",
      {kExpertLayouts[1], kExpertLayouts[7]});
}

TEST(Gradients, ContextParallelExpertsAgree) {
  const std::vector<Layout> layouts{
      {"Cp2", 2, "--context-parallel-size 2"},
      {"Cp2Ep2", 2, "--context-parallel-size 2 --expert-model-parallel-size 2"},
      {"Cp2Tp2SpEp4Etp1", 4,
       "--context-parallel-size 2 --tensor-model-parallel-size 2 --sequence-parallel "
       "--expert-model-parallel-size 4 --expert-tensor-parallel-size 1 --cp-comm-type a2a"},
      {"Cp2Dp2Ep2Etp2", 4,
       "--context-parallel-size 2 --expert-model-parallel-size 2 --expert-tensor-parallel-size 2"}};
  for (const char* dispatcher : {"allgather", "alltoall"})
    expect_all_agree(
        fmt::format("{}{}--moe-token-dispatcher-type {} ", kNoAttentionDropout, kExperts, dispatcher),
        layouts);
}

TEST(Gradients, RoutersWithoutAuxiliaryLossAgree) {
  for (const char* router : {"--moe-router-pre-softmax --moe-router-topk 1",
                             "--moe-router-score-function sigmoid --moe-router-topk 4 "
                             "--moe-router-num-groups 4 --moe-router-group-topk 2 "
                             "--moe-router-topk-scaling-factor 2.5 --moe-shared-expert-gate"})
    expect_all_agree(fmt::format("{}{} ", kExperts, router), {kExpertLayouts[3], kExpertLayouts[7]});
}

// Router input jitter depends on names and indices only, as dropout does.
TEST(Gradients, ExpertsWithInputJitterAgree) {
  expect_all_agree(fmt::format("{}--moe-input-jitter-eps 0.3 ", kExperts),
                   {kExpertLayouts[2], kExpertLayouts[6], kExpertLayouts[9]});
  expect_all_agree(fmt::format("{}{}--moe-input-jitter-eps 0.3 ", kNoAttentionDropout, kExperts),
                   {{"Cp2Tp2SpEp2", 4,
                     "--context-parallel-size 2 --tensor-model-parallel-size 2 --sequence-parallel "
                     "--expert-model-parallel-size 2 --expert-tensor-parallel-size 1"}});
}

// So do the random logits of forced load balancing.
TEST(Gradients, ForcedLoadBalancingAgrees) {
  expect_all_agree(fmt::format("{}--moe-router-force-load-balancing ", kExperts),
                   {kExpertLayouts[2], kExpertLayouts[6], kExpertLayouts[9]});
}

// Sinkhorn balances the tokens of a micro-batch that a rank's router sees.
TEST(Gradients, SinkhornRoutersAgreeWhereTheySeeTheSameTokens) {
  for (const char* topk : {"1", "2"})
    expect_all_agree(
        fmt::format(
            "{}--moe-router-load-balancing-type sinkhorn --moe-aux-loss-coeff 0 --moe-router-topk {} ",
            kExperts, topk),
        {kExpertLayouts[0],
         kExpertLayouts[2],
         kExpertLayouts[3],
         {"Pp2Ep2", 4, "--pipeline-model-parallel-size 2 --expert-model-parallel-size 2"}});
}

// Dropped tokens depend on the number of tokens at a rank's router: layouts that keep it agree.
constexpr const char* kCapacity = "--moe-expert-capacity-factor 0.7 ";

TEST(Gradients, ExpertCapacityAgreesWhereRoutersSeeTheSameTokens) {
  const std::vector<Layout> full_sequences{
      kExpertLayouts[0],
      kExpertLayouts[2],
      kExpertLayouts[3],
      kExpertLayouts[4],
      {"Pp2Ep2", 4, "--pipeline-model-parallel-size 2 --expert-model-parallel-size 2"}};
  const std::vector<Layout> half_sequences(kExpertLayouts.begin() + 6, kExpertLayouts.begin() + 8);
  for (const char* more : {"--moe-token-dispatcher-type alltoall ",
                           "--moe-pad-expert-input-to-capacity --moe-token-drop-policy position ",
                           "--moe-pad-expert-input-to-capacity --moe-token-dispatcher-type alltoall "}) {
    expect_all_agree(fmt::format("{}{}{}", kExperts, kCapacity, more), full_sequences);
    expect_all_agree(fmt::format("{}{}{}", kExperts, kCapacity, more), half_sequences, kExpertLayouts[5]);
  }
}

// The loss averages micro-batches of all data ranks so far: layouts with equally many data ranks agree.
TEST(Gradients, GlobalAuxLossAgreesForEquallyManyDataRanks) {
  const std::string model =
      std::string(kExperts) + "--moe-router-load-balancing-type global_aux_loss --moe-aux-loss-coeff 0.5 ";
  expect_all_agree(model, {kExpertLayouts[5],
                           {"Pp2Virtual2", 2,
                            "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 1"}});
  expect_all_agree(model,
                   {kExpertLayouts[1],
                    {"Tp2SpPp2Dp2Ep4", 8,
                     "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2 "
                     "--expert-model-parallel-size 4 --expert-tensor-parallel-size 1"}},
                   kExpertLayouts[0]);
}

TEST(Gradients, ExpertsWithSharedExpertOverlapAgree) {
  expect_all_agree(
      fmt::format("{}--moe-token-dispatcher-type alltoall --moe-shared-expert-overlap ", kExperts),
      {kExpertLayouts[1], kExpertLayouts[6], kExpertLayouts[9]});
}

TEST(Gradients, GptOssWithAllGatherAgrees) { expect_all_agree(kGptOss, kExpertLayouts); }

TEST(Gradients, GptOssWithAllToAllAgrees) {
  expect_all_agree(fmt::format("{}--moe-token-dispatcher-type alltoall ", kGptOss), kExpertLayouts);
}

// Gemma 3 with Gemma 2's soft caps: sandwich norms, two rotary bases, scaled and tied embeddings.
TEST(Gradients, GemmaAgrees) {
  expect_all_agree(
      "--group-query-attention --num-query-groups 2 --position-embedding-type rope --rotary-base 1000000 "
      "--rotary-base-local 10000 --normalization RMSNorm --apply-layernorm-1p --qk-layernorm --sandwich-norm "
      "--scale-embeddings --query-pre-attn-scalar 12 --attn-logit-softcapping 0.5 --activation geglu-tanh "
      "--disable-bias-linear --window-size 5,0 --window-attn-skip-freq [1,1,0,1] --softmax-type vanilla "
      "--final-logit-softcapping 0.3 ");
}

// OLMo 2 with OLMoE's clamp, Granite's factors and layers without RoPE; 4 ranks share 2 key heads.
TEST(Gradients, NormsAcrossHeadsAgree) {
  expect_all_agree(
      "--group-query-attention --num-query-groups 2 --position-embedding-type rope --no-rope-freq 2 "
      "--normalization RMSNorm --qk-layernorm --qk-norm-across-heads --clip-qkv 0.5 --sandwich-norm "
      "--no-input-norms --disable-bias-linear --swiglu --residual-factor 0.5 --embedding-factor 3 "
      "--logit-factor 0.5 ");
}

TEST(Gradients, NormsAfterRopeAgree) {
  expect_all_agree(
      "--group-query-attention --num-query-groups 2 --position-embedding-type rope --qk-layernorm "
      "--qk-norm-after-rope --no-layernorm-bias --parallel-residual --residual-factor 0.5 ");
}

// With tensor parallelism, for the output head and the MTP heads, in separate stages.
TEST(Gradients, SoftCappedLogitsAgree) {
  expect_all_agree(fmt::format("{}--final-logit-softcapping 0.3 ", kMtp),
                   with_model_parallel({{"HeadAlone", 4,
                                         "--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout "
                                         "Ett|tt|mm|L"}}));
}

const std::vector<Layout> kLatentLayouts = with_model_parallel({
    {"Tp4", 4, "--tensor-model-parallel-size 4"},
    {"Dp2", 2, "--overlap-grad-reduce --ddp-bucket-size 5000"},
    {"Tp2SpPp2Dp2", 8, "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2"},
    {"Pp2ZbV", 2, "--pipeline-model-parallel-size 2 --pipeline-schedule zb-v"},
});

TEST(Gradients, LatentAttentionAgrees) { expect_all_agree(kLatent, kLatentLayouts); }

TEST(Gradients, LatentAttentionWithDropoutAgrees) {
  expect_all_agree(kLatentWithoutQueryLora, kLatentLayouts);
}

TEST(Gradients, LatentAttentionWithExpertsAgrees) {
  expect_all_agree(fmt::format("{}{}", kLatent, kExperts),
                   {kExpertLayouts[1], kExpertLayouts[6], kExpertLayouts[9]});
}

const std::vector<Layout> kMtpLayouts = with_model_parallel({
    {"Dp2", 2, "--overlap-grad-reduce --ddp-bucket-size 5000"},
    {"Tp2SpPp2Dp2", 8, "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2"},
    {"Pp2ZbV", 2, "--pipeline-model-parallel-size 2 --pipeline-schedule zb-v"},
    {"Pp2ZbH1", 2, "--pipeline-model-parallel-size 2 --pipeline-schedule zb-h1"},
    {"LastStageAlone", 4, "--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout Et|tt|t|mmL"},
    {"HeadAlone", 4, "--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout Ett|tt|mm|L"},
    {"NothingBeforeTheHead", 4,
     "--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout Ett|ttmm||L"},
    {"HeadAloneVirtual", 2, "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et|tt|tmm|L"},
    {"HeadAloneZbV", 4,
     "--pipeline-model-parallel-size 2 --pipeline-schedule zb-v --pipeline-model-parallel-layout Et|tt|tmm|L"},
    {"ThreeReadersOnARank", 1, "--pipeline-model-parallel-layout Etttt|mm|L"},
    {"ACopyForTwoReaders", 2,
     "--pipeline-model-parallel-size 2 --delay-wgrad-compute --pipeline-model-parallel-layout Ett|ttmm||L"},
    {"HeadAloneCp2", 8,
     "--context-parallel-size 2 --cp-comm-type a2a --pipeline-model-parallel-size 4 "
     "--pipeline-model-parallel-layout Ett|tt|mm|L"},
    {"HeadAloneTp2Sp", 8,
     "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 4 "
     "--pipeline-model-parallel-layout Ett|tt|mm|L"},
});

TEST(Gradients, MtpAgrees) { expect_all_agree(kMtp, kMtpLayouts); }

TEST(Gradients, UntiedMtpAgrees) { expect_all_agree(fmt::format("{}{}", kMtp, kUntied), kMtpLayouts); }

TEST(Gradients, MtpWithExpertsAndLatentAttentionAgrees) {
  expect_all_agree(fmt::format("{}{}{}{}--moe-layer-freq [0,1,0,1] ", kLatent, kMtp, kUntied, kExperts),
                   {kExpertLayouts[1], kExpertLayouts[6], kExpertLayouts[9]});
}

// Eight layers, eight micro-batches or more, so that every schedule fills the pipeline of four.
constexpr const char* kDeep =
    "--num-layers 8 --hidden-size 32 --ffn-hidden-size 48 --kv-channels 4 --micro-batch-size 1 "
    "--global-batch-size 16 ";

constexpr const char* kSchedules[] = {
    "--pipeline-schedule gpipe",
    "--pipeline-schedule 1f1b --delay-wgrad-compute",
    "--num-virtual-stages-per-pipeline-rank 2 --delay-wgrad-compute",
    "--pipeline-schedule zb-h1",
    "--pipeline-schedule zb-v",
    "--pipeline-schedule dualpipe-v",
};

void expect_schedules_agree(const std::string& model) {
  const auto flags = words(fmt::format("{}{}{}", kCommon, kDeep, model));
  const Gradients one = gradients(settings(1, flags));
  const auto expect_same = [&](int world, const std::string& layout) {
    SCOPED_TRACE(layout);
    const Gradients got = gradients(settings(world, flags + words(layout)));
    ASSERT_EQ(got.size(), one.size());
    for (const auto& [name, gradient] : one) EXPECT_LT(distance(got.at(name), gradient), 1e-9) << name;
  };
  for (const char* schedule : kSchedules)
    for (const int pp : {2, 4}) {
      const auto layout = fmt::format("--pipeline-model-parallel-size {} {}", pp, schedule);
      expect_same(pp, layout);
      expect_same(2 * pp, layout + " --overlap-grad-reduce --ddp-bucket-size 3000");
    }
  expect_same(8,
              "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2 "
              "--pipeline-schedule zb-v --overlap-grad-reduce --ddp-bucket-size 3000");
}

// Embedding and head share their weight; in a V schedule both are on the first rank.
TEST(Gradients, EveryScheduleAgreesWithTiedEmbeddings) { expect_schedules_agree(""); }

TEST(Gradients, EveryScheduleAgreesUntied) { expect_schedules_agree(kUntied); }

TEST(Gradients, ExpertsAgreeWithDeferredWeightGradients) {
  expect_all_agree(
      kExperts, {{"Pp2Ep2ZbV", 4,
                  "--pipeline-model-parallel-size 2 --pipeline-schedule zb-v "
                  "--expert-model-parallel-size 2 --overlap-grad-reduce --ddp-bucket-size 5000"},
                 {"Pp2Etp2DualPipeV", 4,
                  "--pipeline-model-parallel-size 2 --pipeline-schedule dualpipe-v "
                  "--expert-tensor-parallel-size 2 --overlap-grad-reduce --ddp-bucket-size 5000"},
                 {"Pp2Ep2Delayed", 4,
                  "--pipeline-model-parallel-size 2 --delay-wgrad-compute --expert-model-parallel-size 2"}});
}

TEST(Gradients, DeferredWeightGradientsEqual1F1BBitwise) {
  for (const char* model : {"", kExperts}) {
    const auto flags = words(fmt::format("{}{}{}{}", kCommon, kDeep, kUntied, model)) +
                       words("--pipeline-model-parallel-size 2");
    const Gradients fused = gradients(settings(2, flags));
    for (const char* schedule : {"--pipeline-schedule zb-h1", "--pipeline-schedule zb-v",
                                 "--pipeline-schedule dualpipe-v", "--delay-wgrad-compute"}) {
      SCOPED_TRACE(fmt::format("{}{}", model, schedule));
      const Gradients split = gradients(settings(2, flags + words(schedule)));
      for (const auto& [name, gradient] : fused) EXPECT_TRUE(at::equal(split.at(name), gradient)) << name;
    }
  }
}

TEST(Gradients, ChangeWithDropoutAndSoftCapping) {
  const auto flags = words(kCommon);
  const Gradients one = gradients(settings(1, flags));
  for (const char* other : {"--hidden-dropout 0", "--attention-dropout 0", "--final-logit-softcapping 0.3"}) {
    const Gradients changed = gradients(settings(1, flags + words(other)));
    const std::string name = "decoder.layers.0.mlp.linear_fc1.weight";
    EXPECT_GT(distance(changed.at(name), one.at(name)), 1e-3) << other;
  }
}

}  // namespace
}  // namespace colonnade::job
