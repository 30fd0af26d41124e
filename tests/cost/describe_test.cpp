// Text of a plan, and communication bytes by hand.
#include "colonnade/cost/describe.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "colonnade/cost/communication.h"
#include "colonnade/cost/model_cost.h"
#include "support/presets.h"

namespace colonnade::cost {
namespace {

using ::testing::HasSubstr;

config::Run run_of(const config::Parallel& parallel) {
  config::Run run;
  run.model = test::llama3_8b();
  run.parallel = parallel;
  run.training.seq_length = 128;
  run.training.micro_batch_size = 2;
  run.training.global_batch_size = 2 * 4 * parallel.data_parallel_size();
  return run;
}

TEST(Describe, NumbersHaveThreeDigits) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(999), "999 B");
  EXPECT_EQ(bytes_text(1536), "1.50 KiB");
  EXPECT_EQ(bytes_text(12.0 * 1024 * 1024), "12.0 MiB");
  EXPECT_EQ(bytes_text(1023.7 * 1024 * 1024), "1.00 GiB");
  EXPECT_EQ(bytes_text(120.0 * (1LL << 40)), "120 TiB");
  EXPECT_EQ(count_text(8'030'261'248), "8.03 B");
  EXPECT_EQ(count_text(124'439'808), "124 M");
}

TEST(Describe, NamesTheBlocksOfAStage) {
  using K = layout::BlockKind;
  EXPECT_EQ(blocks_text({{{K::kEmbedding}, {K::kLayer, 0}, {K::kLayer, 1}, {K::kLayer, 2}, {K::kLayer, 3}}}),
            "embedding, layers 0-3");
  EXPECT_EQ(blocks_text({{{K::kLayer, 7}, {K::kFinalNorm}, {K::kHead}}}), "layer 7, head");
  config::Model mtp;
  mtp.mtp_num_layers = 2;
  EXPECT_EQ(blocks_text({{{K::kLayer, 7}, {K::kFinalNorm}, {K::kMtpLayer, 0}, {K::kMtpLayer, 1}}}, mtp),
            "layer 7, 2 MTP layers");
  EXPECT_EQ(blocks_text({{{K::kHead}}}, mtp), "head");
  EXPECT_EQ(blocks_text({}), "nothing");
}

TEST(Describe, ListsMtpLayersBeforeTheHead) {
  config::Run run = run_of(test::layout(16, 2, 4));
  run.model.mtp_num_layers = 2;
  EXPECT_EQ(layout_table(ModelCost(run))[4][3], "layers 24-31, 2 MTP layers, head");
  run.model.mtp_num_layers = 1;
  EXPECT_EQ(layout_table(ModelCost(run))[1][3], "embedding, layers 0-7");
  EXPECT_EQ(layout_table(ModelCost(run))[4][3], "layers 24-31, 1 MTP layer, head");
}

/// 8 experts in every second layer, with expert parallelism.
config::Run run_of_experts(int expert, int tensor) {
  config::Run run = run_of(test::layout(16, 2, 2));
  run.model.moe.num_experts = 8;
  run.model.moe.layer_freq = "2";
  run.model.moe.ffn_hidden_size = 1024;
  run.parallel.sequence_parallel = true;
  run.parallel.expert_model_parallel_size = expert;
  run.parallel.expert_tensor_parallel_size = tensor;
  return run;
}

TEST(Describe, ListsTheExpertsOfEachRank) {
  const config::Run whole = run_of_experts(4, 1), cut = run_of_experts(2, 2);
  EXPECT_EQ(experts_table(whole), (Table{{"expert rank", "ranks", "experts"},
                                         {"0", "0, 4, 8, 12", "0-1"},
                                         {"1", "1, 5, 9, 13", "2-3"},
                                         {"2", "2, 6, 10, 14", "4-5"},
                                         {"3", "3, 7, 11, 15", "6-7"}}));
  EXPECT_EQ(experts_table(cut), (Table{{"expert rank", "ranks", "experts", "shard of each"},
                                       {"0", "0, 4, 8, 12", "0-3", "1 of 2"},
                                       {"0", "1, 5, 9, 13", "0-3", "2 of 2"},
                                       {"1", "2, 6, 10, 14", "4-7", "1 of 2"},
                                       {"1", "3, 7, 11, 15", "4-7", "2 of 2"}}));
  EXPECT_THAT(describe(cut), HasSubstr("8 experts per MoE layer: tensor 2 x expert 2 x data 2\n"));
  EXPECT_THAT(describe(run_of(test::layout(16, 2, 2))), testing::Not(HasSubstr("expert rank")));
  EXPECT_EQ(experts_table(run_of(test::layout(16, 2, 2))).size(), 1U);
}

TEST(Describe, AlignsTableColumns) {
  EXPECT_EQ(table_text({{"rank", "what"}, {"0", "embedding"}, {"10", "head"}}),
            "rank  what\n"
            "----  ---------\n"
            "   0  embedding\n"
            "  10  head\n");
}

TEST(Describe, LayoutTableListsEveryRankOnce) {
  config::Run run = run_of(test::layout(16, 2, 4));
  const Table table = layout_table(ModelCost(run));
  ASSERT_EQ(table.size(), 5U);
  EXPECT_EQ(table[1], (std::vector<std::string>{"0", "0-3", "0", "embedding, layers 0-7"}));
  EXPECT_EQ(table[4], (std::vector<std::string>{"3", "12-15", "0", "layers 24-31, head"}));
  run.parallel.use_tp_pp_dp_mapping = true;
  EXPECT_EQ(layout_table(ModelCost(run))[2][1], "2, 3, 10, 11");
}

TEST(Describe, CombinesTheWholePlan) {
  config::Run run = run_of(test::layout(16, 2, 4));
  run.parallel.num_virtual_stages_per_pipeline_rank = 2;
  const std::string text = describe(run);
  EXPECT_THAT(text, HasSubstr("16 ranks: tensor 2 x context 1 x data 2 x pipeline 4"));
  EXPECT_THAT(
      text, HasSubstr("batch: 16 sequences of 128 tokens = micro-batch 2 x 2 data ranks x 4 micro-batches"));
  EXPECT_THAT(text, HasSubstr("model: 8.03 B parameters"));
  EXPECT_THAT(text, HasSubstr("bubble 27.3%"));  // 3 / (4 * 2 + 3)
  EXPECT_THAT(text, HasSubstr("rank 3   |"));
  run = run_of(test::layout(1, 1, 1));
  run.training.micro_batch_size = run.training.global_batch_size = 1;
  EXPECT_THAT(describe(run),
              ::testing::AllOf(::testing::StartsWith("1 rank: tensor 1"),
                               HasSubstr("batch: 1 sequence of 128 tokens = micro-batch 1 x 1 data rank x 1 "
                                         "micro-batch\n")));
}

TEST(Describe, ListsBatchSizesAndPlansTheLast) {
  config::Run run = run_of(test::layout(16, 2, 2));
  EXPECT_THAT(describe(run), testing::Not(HasSubstr("batch sizes")));
  run.training.rampup_batch_size = {"16", "16", "100"};
  EXPECT_THAT(describe(run),
              testing::AllOf(HasSubstr("batch: 32 sequences"),
                             HasSubstr("batch sizes: 16, 32 from 100 samples; this plan is for the last\n")));
}

TEST(Describe, ReportsTheCostOfDeterministicMode) {
  config::Run run = run_of(test::layout(16, 2, 4));
  EXPECT_THAT(describe(run), ::testing::Not(HasSubstr("deterministic mode")));
  run.model.untie_embeddings_and_output_weights = true;
  run.parallel.deterministic_mode = true;
  // Four micro-batches: four gradient reduce-scatters, one all-gather of the updated parameters.
  const double sent = plan_traffic(run)[0].data;
  run.parallel.deterministic_mode = false;
  run.parallel.use_distributed_optimizer = true;
  const double values = static_cast<double>(plan_memory(run)[0].parameters) / 2;
  const config::Dtypes dtypes = config::dtypes_of(run);
  const double more = 3 * values * static_cast<double>(config::bytes(dtypes.gradient_wire)) /
                      static_cast<double>(config::bytes(dtypes.parameter));
  EXPECT_NEAR(sent - plan_traffic(run)[0].data, more, 1e-3 * more);  // bucket boundaries and padding differ
  run.parallel.deterministic_mode = true;
  EXPECT_THAT(describe(run),
              HasSubstr(fmt::format("{} sent per rank and step over data ranks", bytes_text(sent))));
}

TEST(Describe, NamesTheScheduleAndItsPlacement) {
  config::Run run = run_of(test::layout(16, 2, 4));
  run.parallel.pipeline_schedule = "zb-v";
  const Table table = layout_table(ModelCost(run));
  ASSERT_EQ(table.size(), 9U);
  EXPECT_EQ(table[1], (std::vector<std::string>{"0", "0-3", "0", "embedding, layers 0-3"}));
  EXPECT_EQ(table[2], (std::vector<std::string>{"0", "0-3", "1", "layers 28-31, head"}));
  EXPECT_EQ(table[8], (std::vector<std::string>{"3", "12-15", "1", "layers 16-19"}));
  EXPECT_THAT(describe(run), HasSubstr("schedule zb-v: bubble "));
  run.parallel.pipeline_schedule = "auto";
  run.parallel.delay_wgrad_compute = true;
  EXPECT_THAT(describe(run), HasSubstr("schedule 1f1b with delayed weight gradients: bubble "));
}

TEST(Communication, MatchesBytesByHand) {
  config::Run run = run_of(test::layout(8, 2, 2));
  const double activation = 2.0 * 128 * 4096 * 2;  // n h e
  auto traffic = plan_traffic(run);
  // An all-reduce of B bytes over 2 ranks sends B: 4 per layer and one for the embedding, 4 micro-batches.
  EXPECT_DOUBLE_EQ(traffic[0].tensor, activation * (4 * 16 + 1) * 4);
  EXPECT_DOUBLE_EQ(traffic[0].pipeline, activation * 4);
  EXPECT_DOUBLE_EQ(traffic[1].pipeline, activation * 4);
  const auto memory = plan_memory(run);
  EXPECT_DOUBLE_EQ(traffic[0].data, static_cast<double>(memory[0].gradients));
  run.parallel.use_distributed_optimizer = true;
  run.parallel.sequence_parallel = true;
  traffic = plan_traffic(run);
  EXPECT_DOUBLE_EQ(traffic[1].tensor, activation / 2 * (10 * 16 + 3) * 4);
  EXPECT_DOUBLE_EQ(traffic[1].pipeline, activation / 2 * 4);
  EXPECT_DOUBLE_EQ(traffic[1].data, static_cast<double>(memory[1].gradients + memory[1].parameters) / 2);
  run.parallel.grad_reduce_in_bf16 = true;
  traffic = plan_traffic(run);
  const auto gradients = static_cast<double>(memory[1].gradients);
  EXPECT_DOUBLE_EQ(traffic[1].data, (gradients / 2 + static_cast<double>(memory[1].parameters)) / 2);
  const auto alone = plan_traffic(run_of(test::layout(1, 1, 1)));
  EXPECT_EQ(alone[0].tensor + alone[0].pipeline + alone[0].data, 0);
}

// fp32 gradient of a tied embedding of 128,256 rows: an all-reduce over 2 stages sends it once.
TEST(Communication, ReducesTiedEmbeddingsOverStages) {
  config::Run run = run_of(test::layout(8, 1, 4));
  const double table = 128256.0 * 4096 * 4;
  ASSERT_TRUE(run.model.untie_embeddings_and_output_weights);
  EXPECT_EQ(plan_traffic(run)[0].shared_embeddings, 0);
  EXPECT_THAT(describe(run), testing::Not(HasSubstr("shared embeddings")));
  run.model.untie_embeddings_and_output_weights = false;
  EXPECT_THAT(describe(run), HasSubstr("  shared embeddings"));
  EXPECT_EQ(traffic_table(ModelCost(run))[0].back(), "shared embeddings");
  EXPECT_EQ(traffic_table(ModelCost(run))[1].back(), bytes_text(table));
  EXPECT_EQ(traffic_table(ModelCost(run))[2].back(), "0 B");
  EXPECT_DOUBLE_EQ(plan_traffic(run)[3].shared_embeddings, table);
  run.parallel.use_distributed_optimizer = true;
  EXPECT_DOUBLE_EQ(plan_traffic(run)[3].shared_embeddings, table / 2);
}

TEST(Communication, MatchesBytesOfTwoInstancesByHand) {
  config::Run run = run_of(test::layout(32, 2, 2));
  run.parallel.use_distributed_optimizer = true;
  run.parallel.num_distributed_optimizer_instances = 2;
  const auto memory = plan_memory(run);
  const auto gradients = static_cast<double>(memory[0].gradients),
             parameters = static_cast<double>(memory[0].parameters);
  StageTraffic traffic = plan_traffic(run)[0];
  EXPECT_DOUBLE_EQ(traffic.data, (gradients + parameters) * 3 / 4) << "2 instances of 4 of 8 data ranks";
  EXPECT_DOUBLE_EQ(traffic.outer_data, 2 * gradients / 4 / 2) << "an all-reduce of one shard of four";
  EXPECT_NEAR(static_cast<double>(memory[0].optimizer), 12.0 * parameters / 2 / 4, 1e5);
  run.parallel.outer_dp_sharding_strategy = "optim";
  traffic = plan_traffic(run)[0];
  EXPECT_DOUBLE_EQ(traffic.outer_data, (gradients + parameters) / 4 / 2);
  EXPECT_NEAR(static_cast<double>(plan_memory(run)[0].optimizer), 12.0 * parameters / 2 / 8, 1e5);
  const std::string text = describe(run);
  EXPECT_THAT(
      text,
      HasSubstr(
          "data ranks: 2 distributed-optimizer instances of 4, optimizer states sharded across instances"));
  EXPECT_THAT(text, HasSubstr("data, between instances"));
  EXPECT_THAT(text, HasSubstr(bytes_text(traffic.outer_data)));
  run.parallel.num_distributed_optimizer_instances = 1;
  EXPECT_EQ(plan_traffic(run)[0].outer_data, 0);
  EXPECT_THAT(describe(run), testing::Not(HasSubstr("instances")));
}

}  // namespace
}  // namespace colonnade::cost
