// Every gradient tensor has the same bits whether activations are kept or made again, dropout on.
#include "job/gradients.h"

namespace colonnade::job {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace)

/// Bits of the same layout that keeps everything, dropout on.
void expect_same_bits_made_again(int world, const std::string& model,
                                 std::initializer_list<const char*> kinds) {
  SCOPED_TRACE(model);
  const auto flags = words(kCommon + model);
  const Gradients kept = gradients(settings(world, flags));
  for (const char* kind : kinds) {
    const Gradients again = gradients(settings(world, flags + words(kind)));
    ASSERT_EQ(again.size(), kept.size());
    for (const auto& [name, gradient] : kept)
      EXPECT_TRUE(at::equal(again.at(name), gradient)) << kind << name;
  }
}

constexpr const char* kAllAgain =
    "--recompute-granularity full --recompute-method uniform --recompute-num-layers 2";
constexpr const char* kSomeAgain =
    "--recompute-granularity full --recompute-method block --recompute-num-layers 1";
constexpr const char* kPartsAgain =
    "--recompute-granularity selective --recompute-modules core_attn layernorm mlp";

TEST(MadeAgain, GivesTheBitsOfActivationsThatAreKept) {
  const auto expect = [](int world, const std::string& layout) {
    for (const char* model : {kUntied,
                              "--group-query-attention --num-query-groups 2 --swiglu --qk-layernorm "
                              "--position-embedding-type rope --disable-bias-linear "
                              "--normalization RMSNorm --hidden-dropout 0 "})
      expect_same_bits_made_again(world, model + layout,
                                  {"--recompute-activations", kAllAgain, kSomeAgain, kPartsAgain});
  };
  expect(1, "");
  expect(4,
         "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2 "
         "--num-virtual-stages-per-pipeline-rank 2 --num-layers 8");
  expect(4,
         "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --pipeline-schedule zb-h1 "
         "--micro-batch-size 1");
  expect(4,
         "--pipeline-model-parallel-size 2 --pipeline-schedule zb-v --micro-batch-size 1 --num-layers 8 "
         "--global-batch-size 16 --overlap-grad-reduce --ddp-bucket-size 3000");
}

TEST(MadeAgain, GivesTheBitsOfBlocksOfKeysThatAreKept) {
  for (const char* model : {"", "--attn-logit-softcapping 0.5 --final-logit-softcapping 0.3 "})
    for (const char* kind : {"p2p", "all_gather"})
      expect_same_bits_made_again(
          2, fmt::format("{}{}--context-parallel-size 2 --cp-comm-type {} ", kUntied, model, kind),
          {"--recompute-activations", kAllAgain, kPartsAgain});
}

TEST(MadeAgain, GivesTheBitsOfExpertsThatAreKept) {
  for (const char* dispatcher : {"allgather", "alltoall"}) {
    const auto expect = [&](int world, const char* layout) {
      expect_same_bits_made_again(
          world, fmt::format("{}--moe-token-dispatcher-type {} {}", kExperts, dispatcher, layout),
          {kAllAgain, kPartsAgain, "--recompute-granularity selective --recompute-modules moe core_attn",
           "--recompute-granularity selective --recompute-modules moe_act shared_experts layernorm"});
    };
    expect(1, "");
    expect(4, "--tensor-model-parallel-size 2 --sequence-parallel --expert-model-parallel-size 2");
    expect(4,
           "--pipeline-model-parallel-size 2 --pipeline-schedule zb-v --expert-model-parallel-size 2 "
           "--overlap-grad-reduce --ddp-bucket-size 5000 --micro-batch-size 1");
  }
}

// What is dropped, the noise, and the tokens of the step so far are those of the first pass.
TEST(MadeAgain, GivesTheBitsOfExpertsWhoseTokensAreCounted) {
  expect_same_bits_made_again(
      2,
      std::string(kExperts) +
          "--moe-router-load-balancing-type global_aux_loss --moe-aux-loss-coeff 0.5 --moe-input-jitter-eps 0.3 "
          "--moe-expert-capacity-factor 0.7 --moe-token-dispatcher-type alltoall --moe-shared-expert-overlap "
          "--expert-model-parallel-size 2",
      {kAllAgain, "--recompute-granularity selective --recompute-modules moe core_attn",
       "--recompute-granularity selective --recompute-modules moe_act shared_experts layernorm"});
}

