// Hybrid context parallelism, with as many ranks per sequence as its length needs, computes the same as
// packed samples with document masks on one rank.
#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "colonnade/base/error.h"
#include "layouts/models.h"
#include "support/long_tailed.h"
#include "support/reductions.h"

namespace colonnade::test {
namespace {

using train::Precision;

const std::string kDocuments =
    "--seq-length 64 --max-position-embeddings 64 --num-layers 2 --hidden-dropout 0 --reset-position-ids "
    "--reset-attention-mask --calculate-per-token-loss --eod-mask-loss ";
constexpr const char* kLatent =
    "--multi-latent-attention --position-embedding-type rope --kv-lora-rank 12 --qk-head-dim 6 "
    "--qk-pos-emb-head-dim 4 --kv-channels 10 --v-head-dim 5 --qk-layernorm --normalization RMSNorm ";

/// MoE with losses over all tokens, and an expert bias that follows the token counts.
const std::string kExperts =
    "--untie-embeddings-and-output-weights --position-embedding-type rope --disable-bias-linear --swiglu "
    "--num-experts 4 --moe-layer-freq 2 --moe-ffn-hidden-size 16 --moe-router-topk 2 --moe-z-loss-coeff 0.1 "
    "--moe-shared-expert-intermediate-size 12 --moe-token-dispatcher-type alltoall "
    "--moe-router-score-function sigmoid --moe-router-enable-expert-bias ";
/// MoE with losses per sequence.
const std::string kBalanced =
    kExperts + "--moe-router-load-balancing-type aux_loss seq_aux_loss --moe-aux-loss-coeff 0.5 0.25 ";
constexpr const char* kOneRank = "--hybrid-context-parallel ";

/// Results of `whole` on one rank, which `flags` determine; computed once.
const train::TrainedLayout& on_one_rank(const config::Run& whole, const std::string& flags,
                                        const data::Batches& batches, int steps, Precision precision) {
  static std::map<std::tuple<std::string, int, Precision>, train::TrainedLayout> known;
  const std::tuple key{flags, steps, precision};
  auto found = known.find(key);
  if (found == known.end())
    found = known.emplace(key, train::train_layout({.run = whole}, batches, steps, precision)).first;
  return found->second;
}

/// Compares with one rank with the flags `reference`; by default packed samples with document masks.
void expect_hybrid_agreement(const std::string& model, int world, const std::string& cut,
                             const std::string& reference = "") {
  SCOPED_TRACE(fmt::format("{} ranks: {}{}", world, model, cut));
  const config::Run whole = settings(1, words(kSmall + kDocuments + model + reference));
  const config::Run shared =
      settings(world, words(kSmall + kDocuments + model + "--hybrid-context-parallel " + cut));
  const auto batches = long_tailed(whole, 2.5);
  for (const auto& [steps, precision] :
       {std::pair{1, Precision::kFloat64}, std::pair{3, Precision::kFromSettings}}) {
    const auto difference = train::compare(on_one_rank(whole, model + reference, batches, steps, precision),
                                           train::train_layout({.run = shared}, batches, steps, precision))
                                .first;
    EXPECT_FALSE(difference) << difference->what << ' ' << difference->distance;
  }
}

TEST(Hybrid, EveryExchangeAgreesWithOneRank) {
  for (const char* kind : {"p2p", "all_gather", "a2a", "p2p a2a"}) {
    expect_hybrid_agreement(kUntied, 4,
                            fmt::format("--max-seqlen-per-dp-cp-rank 16 --cp-comm-type {}", kind));
    expect_hybrid_agreement(kTied, 8, fmt::format("--max-seqlen-per-dp-cp-rank 8 --cp-comm-type {}", kind));
  }
}

TEST(Hybrid, CombinesWithOtherParallelism) {
  const std::string tokens = "--max-seqlen-per-dp-cp-rank 16 ";
  for (const char* cut :
       {"--tensor-model-parallel-size 2", "--tensor-model-parallel-size 2 --sequence-parallel",
        "--context-parallel-size 2", "--context-parallel-size 4", "--pipeline-model-parallel-size 2",
        "--pipeline-model-parallel-size 2 --pipeline-schedule gpipe",
        "--pipeline-model-parallel-size 2 --pipeline-schedule zb-h1",
        "--pipeline-model-parallel-size 2 --delay-wgrad-compute --context-parallel-size 2",
        ("--pipeline-model-parallel-size 2 --tensor-model-parallel-size 2 --sequence-parallel "
         "--max-seqlen-per-dp-cp-rank 32"),
        "--use-distributed-optimizer --ddp-bucket-size 3000",
        "--use-distributed-optimizer --num-distributed-optimizer-instances 2",
        "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
        "--recompute-granularity selective --recompute-modules core_attn"})
    expect_hybrid_agreement(kUntied, 8, tokens + cut);
}

TEST(Hybrid, EveryOmittedReductionIsDetected) {
  const config::Run whole = settings(1, words(kSmall + kDocuments + kUntied));
  const auto batches = long_tailed(whole, 2.5);
  const train::TrainedLayout one = train::train_layout({.run = whole}, batches, 1, Precision::kFloat64);
  for (const char* kind : {"all_gather", "p2p"}) {
    const config::Run shared =
        settings(4, words(kSmall + kDocuments + kUntied +
                          "--hybrid-context-parallel --max-seqlen-per-dp-cp-rank 16 --cp-comm-type " + kind));
    const auto agree = [&](Reductions& reductions) {
      try {
        const train::LayoutRun cut{.run = shared, .wrap_factory = between(reductions)};
        return !train::compare(one, train::train_layout(cut, batches, 1, Precision::kFloat64)).first;
      } catch (const Error&) {
        return false;
      }
    };
    Reductions all;
    EXPECT_TRUE(agree(all)) << "no reduction is omitted";
    EXPECT_TRUE(std::ranges::any_of(all.seen, [](const Reduction& one) {
      return one.axes.ends_with(".inner");
    })) << "no communication in a group smaller than all";
    for (const Reduction& reduction : all.seen) {
      Reductions less;
      less.dropped = reduction;
      EXPECT_FALSE(agree(less)) << kind << ": " << reduction.operation << " over " << reduction.axes << ": "
                                << reduction.what;
    }
  }
}

TEST(Hybrid, SupportsEveryAttention) {
  const std::string cut = "--max-seqlen-per-dp-cp-rank 16 ";
  expect_hybrid_agreement(kLatent, 4, cut);
  expect_hybrid_agreement(std::string(kUntied) + "--window-size 5,0 ", 4, cut);
  expect_hybrid_agreement(std::string(kUntied) + "--softmax-type learnable ", 4,
                          cut + "--cp-comm-type p2p a2a");
  for (const char* kind : {"a2a", "p2p", "all_gather"})
    expect_hybrid_agreement(
        std::string(kUntied) + "--attn-logit-softcapping 0.5 --final-logit-softcapping 2 ", 4,
        cut + "--cp-comm-type " + kind);
}

TEST(Hybrid, SupportsExperts) {
  const std::string tokens = "--max-seqlen-per-dp-cp-rank 16 ";
  for (const char* cut :
       {"--expert-model-parallel-size 2", "--expert-model-parallel-size 4 --context-parallel-size 2",
        "--expert-model-parallel-size 2 --tensor-model-parallel-size 2 --sequence-parallel",
        "--expert-model-parallel-size 4 --tensor-model-parallel-size 2 --sequence-parallel "
        "--expert-tensor-parallel-size 1 --use-distributed-optimizer",
        "--expert-model-parallel-size 2 --pipeline-model-parallel-size 2 --moe-shared-expert-overlap",
        "--expert-model-parallel-size 2 --recompute-granularity full --recompute-method uniform "
        "--recompute-num-layers 1"}) {
    expect_hybrid_agreement(kExperts, 8, tokens + cut);
    expect_hybrid_agreement(kBalanced, 8, tokens + cut, kOneRank);
  }
}

TEST(Hybrid, DropoutIsThatOfTheSample) {
  const std::string drops = "--hidden-dropout 0.1 --attention-dropout 0.1 ";
  const std::string tokens = "--max-seqlen-per-dp-cp-rank 16 ";
  for (const char* kind : {"p2p", "all_gather", "a2a"})
    expect_hybrid_agreement(kTied + drops, 4, tokens + "--cp-comm-type " + kind);
  for (const char* cut :
       {"--tensor-model-parallel-size 2 --sequence-parallel", "--pipeline-model-parallel-size 2",
        "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"})
    expect_hybrid_agreement(kUntied + drops, 8, tokens + cut);
  expect_hybrid_agreement(kExperts + drops + "--moe-input-jitter-eps 0.2 ", 4,
                          tokens + "--expert-model-parallel-size 2");
}

TEST(Hybrid, CombinesWithFeaturesThatRequireEqualPasses) {
  const std::string tokens = "--max-seqlen-per-dp-cp-rank 16 ";
  for (const char* cut :
       {"--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2",
        "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 "
        "--microbatch-group-size-per-virtual-pipeline-stage 3 --delay-wgrad-compute",
        "--pipeline-model-parallel-size 2 --pipeline-schedule zb-v",
        "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads",
        "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params",
        "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params --overlap-grad-reduce "
        "--overlap-param-gather --pipeline-model-parallel-size 2",
        "--overlap-grad-reduce --ddp-bucket-size 3000",
        "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --ddp-bucket-size 3000"})
    expect_hybrid_agreement(std::string(kUntied) + "--num-layers 4 ", 8, tokens + cut);
}

TEST(Hybrid, MtpHasTheWeightsOfTheSample) {
  const std::string tokens = "--max-seqlen-per-dp-cp-rank 16 ";
  const std::string two = std::string(kUntied) + "--mtp-num-layers 2 --mtp-loss-scaling-factor 0.5 ";
  expect_hybrid_agreement(two, 1, "");
  expect_hybrid_agreement(two, 4, tokens);
  expect_hybrid_agreement(kMtp, 8, tokens + "--tensor-model-parallel-size 2 --sequence-parallel");
  expect_hybrid_agreement(two, 8, tokens + "--pipeline-model-parallel-size 2");
}

TEST(Hybrid, AllFeaturesCombine) {
  const std::string model = "--num-layers 4 --mtp-num-layers 1 --hidden-dropout 0.1 --attention-dropout 0.1 ";
  const std::string cut =
      "--max-seqlen-per-dp-cp-rank 16 --expert-model-parallel-size 2 --use-megatron-fsdp "
      "--data-parallel-sharding-strategy optim_grads_params ";
  expect_hybrid_agreement(kBalanced + model, 4, cut, kOneRank);
  expect_hybrid_agreement(kBalanced + model, 8,
                          cut + "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2",
                          kOneRank);
}

TEST(Hybrid, OneRankAndFewSequencesAreSpecialCases) {
  expect_hybrid_agreement(kUntied, 1, "");
  expect_hybrid_agreement(kUntied, 2, "");
  expect_hybrid_agreement(std::string(kUntied) + "--global-batch-size 4 ", 4, "");
}

}  // namespace
}  // namespace colonnade::test
