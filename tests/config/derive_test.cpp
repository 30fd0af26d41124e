// Derived settings against Megatron's rules.
#include "colonnade/config/derive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "colonnade/config/parse.h"

namespace colonnade::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

config::Run small() {
  config::Run r;
  r.model.num_layers = 8;
  r.model.hidden_size = 4096;
  r.model.num_attention_heads = 32;
  r.training.seq_length = 128;
  r.training.micro_batch_size = 2;
  return r;
}

TEST(Derive, FillsModelSizes) {
  config::Run r = small();
  derive(r);
  EXPECT_EQ(r.model.ffn_hidden_size, 16384);
  EXPECT_EQ(r.model.kv_channels, 128);
  EXPECT_EQ(r.model.num_query_groups, 32);
  EXPECT_EQ(r.model.max_position_embeddings, 0) << "learned positions must be given";
}

TEST(Derive, BertHasALogitBiasAndTwoTokenTypesWithTheBinaryHead) {
  for (const bool binary : {true, false}) {
    config::Run r = small();
    r.model.bidirectional = true;
    r.model.bert_binary_head = binary;
    derive(r);
    EXPECT_TRUE(*r.model.output_layer_bias);
    EXPECT_EQ(r.model.num_tokentypes, binary ? 2 : 0);
  }
}

TEST(Derive, SwigluFfnSizeIsTwoThirdsRoundedDownTo64) {
  // int((4 * h * 2 / 3) / 64) * 64, by hand
  for (const auto& [hidden, ffn] :
       {std::pair{4096, 10880}, std::pair{768, 2048}, std::pair{384, 1024}, std::pair{100, 256}}) {
    config::Run r = small();
    r.model.hidden_size = hidden;
    r.model.activation = Activation::kSwiglu;
    derive(r);
    EXPECT_EQ(r.model.ffn_hidden_size, ffn) << hidden;
  }
}

TEST(Derive, KeepsGivenSizes) {
  config::Run r = small();
  r.model.ffn_hidden_size = 7;
  r.model.kv_channels = 8;
  r.model.num_query_groups = 4;
  r.training.global_batch_size = 6;
  r.training.distributed_backend = "gloo";
  r.model.output_layer_bias = true;
  const config::Run before = r;
  derive(r);
  EXPECT_EQ(r, before);
}

TEST(Derive, BackendFollowsTheDeviceUnlessGiven) {
  const auto backend = [](const char* device, std::optional<std::string> given) {
    config::Run r = small();
    r.training.device = device;
    r.training.distributed_backend = std::move(given);
    derive(r);
    return *r.training.distributed_backend;
  };
  EXPECT_EQ(backend("cpu", {}), "gloo");
  EXPECT_EQ(backend("cuda", {}), "nccl");
  EXPECT_EQ(backend("cuda", "gloo"), "gloo");
  EXPECT_EQ(backend("cpu", "nccl"), "gloo") << "launch scripts request nccl on the CPU too";
}

TEST(Derive, NcclOnTheCpuIsReportedOnce) {
  config::Run r = small();
  r.training.distributed_backend = "nccl";
  derive(r);
  derive(r);
  EXPECT_THAT(r.notes, ::testing::ElementsAre("--distributed-backend: gloo replaces nccl on the CPU"));
}

TEST(Derive, FlagsWithTheSameReasonShareANote) {
  config::Run r = parse({"--async-save", "--no-one-logger", "--use-persistent-ckpt-worker"});
  derive(r);
  EXPECT_THAT(
      r.notes,
      ::testing::UnorderedElementsAre(
          "--async-save, --use-persistent-ckpt-worker: saves are synchronous: training continues once "
          "the checkpoint is on disk",
          "--no-one-logger: nothing is uploaded: metrics.jsonl, TensorBoard files and report.html record the "
          "run; --wandb-project writes an offline run"));
}

TEST(Derive, DeterministicModeIsOffIfResultsDependOnTheLayout) {
  const auto derived = [](const std::vector<std::string>& more) {
    std::vector<std::string> words{"--deterministic-mode"};
    words.insert(words.end(), more.begin(), more.end());
    config::Run r = parse(words);
    derive(r);
    return r;
  };
  EXPECT_TRUE(derived({}).parallel.deterministic_mode);
  EXPECT_TRUE(derived({"--context-parallel-size", "2"}).parallel.deterministic_mode);
  EXPECT_TRUE(derived({"--exp-avg-dtype", "bf16"}).parallel.deterministic_mode);
  for (const std::vector<std::string>& apart :
       {std::vector<std::string>{"--context-parallel-size", "3"},
        {"--num-distributed-optimizer-instances", "2"},
        {"--bf16", "--grad-reduce-in-bf16"},
        {"--main-grads-dtype", "bf16"},
        {"--exp-avg-dtype", "fp8"},
        {"--num-experts", "4", "--tensor-model-parallel-size", "3"},
        {"--num-experts", "4", "--moe-router-load-balancing-type", "global_aux_loss"}}) {
    const config::Run r = derived(apart);
    EXPECT_FALSE(r.parallel.deterministic_mode) << apart[0];
    EXPECT_THAT(r.notes, ::testing::Contains(::testing::HasSubstr("results depend on the layout with")))
        << apart[0];
  }
}