TEST(MadeAgain, GivesTheBitsOfAssignedExperts) {
  expect_same_bits_made_again(
      2,
      std::string(kExperts) +
          "--moe-router-load-balancing-type sinkhorn --moe-aux-loss-coeff 0 --moe-router-topk 1 "
          "--moe-router-force-load-balancing --expert-model-parallel-size 2",
      {kAllAgain, "--recompute-granularity selective --recompute-modules moe core_attn"});
}

TEST(MadeAgain, GivesTheBitsOfEachKindOfAttention) {
  const char* heads = "--recompute-granularity selective --recompute-modules mla_up_proj";
  const char* heads_and_more =
      "--recompute-granularity selective --recompute-modules mla_up_proj core_attn layernorm";
  for (const auto& [world, layout] :
       {std::pair{1, ""},
        {2, "--tensor-model-parallel-size 2 --sequence-parallel"},
        {4,
         "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --pipeline-schedule zb-v "
         "--micro-batch-size 1 --num-layers 8"}}) {
    for (const char* model : {kLatent, kLatentOfHidden})
      expect_same_bits_made_again(world, std::string(model) + layout, {heads, heads_and_more, kAllAgain});
    if (world < 4)
      expect_same_bits_made_again(
          world, std::string(kGptOss) + layout,
          {"--recompute-granularity selective --recompute-modules core_attn layernorm moe_act", kAllAgain});
  }
}

TEST(MadeAgain, GivesTheBitsOfFurtherTokens) {
  for (const auto& [world, layout] : {std::pair{1, ""},
                                      {4,
                                       "--tensor-model-parallel-size 2 --sequence-parallel "
                                       "--pipeline-model-parallel-size 2"}})
    expect_same_bits_made_again(world, std::string(kFurther) + layout, {kAllAgain, kSomeAgain, kPartsAgain});
}

TEST(MadeAgain, GivesTheBitsOfSharedSequences) {
  for (const char* kind : {"p2p", "all_gather", "a2a"})
    expect_same_bits_made_again(
        2, fmt::format("--context-parallel-size 2 --attention-dropout 0 --cp-comm-type {} ", kind),
        {"--recompute-activations", kAllAgain});
}

// Heads of values narrower than those of keys, and wider.
TEST(MadeAgain, GivesTheBitsOfLatentHeadsThatContextRanksShare) {
  const char* heads = "--recompute-granularity selective --recompute-modules mla_up_proj";
  const char* heads_and_scores =
      "--recompute-granularity selective --recompute-modules mla_up_proj core_attn";
  for (const auto& [world, layout] :
       {std::pair{2, "--context-parallel-size 2 --cp-comm-type p2p"},
        {4, "--context-parallel-size 4 --cp-comm-type all_gather"},
        {2, "--context-parallel-size 2 --cp-comm-type a2a"},
        {4, "--context-parallel-size 4 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 2"}})
    for (const char* model : {kLatent, kLatentOfHidden})
      expect_same_bits_made_again(world, fmt::format("{}--attention-dropout 0 {}", model, layout),
                                  {heads, heads_and_scores});
  expect_same_bits_made_again(
      2, std::string(kLatentOfHidden) + "--context-parallel-size 2 --cp-comm-type a2a", {heads});
  for (const auto& [world, layout] :
       {std::pair{8,
                  "--context-parallel-size 2 --cp-comm-type a2a --tensor-model-parallel-size 2 "
                  "--sequence-parallel --pipeline-model-parallel-size 2 --pipeline-schedule zb-v "
                  "--micro-batch-size 1"},
        {8,
         "--context-parallel-size 2 --cp-comm-type p2p a2a all_gather a2a --tensor-model-parallel-size 2 "
         "--sequence-parallel --pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2"},
        {4,
         "--context-parallel-size 2 --cp-comm-type a2a --use-megatron-fsdp --overlap-grad-reduce "
         "--overlap-param-gather --mtp-num-layers 1"}})
    expect_same_bits_made_again(world, std::string(kLatent) + layout, {heads});
}

}  // namespace
}  // namespace colonnade::job
