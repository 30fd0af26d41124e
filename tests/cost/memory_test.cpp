// The memory plan against Megatron's numbers, parameter bytes by hand, and live activations of schedules.
#include "colonnade/cost/memory.h"

#include <gtest/gtest.h>

#include <numeric>

#include "colonnade/base/error.h"
#include "colonnade/cost/activations.h"
#include "cost/ideal.h"
#include "support/presets.h"

namespace colonnade::cost {
namespace {

constexpr double kMiB = 1048576;

using test::run_of;

config::Run llama_tp4_pp2_dp2() {
  config::Run run = run_of(test::llama3_8b(), test::layout(16, 4, 2), 8192, 1, 16);
  run.parallel.use_distributed_optimizer = true;
  run.parallel.sequence_parallel = true;
  return run;
}

TEST(Memory, TheoreticalMemoryMatchesMegatron) {
  config::Run run = llama_tp4_pp2_dp2();
  run.model.make_vocab_size_divisible_by = 32;  // the recorded values are for a vocabulary of 128,256 rows
  EXPECT_DOUBLE_EQ(theoretical_memory(run, true).weights_and_optimizer / kMiB, 11488.5234375);
  EXPECT_DOUBLE_EQ(theoretical_memory(run, true).activations / kMiB, 8208.03125);
  EXPECT_DOUBLE_EQ(theoretical_memory(run, false).activations / kMiB, 17270.53125);
}

TEST(Memory, ParametersOfEachStageByHand) {
  const auto plan = plan_memory(llama_tp4_pp2_dp2());
  ASSERT_EQ(plan.size(), 2U);
  const std::int64_t layer = (4096 * 6144 + 4096 * 4096 + 3 * 4096 * 14336) / 4 + 2 * 4096;
  const std::int64_t table = std::int64_t{128512} / 4 * 4096;  // 128,256 padded to a multiple of 512
  EXPECT_EQ(plan[0].num_parameters, 16 * layer + table);
  EXPECT_EQ(plan[1].num_parameters, 16 * layer + table + 4096);
  EXPECT_EQ(plan[0].parameters, 2 * plan[0].num_parameters);
  EXPECT_EQ(plan[0].gradients, 4 * plan[0].num_parameters);
  EXPECT_EQ(plan[0].optimizer, plan[0].num_parameters / 2 * 12);
  EXPECT_EQ(plan[0].peak_in_flight, 2);
  EXPECT_EQ(plan[1].peak_in_flight, 1);
}

TEST(Memory, OptimizerStatesDependOnTheSettings) {
  config::Run run = run_of(test::gpt2_124m(), test::layout(1, 1, 1), 64, 1, 1);
  const auto bytes = [&] { return plan_memory(run)[0].optimizer / plan_memory(run)[0].num_parameters; };
  EXPECT_EQ(bytes(), 8);
  run.optimizer.optimizer = config::OptimizerKind::kSgd;
  EXPECT_EQ(bytes(), 4);
  run.optimizer.optimizer = config::OptimizerKind::kLion;
  EXPECT_EQ(bytes(), 4);
  run.optimizer.optimizer = config::OptimizerKind::kSgd;
  run.optimizer.sgd_momentum = 0;
  EXPECT_EQ(bytes(), 0);
  run.model.params_dtype = config::Dtype::kBfloat16;
  EXPECT_EQ(bytes(), 4);
}

TEST(Memory, OptimizerStatesHaveTheBytesOfTheirDtypes) {
  config::Run run = run_of(test::gpt2_124m(), test::layout(1, 1, 1), 64, 1, 1);
  run.model.params_dtype = config::Dtype::kBfloat16;
  const auto bytes = [&] { return plan_memory(run)[0].optimizer / plan_memory(run)[0].num_parameters; };
  EXPECT_EQ(bytes(), 4 + 4 + 4);
  run.optimizer.exp_avg_dtype = config::Dtype::kBfloat16;
  EXPECT_EQ(bytes(), 4 + 2 + 4);
  run.optimizer.exp_avg_sq_dtype = config::Dtype::kFloat8;
  EXPECT_EQ(bytes(), 4 + 2 + 1);
  run.optimizer.main_params_dtype = config::Dtype::kFloat16;
  EXPECT_EQ(bytes(), 2 + 2 + 1);
  run.model.params_dtype = config::Dtype::kFloat16;
  EXPECT_EQ(bytes(), 2 + 2 + 1);
  run.model.params_dtype = config::Dtype::kBfloat16;
  const std::int64_t fp32_gradients = plan_memory(run)[0].gradients;
  run.optimizer.main_grads_dtype = config::Dtype::kBfloat16;
  EXPECT_EQ(2 * plan_memory(run)[0].gradients, fp32_gradients);
}

TEST(Memory, TiedEmbeddingIsOnBothEnds) {
  const config::Model m = test::gpt2_124m();
  const auto whole = plan_memory(run_of(m, test::layout(1, 1, 1), 64, 1, 1));
  const auto halves = plan_memory(run_of(m, test::layout(2, 1, 2), 64, 1, 2));
  EXPECT_EQ(halves[0].num_parameters + halves[1].num_parameters, whole[0].num_parameters + 50304 * 768);
}

TEST(Memory, ActivationsAreStageActivationsTimesLiveMicroBatchesPlusABatch) {
  config::Run run = run_of(test::llama3_8b(), test::layout(4, 1, 4), 128, 1, 16);
  const std::int64_t batch = batch_bytes(ModelCost(run));
  EXPECT_EQ(batch, 128 * 20);
  const auto plan = plan_memory(run);
  for (int rank = 0; rank < 3; ++rank) {
    const StageMemory& m = plan[static_cast<std::size_t>(rank)];
    EXPECT_EQ(m.activations, (4 - rank) * stage_activations(ModelCost(run), m.stages[0]) + batch);
  }
  EXPECT_EQ(plan[3].activations, stage_activations(ModelCost(run), plan[3].stages[0]) + batch);
  run.parallel.pipeline_schedule = "gpipe";
  EXPECT_EQ(plan_memory(run)[2].activations,
            16 * stage_activations(ModelCost(run), plan[2].stages[0]) + batch);
  run.parallel.pipeline_schedule = "auto";
  run.parallel.num_virtual_stages_per_pipeline_rank = 2;
  EXPECT_EQ(plan_memory(run)[0].stages.size(), 2U);
  EXPECT_EQ(plan_memory(run)[0].peak_in_flight, 2 * 3 + 4 + 1);
  const std::int64_t evaluation = plan_memory(run)[0].evaluation;
  run.data.reset_attention_mask = run.data.reset_position_ids = true;
  EXPECT_EQ(batch_bytes(ModelCost(run)), batch + 128 * 8);
  EXPECT_EQ(plan_memory(run)[0].evaluation - evaluation, 4 * 128 * 8)
      << "four micro-batches are in flight between the first and the second chunk";
}

TEST(Memory, EvaluationsMayHaveOtherBatches) {
  config::Run run = llama_tp4_pp2_dp2(), four = run;
  const auto same = plan_memory(run);
  run.training.eval_micro_batch_size = four.training.micro_batch_size = 4;
  const auto plan = plan_memory(run), of_four = plan_memory(four);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(plan[rank].evaluation, of_four[rank].evaluation);
    EXPECT_GT(plan[rank].evaluation, same[rank].evaluation);
    EXPECT_EQ(plan[rank].activations, same[rank].activations);
  }
}

TEST(Memory, PeakMayBeAnEvaluation) {
  config::Run run;
  StageMemory m;
  m.parameters = 10;
  m.activations = 5;
  m.evaluation = 50;
  EXPECT_EQ(max_peak_bytes(run, {m}), m.peak()) << "no evaluations without --eval-interval";
  run.training.eval_interval = 1000;
  EXPECT_EQ(max_peak_bytes(run, {m}), m.evaluation_peak());
  run.training.eval_iters = 0;
  EXPECT_EQ(max_peak_bytes(run, {m}), m.peak());
  run.training.eval_iters = 10;
  run.training.skip_train = true;
  m.activations = 500;
  EXPECT_EQ(max_peak_bytes(run, {m}), m.evaluation_peak());
}

TEST(Memory, LayerActivationsMatchTheFormula) {
  config::Run run = run_of(test::llama3_8b(), test::layout(2, 2, 1), 128, 2, 2);
  const layout::StageBlocks one_layer = layout::stage_of_layers({0, 1});
  const std::int64_t n = 256, h = 4096;
  const auto saved = [&](const layout::StageBlocks& stage) {
    return stage_activations(ModelCost(run), stage);
  };
  const auto expected = [&](std::int64_t r) {
    return r * h * 2 * 4 + 2 * r * 4 + n * 2 * (2048 + 2 * 512 + 2 * 2048) + n * 4 * 16 + n * 2 * 3 * 7168;
  };
  EXPECT_EQ(saved(one_layer), expected(n));
  EXPECT_EQ(saved({}), n * h * 2) << "the input of a stage without blocks";
  run.parallel.sequence_parallel = true;
  EXPECT_EQ(saved(one_layer), expected(n / 2));
  const std::int64_t without = saved(one_layer);
  run.model.attention_dropout = 0.1;
  // The scores twice, no log-sum-exp, and the output in one layout only.
  EXPECT_EQ(saved(one_layer) - without, 2 * 2 * n * 128 * 16 - n * 4 * 16 - n * 2 * 2048);
}

TEST(Memory, PaddingOfFlatBuffersIsAllocatedButNotUpdated) {
  config::Model m = test::gpt(1, 24, 2, 8);
  m.vocab_size = m.make_vocab_size_divisible_by = 5;
  const auto one = plan_memory(run_of(m, test::layout(1, 1, 1), 8, 1, 1))[0];
  // Each parameter starts at a multiple of 64 elements; each bucket (tied embedding included) ends at one of
  // 128.
  EXPECT_EQ(one.num_parameters,
            5 * 24 + 8 * 24 + 2 * 48 + 72 * 24 + 72 + 24 * 24 + 24 + 2 * 96 * 24 + 96 + 24 + 48);
  EXPECT_EQ(one.gradients % (4 * 128), 0);
  EXPECT_GT(one.gradients, 4 * one.num_parameters);
  EXPECT_EQ(one.optimizer, 8 * one.num_parameters);
  EXPECT_EQ(one.rotary_tables, 0);
}

TEST(Memory, PhasesAreSumsOfTheParts) {
  StageMemory m;
  m.parameters = m.init_bucket = 100;
  m.gradients = 200;
  m.optimizer = 20;
  m.rotary_tables = 5;
  m.activations = 1000;
  m.workspace = 10;
  m.evaluation = 7;
  EXPECT_EQ(m.resident(), 325);
  EXPECT_EQ(m.peak(), 1335);
  EXPECT_EQ(m.evaluation_peak(), 332);
  EXPECT_EQ(m.start_up(), 405);
}

TEST(Memory, MoreTensorRanksNeedLessMemoryEach) {
  const auto peak = [](int tp) {
    return plan_memory(run_of(test::llama3_8b(), test::layout(tp, tp, 1), 128, 1, 1))[0].peak();
  };
  EXPECT_LT(peak(2), peak(1));
  EXPECT_LT(peak(8), peak(4));
}

TEST(Memory, RejectsAnIndivisibleBatch) {
  EXPECT_THROW(schedule_of(run_of(test::gpt2_124m(), test::layout(4, 1, 1), 64, 3, 16)), ConfigError);
  EXPECT_EQ(schedule_of(run_of(test::gpt2_124m(), test::layout(4, 1, 1), 64, 2, 16)).microbatches, 2);
  EXPECT_EQ(schedule_of(run_of(test::gpt2_124m(), test::layout(4, 1, 1), 64, 2, 0)).microbatches, 1);
}

}  // namespace
}  // namespace colonnade::cost
