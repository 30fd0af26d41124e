// Parameters, FLOPs and step times of BERT: Megatron's names and sizes, and stage costs against the FLOPs
// formula.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "colonnade/cost/communication.h"
#include "colonnade/cost/flops.h"
#include "colonnade/cost/stage_compute.h"
#include "colonnade/cost/step_time.h"
#include "colonnade/layout/params/gpt.h"
#include "cost/ideal.h"

namespace colonnade::cost {
namespace {

using test::ideal;

constexpr std::int64_t kLength = 512, kBatch = 2, kHidden = 1024, kFfn = 4096, kVocabulary = 30592;

/// Four layers of BERT-large.
config::Run bert(const config::Parallel& layout = test::layout(1, 1, 1)) {
  config::Run run;
  run.model_type = "bert";
  config::Model& m = run.model;
  m.num_layers = 4;
  m.hidden_size = kHidden;
  m.ffn_hidden_size = kFfn;
  m.num_attention_heads = m.num_query_groups = 16;
  m.kv_channels = 64;
  m.vocab_size = kVocabulary;
  m.make_vocab_size_divisible_by = 1;
  m.max_position_embeddings = kLength;
  m.attention_dropout = m.hidden_dropout = 0;
  m.params_dtype = config::Dtype::kBfloat16;
  m.bidirectional = m.lm_head_transform = m.bert_binary_head = true;
  m.num_tokentypes = 2;
  m.output_layer_bias = true;
  run.parallel = layout;
  run.training.seq_length = kLength;
  run.training.micro_batch_size = run.training.global_batch_size = kBatch;
  return run;
}

TEST(Bert, ParameterNamesMatchMegatron) {
  const config::Run run = bert();
  std::map<std::string, std::int64_t> sizes;
  for (const layout::ParamSpec& spec : layout::model_params(run.model, run.parallel))
    sizes[spec.name] = spec.numel();
  const std::map<std::string, std::int64_t> expected{
      {"embedding.word_embeddings.weight", kVocabulary * kHidden},
      {"embedding.position_embeddings.weight", kLength * kHidden},
      {"embedding.tokentype_embeddings.weight", 2 * kHidden},
      {"encoder.layers.3.self_attention.linear_qkv.weight", 3 * kHidden * kHidden},
      {"encoder.final_layernorm.bias", kHidden},
      {"lm_head.dense.weight", kHidden * kHidden},
      {"lm_head.dense.bias", kHidden},
      {"lm_head.layer_norm.weight", kHidden},
      {"lm_head.layer_norm.bias", kHidden},
      {"output_layer.bias", kVocabulary},
      {"pooler.dense.weight", kHidden * kHidden},
      {"pooler.dense.bias", kHidden},
      {"binary_head.weight", 2 * kHidden},
      {"binary_head.bias", 2}};
  for (const auto& [name, size] : expected) {
    ASSERT_TRUE(sizes.contains(name)) << name;
    EXPECT_EQ(sizes.at(name), size) << name;
  }
  // Embeddings, four layers of 12 parameters, final norm of 2, heads.
  EXPECT_EQ(sizes.size(), 3U + 4 * 12 + 2 + 4 + 1 + 4);
}

TEST(Bert, FlopsByHand) {
  const config::Run run = bert();
  const TrainingFlops flops = training_flops_by_part(run.model, kLength, kBatch, /*tensor=*/1);
  const double h = kHidden, s = kLength;
  const double layer = s * 2 * (4 * h * h + 2 * h * kFfn);
  const double heads = s * 2 * h * (kVocabulary + h) + 2 * h * h + 2 * 2 * h;
  EXPECT_DOUBLE_EQ(flops.linears, 3 * kBatch * (4 * layer + heads));
  EXPECT_DOUBLE_EQ(flops.attention, 3.0 * kBatch * 4 * (4 * s * s * h))
      << "bidirectional: every token attends to all of them";
}

TEST(Bert, EqualsTheFlopsOnOneIdealDevice) {
  const config::Run run = bert();
  const TrainingFlops flops = training_flops_by_part(run.model, kLength, kBatch, /*tensor=*/1);
  const StepTime t = estimate_step(run, ideal());
  EXPECT_NEAR(t.step, (flops.linears + flops.attention * 3.5 / 3) / 1e12, 1e-9 * t.step);
}

TEST(Bert, StagesAddUpToTheFlops) {
  config::Run run = bert(test::layout(2, 1, 2));
  run.parallel.pipeline_model_parallel_layout = "Et|t|t|tL";
  double matmuls = 0, attention = 0;
  const ModelCost model(run);
  for (const layout::StageBlocks& stage : layout::split_stages(run.model, run.parallel))
    for (const RepeatedCompute& block : stage_compute(model, stage)) {
      for (const Matmul& p : block.compute.matmuls) matmuls += block.times * 2 * p.count * p.m * p.n * p.k;
      attention += block.times * block.compute.attention.flops;
    }
  const TrainingFlops flops = training_flops_by_part(run.model, kLength, kBatch, 1);
  EXPECT_NEAR(3 * matmuls, flops.linears, 1e-9 * flops.linears);
  EXPECT_NEAR(3 * attention, flops.attention, 1e-9 * flops.attention);
}

TEST(Bert, TensorParallelTimeMatchesTheTraffic) {
  for (const bool by_sequence : {false, true}) {
    config::Run run = bert(test::layout(2, 2, 1));
    run.parallel.sequence_parallel = by_sequence;
    Hardware h = test::instant();
    h.intra_node.bandwidth = 1e9;
    EXPECT_NEAR(estimate_step(run, h).tensor, plan_traffic(run)[0].tensor / 1e9, 1e-6) << by_sequence;
  }
}

}  // namespace
}  // namespace colonnade::cost