TEST(Derive, GlobalBatchDefaultsToMicroBatchTimesDataParallelSize) {
  config::Run r = small();
  r.parallel.world_size = 12;
  r.parallel.tensor_model_parallel_size = 2;
  r.parallel.pipeline_model_parallel_size = 2;
  derive(r);
  EXPECT_EQ(r.training.global_batch_size, 6);
}

TEST(Derive, VirtualStagesFollowFromTheirLayers) {
  config::Run r = small();
  r.parallel.pipeline_model_parallel_size = 2;
  r.parallel.num_layers_per_virtual_pipeline_stage = 2;
  derive(r);
  EXPECT_EQ(r.parallel.num_virtual_stages_per_pipeline_rank, 2);
  EXPECT_EQ(r.parallel.num_layers_per_virtual_pipeline_stage, 0);
  config::Run odd = small();
  odd.parallel.num_layers_per_virtual_pipeline_stage = 3;
  derive(odd);
  EXPECT_EQ(odd.parallel.num_layers_per_virtual_pipeline_stage, 3) << "left for rules::check to report";
  config::Run counted = small();
  counted.model.num_layers = 6;
  counted.parallel.account_for_embedding_in_pipeline_split = true;
  counted.parallel.account_for_loss_in_pipeline_split = true;
  counted.parallel.pipeline_model_parallel_size = 2;
  counted.parallel.num_layers_per_virtual_pipeline_stage = 1;
  derive(counted);
  EXPECT_EQ(counted.parallel.num_virtual_stages_per_pipeline_rank, 4);
}

TEST(Derive, SequenceParallelRequiresTensorParallelism) {
  config::Run r = small();
  r.parallel.sequence_parallel = true;
  derive(r);
  EXPECT_FALSE(r.parallel.sequence_parallel);
  r.parallel.sequence_parallel = true;
  r.parallel.tensor_model_parallel_size = 2;
  derive(r);
  EXPECT_TRUE(r.parallel.sequence_parallel);
}

/// Notes on words added to a small model.
std::vector<std::string> notes_of(std::vector<std::string> words) {
  words.insert(words.begin(), {"--num-layers", "2", "--hidden-size", "8", "--num-attention-heads", "2"});
  config::Run r = parse_all(words).run;
  derive(r);
  derive(r);
  return r.notes;
}

TEST(Derive, FlagsWithoutEffectAtTensorParallelSize1AreNoted) {
  const std::string reason = "has no effect with tensor-parallel size 1";
  EXPECT_THAT(notes_of({"--sequence-parallel", "--tp-comm-overlap"}),
              ElementsAre("--tp-comm-overlap: " + reason, "--sequence-parallel: " + reason + "; got true"));
  const auto two = [](std::vector<std::string> words) {
    words.insert(words.end(), {"--tensor-model-parallel-size", "2", "--tp-comm-overlap"});
    return notes_of(words);
  };
  EXPECT_THAT(two({}), ElementsAre(StartsWith("--tp-comm-overlap: Megatron rejects it without")));
  EXPECT_THAT(two({"--sequence-parallel"}),
              ElementsAre(StartsWith("--tp-comm-overlap: the all-reduce of input")));
  EXPECT_THAT(notes_of({"--sequence-parallel", "--tensor-model-parallel-size", "two"}), IsEmpty());
}

TEST(Derive, MoeFlagsHaveNoEffectWithoutExperts) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"--moe-grouped-gemm"},
                                                {"--moe-permute-fusion"},
                                                {"--moe-router-fusion"},
                                                {"--moe-router-dtype", "fp32"}}) {
    EXPECT_THAT(notes_of(words), ElementsAre(words[0] + ": has no effect without --num-experts"));
    std::vector<std::string> mixture = words;
    mixture.insert(mixture.end(), {"--num-experts", "4"});
    EXPECT_THAT(notes_of(mixture), ElementsAre(Not(HasSubstr("has no effect")))) << words[0];
  }
}

TEST(Derive, MaxPositionsFollowTheSequenceLengthWithRope) {
  config::Run r = small();
  r.model.position_embedding = PositionEmbedding::kRope;
  derive(r);
  EXPECT_EQ(r.model.max_position_embeddings, 128);
}

TEST(Derive, LayerNumbersAreRelativeToTheirStack) {
  Model t5;
  t5.encoder_num_layers = 2;
  t5.num_layers = 3;
  for (const auto& [layer, number] : {std::pair(0, 1), {1, 2}, {2, 1}, {4, 3}})
    EXPECT_EQ(t5.layer_number(layer), number) << layer;
  Model gpt;
  gpt.num_layers = 2;
  gpt.mtp_num_layers = 2;
  for (const auto& [layer, number] : {std::pair(0, 1), {1, 2}, {2, 1}, {3, 2}})
    EXPECT_EQ(gpt.layer_number(layer), number) << layer << ", as Megatron's MTP layers";
}

TEST(Derive, IsIdempotentAndAcceptsEmptyRuns) {
  config::Run r = small();
  derive(r);
  const config::Run once = r;
  derive(r);
  EXPECT_EQ(r, once);
  config::Run empty;
  empty.parallel.world_size = 0;
  derive(empty);
}

}  // namespace
}  // namespace colonnade::config
