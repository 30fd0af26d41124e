// With dropout, every gradient is bitwise equal whether activations are saved or recomputed.
#include "job/gradients.h"

namespace colonnade::job {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace)

/// Compares bitwise with the same layout without recomputation.
void expect_same_bits_recomputed(int world, const std::string& model,
                                 std::initializer_list<const char*> kinds) {
  SCOPED_TRACE(model);
  const auto flags = words(kCommon + model);
  const Gradients saved = gradients(settings(world, flags));
  for (const char* kind : kinds) {
    const Gradients recomputed = gradients(settings(world, flags + words(kind)));
    ASSERT_EQ(recomputed.size(), saved.size());
    for (const auto& [name, gradient] : saved)
      EXPECT_TRUE(at::equal(recomputed.at(name), gradient)) << kind << name;
  }
}

constexpr const char* kFullUniform =
    "--recompute-granularity full --recompute-method uniform --recompute-num-layers 2";
constexpr const char* kFullBlock =
    "--recompute-granularity full --recompute-method block --recompute-num-layers 1";
constexpr const char* kSelective =
    "--recompute-granularity selective --recompute-modules core_attn layernorm mlp";

TEST(Recompute, EqualsSavedActivationsBitwise) {
  const auto expect = [](int world, const std::string& layout) {
    for (const char* model : {kUntied,
                              "--group-query-attention --num-query-groups 2 --swiglu --qk-layernorm "
                              "--position-embedding-type rope --disable-bias-linear "
                              "--normalization RMSNorm --hidden-dropout 0 "})
      expect_same_bits_recomputed(world, model + layout,
                                  {"--recompute-activations", kFullUniform, kFullBlock, kSelective});
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

TEST(Recompute, EqualsContextParallelBlocksBitwise) {
  for (const char* model : {"", "--attn-logit-softcapping 0.5 --final-logit-softcapping 0.3 "})
    for (const char* kind : {"p2p", "all_gather"})
      expect_same_bits_recomputed(
          2, fmt::format("{}{}--context-parallel-size 2 --cp-comm-type {} ", kUntied, model, kind),
          {"--recompute-activations", kFullUniform, kSelective});
}

TEST(Recompute, EqualsExpertsBitwise) {
  for (const char* dispatcher : {"allgather", "alltoall"}) {
    const auto expect = [&](int world, const char* layout) {
      expect_same_bits_recomputed(
          world, fmt::format("{}--moe-token-dispatcher-type {} {}", kExperts, dispatcher, layout),
          {kFullUniform, kSelective, "--recompute-granularity selective --recompute-modules moe core_attn",
           "--recompute-granularity selective --recompute-modules moe_act shared_experts layernorm"});
    };
    expect(1, "");
    expect(4, "--tensor-model-parallel-size 2 --sequence-parallel --expert-model-parallel-size 2");
    expect(4,
           "--pipeline-model-parallel-size 2 --pipeline-schedule zb-v --expert-model-parallel-size 2 "
           "--overlap-grad-reduce --ddp-bucket-size 5000 --micro-batch-size 1");
  }
}

// Dropped tokens, input jitter and the step's token counts are those of the first forward pass.
TEST(Recompute, EqualsExpertsWithGlobalAuxLossAndCapacityBitwise) {
  expect_same_bits_recomputed(
      2,
      std::string(kExperts) +
          "--moe-router-load-balancing-type global_aux_loss --moe-aux-loss-coeff 0.5 --moe-input-jitter-eps 0.3 "
          "--moe-expert-capacity-factor 0.7 --moe-token-dispatcher-type alltoall --moe-shared-expert-overlap "
          "--expert-model-parallel-size 2",
      {kFullUniform, "--recompute-granularity selective --recompute-modules moe core_attn",
       "--recompute-granularity selective --recompute-modules moe_act shared_experts layernorm"});
}

TEST(Recompute, EqualsSinkhornRoutingBitwise) {
  expect_same_bits_recomputed(
      2,
      std::string(kExperts) +
          "--moe-router-load-balancing-type sinkhorn --moe-aux-loss-coeff 0 --moe-router-topk 1 "
          "--moe-router-force-load-balancing --expert-model-parallel-size 2",
      {kFullUniform, "--recompute-granularity selective --recompute-modules moe core_attn"});
}

TEST(Recompute, EqualsEveryKindOfAttentionBitwise) {
  const char* heads = "--recompute-granularity selective --recompute-modules mla_up_proj";
  const char* heads_and_more =
      "--recompute-granularity selective --recompute-modules mla_up_proj core_attn layernorm";
  for (const auto& [world, layout] :
       {std::pair{1, ""},
        {2, "--tensor-model-parallel-size 2 --sequence-parallel"},
        {4,
         "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --pipeline-schedule zb-v "
         "--micro-batch-size 1 --num-layers 8"}}) {
    for (const char* model : {kLatent, kLatentWithoutQueryLora})
      expect_same_bits_recomputed(world, std::string(model) + layout, {heads, heads_and_more, kFullUniform});
    if (world < 4)
      expect_same_bits_recomputed(
          world, std::string(kGptOss) + layout,
          {"--recompute-granularity selective --recompute-modules core_attn layernorm moe_act",
           kFullUniform});
  }
}

TEST(Recompute, EqualsMtpBitwise) {
  for (const auto& [world, layout] : {std::pair{1, ""},
                                      {4,
                                       "--tensor-model-parallel-size 2 --sequence-parallel "
                                       "--pipeline-model-parallel-size 2"}})
    expect_same_bits_recomputed(world, std::string(kMtp) + layout, {kFullUniform, kFullBlock, kSelective});
}

TEST(Recompute, EqualsContextParallelismBitwise) {
  for (const char* kind : {"p2p", "all_gather", "a2a"})
    expect_same_bits_recomputed(
        2, fmt::format("--context-parallel-size 2 --attention-dropout 0 --cp-comm-type {} ", kind),
        {"--recompute-activations", kFullUniform});
}

// MLA with value heads narrower, and wider, than those of keys.
TEST(Recompute, EqualsContextParallelLatentAttentionBitwise) {
  const char* heads = "--recompute-granularity selective --recompute-modules mla_up_proj";
  const char* heads_and_scores =
      "--recompute-granularity selective --recompute-modules mla_up_proj core_attn";
  for (const auto& [world, layout] :
       {std::pair{2, "--context-parallel-size 2 --cp-comm-type p2p"},
        {4, "--context-parallel-size 4 --cp-comm-type all_gather"},
        {2, "--context-parallel-size 2 --cp-comm-type a2a"},
        {4, "--context-parallel-size 4 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 2"}})
    for (const char* model : {kLatent, kLatentWithoutQueryLora})
      expect_same_bits_recomputed(world, fmt::format("{}--attention-dropout 0 {}", model, layout),
                                  {heads, heads_and_scores});
  expect_same_bits_recomputed(
      2, std::string(kLatentWithoutQueryLora) + "--context-parallel-size 2 --cp-comm-type a2a", {heads});
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
    expect_same_bits_recomputed(world, std::string(kLatent) + layout, {heads});
}

}  // namespace
}  // namespace colonnade::job
