// Step times by hand on ideal hardware, and the signs of published comparisons on real hardware.
#include "colonnade/cost/step_time.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "colonnade/cost/flops.h"
#include "colonnade/cost/stage_time.h"
#include "cost/ideal.h"

namespace colonnade::cost {
namespace {

using test::ideal;
using test::run_of;

config::Run llama_70b(int world, int tp, int pp, int chunks) {
  config::Run run = run_of(test::llama3_70b(), test::layout(world, tp, pp), 8192, 1, 256);
  run.parallel.sequence_parallel = run.parallel.use_distributed_optimizer = true;
  run.parallel.overlap_grad_reduce = run.parallel.overlap_param_gather = true;
  run.parallel.num_virtual_stages_per_pipeline_rank = chunks;
  return run;
}

config::Run with_full_recompute(config::Run run) {
  run.recompute = {.granularity = "full", .method = "uniform", .num_layers = 1};
  return run;
}

double step_of(const config::Run& run, const Execution& how = {}) {
  return estimate_step(run, read_hardware("h100"), how).step;
}

TEST(StepTime, EqualsTheFlopsOnOneIdealDevice) {
  const config::Run run = run_of(test::llama3_8b(), test::layout(1, 1, 1), 2048, 2, 8);
  const StepTime t = estimate_step(run, ideal());
  const TrainingFlops flops = training_flops_by_part(run.model, 2048, 8, 1);
  // Backward attention recomputes the scores: 3.5 forward passes instead of 3.
  EXPECT_NEAR(t.step, (flops.linears + flops.attention * 3.5 / 3) / 1e12, 1e-9 * t.step);
  EXPECT_NEAR(t.compute, t.step, 1e-9 * t.step);
  EXPECT_NEAR(t.mfu, flops.total() / 1e12 / t.step, 1e-12);
  EXPECT_NEAR(t.tokens_per_second_per_device, 8 * 2048 / t.step, 1e-9);
}

TEST(StepTime, PartsAddUpToTheStep) {
  const StepTime t = estimate_step(llama_70b(256, 8, 4, 5), read_hardware("h100"));
  EXPECT_DOUBLE_EQ(t.step, t.compute + t.tensor + t.bubble + t.data + t.optimizer + t.other);
  for (const double part : {t.compute, t.tensor, t.bubble, t.data, t.optimizer, t.other}) EXPECT_GT(part, 0);
}

TEST(StepTime, TensorParallelCommunicationByHand) {
  config::Run run = run_of(test::llama3_8b(), test::layout(2, 2, 1), 2048, 1, 1);
  Hardware h = ideal();
  h.peak_flops = 1e30;  // no compute to overlap
  h.intra_node.bandwidth = 1e9;
  const double hidden = 2048.0 * 4096 * 2;
  // An all-reduce over 2 ranks sends `hidden` bytes: 4 per layer, one for the embedding, one for the head.
  EXPECT_NEAR(estimate_step(run, h).tensor, hidden * (4 * 32 + 2) / 1e9, 1e-6);
  // Sequence parallelism: collectives of half the bytes; 10 per layer, 2 for the embedding, 3 for the head,
  // which gathers once forward and twice backward.
  run.parallel.sequence_parallel = true;
  EXPECT_NEAR(estimate_step(run, h).tensor, hidden / 2 * (10 * 32 + 2 + 3) / 1e9, 1e-6);
  // With a fast link and slow matmuls only these are exposed: all of forward, and in backward an all-gather
  // per row-parallel linear.
  h.peak_flops = 1e9;
  EXPECT_NEAR(estimate_step(run, h).tensor, hidden / 2 * (6 * 32 + 2 + 1) / 1e9, 1e-6);
  h.overlap_cost = 0.5;
  EXPECT_NEAR(estimate_step(run, h).tensor, hidden / 2 * (8 * 32 + 2 + 2) / 1e9, 1e-6);
}

TEST(StepTime, GradientReductionOverlapsTheLastBackwardPass) {
  config::Run run = run_of(test::llama3_8b(), test::layout(8, 1, 1), 2048, 1, 16);
  Hardware h = ideal();
  h.intra_node.bandwidth = 1e9;
  const double elements = 8.03e9;
  run.parallel.overlap_grad_reduce = false;
  EXPECT_NEAR(estimate_step(run, h).data, 2 * elements * 4 * 7 / 8 / 1e9, 0.1) << "an all-reduce";
  run.parallel.use_distributed_optimizer = true;
  EXPECT_NEAR(estimate_step(run, h).data, elements * (4 + 2) * 7 / 8 / 1e9, 0.1)
      << "reduce-scatter, then all-gather";
  run.parallel.overlap_grad_reduce = run.parallel.overlap_param_gather = true;
  EXPECT_LT(estimate_step(run, h).data, 0.5) << "a backward pass takes 66 s";
}

// The norm before it stays saved.
TEST(StepTime, RecomputedMlpRepeatsItsMatmulsAndActivation) {
  config::Run run = run_of(test::llama3_8b(), test::layout(1, 1, 1), 2048, 1, 1);
  Hardware h = test::instant();
  h.memory_bandwidth = 1e9;
  const double saved = estimate_step(run, h).compute;
  run.recompute.granularity = "selective";
  run.recompute.modules = {"mlp"};
  const double n = 2048, hidden = 4096, ffn = 14336, e = 2;
  const double activation = n * 3 * ffn, fc1 = n * (hidden + 2 * ffn) + 2 * ffn * hidden;
  const double fc2 = n * (ffn + hidden) + ffn * hidden;
  EXPECT_NEAR(estimate_step(run, h).compute - saved, 32 * e * (activation + fc1 + fc2) / 1e9, 1e-6);
}

TEST(StepTime, ShardedGradientsAndWeightsAreHiddenOnlyWithOverlap) {
  config::Run run = run_of(test::llama3_8b(), test::layout(8, 1, 1), 2048, 1, 16);
  run.parallel.use_megatron_fsdp = true;
  Hardware h = ideal();
  h.intra_node.bandwidth = 1e9;
  const double ring = 8.03e9 * 7 / 8 / 1e9;  // seconds per byte of an element; two micro-batches
  run.parallel.overlap_grad_reduce = run.parallel.overlap_param_gather = false;
  EXPECT_NEAR(estimate_step(run, h).data, 2 * ring * (2 * 2 + 4), 0.1)
      << "two all-gathers and a reduce-scatter";
  run.parallel.data_parallel_sharding_strategy = "optim_grads";
  EXPECT_NEAR(estimate_step(run, h).data, ring * (2 * 4 + 2), 0.1)
      << "a reduce-scatter per micro-batch, one all-gather";
  run.parallel.overlap_grad_reduce = true;
  h.peak_flops = 1e12;
  EXPECT_NEAR(estimate_step(run, h).data, ring * (2 * 4.0 / 34 + 2), 0.1) << "except one block of 34";
}

TEST(StepTime, InstancesReduceWithinANodeAndSendShardsBetweenNodes) {
  config::Run run = run_of(test::llama3_8b(), test::layout(16, 1, 1), 2048, 1, 16);
  run.parallel.use_distributed_optimizer = true;
  run.parallel.num_distributed_optimizer_instances = 2;
  const double elements = 8.03;  // in units of 1e9, like bandwidths
  Hardware h = ideal();
  h.intra_node.bandwidth = 1e9;  // links between nodes are no faster
  EXPECT_NEAR(estimate_step(run, h).data, elements * (4 + 2) * 7 / 8 + 2 * elements / 8 * 4 / 2, 0.1);
  h = ideal();
  h.inter_node.bandwidth = 1e9;
  EXPECT_NEAR(estimate_step(run, h).data, 2 * elements / 8 * 4 / 2, 0.01)
      << "a shard of an eighth, between two nodes";
  h.memory_bandwidth = 1e12;
  const double own = estimate_step(run, h).optimizer;
  run.parallel.outer_dp_sharding_strategy = "optim";
  EXPECT_NEAR(estimate_step(run, h).data, elements / 8 * (4 + 2) / 2, 0.01);
  EXPECT_NEAR(own - estimate_step(run, h).optimizer, 34e-3 * elements / 16, 1e-4);
  run.parallel.grad_reduce_in_bf16 = true;
  EXPECT_NEAR(estimate_step(run, h).data, elements / 8 * (2 + 2) / 2, 0.01);
}

TEST(StepTime, OptimizerIsShardedOverDataRanks) {
  config::Run run = run_of(test::llama3_8b(), test::layout(8, 1, 1), 2048, 1, 16);
  Hardware h = ideal();
  h.memory_bandwidth = 1e12;
  const double unsharded = estimate_step(run, h).optimizer;
  EXPECT_NEAR(unsharded, 8.03e9 * (8 + 8 + 16 + 2 + 4) / 1e12, 0.001);
  run.parallel.use_distributed_optimizer = true;
  EXPECT_NEAR(estimate_step(run, h).optimizer, 8.03e9 * (34.0 / 8 + 4) / 1e12, 0.001);
}

TEST(StepTime, OptimizerMovesTheBytesOfItsDtypes) {
  config::Run run = run_of(test::llama3_8b(), test::layout(1, 1, 1), 2048, 1, 1);
  Hardware h = ideal();
  h.memory_bandwidth = 1e12;
  const auto bytes = [&] { return estimate_step(run, h).optimizer * 1e12 / 8.03e9; };
  EXPECT_NEAR(bytes(), 8 + 8 + 16 + 2 + 4, 0.05);
  run.optimizer.exp_avg_dtype = run.optimizer.exp_avg_sq_dtype = config::Dtype::kBfloat16;
  EXPECT_NEAR(bytes(), 8 + 8 + 8 + 2 + 4, 0.05);
  run.optimizer.main_grads_dtype = config::Dtype::kBfloat16;
  EXPECT_NEAR(bytes(), 4 + 8 + 8 + 2 + 2, 0.05);
  run.optimizer.exp_avg_dtype = config::Dtype::kFloat8;  // has a scale: gradient, parameter and states twice
  EXPECT_NEAR(bytes(), 4 + 8 + 6 + 2 + 2 + (2 + 4 + 3), 0.05);
  run.optimizer = {.optimizer = config::OptimizerKind::kSgd};
  EXPECT_NEAR(bytes(), 8 + 8 + 8 + 2 + 4, 0.05);
  run.optimizer.sgd_momentum = 0;
  EXPECT_NEAR(bytes(), 8 + 8 + 2 + 4, 0.05);
}

// Newton-Schulz steps on [m, n], m <= n, have 4 m^2 n + 2 m^3 FLOPs, which the ranks of a stage share.
TEST(StepTime, MuonOrthogonalizesItsMatrices) {
  config::Run run = run_of(test::llama3_8b(), test::layout(1, 1, 1), 2048, 1, 1);
  const Hardware h = ideal();
  const double adam = estimate_step(run, h).optimizer;
  run.optimizer.optimizer = config::OptimizerKind::kMuon;
  const double m = 4096, kv = 1024, ffn = 14336;
  const auto flops = [](double rows, double columns) {
    const double least = std::min(rows, columns), most = std::max(rows, columns);
    return 5 * (4 * least * least * most + 2 * least * least * least);
  };
  const double layer = flops(m + 2 * kv, m) + flops(m, m) + flops(2 * ffn, m) + flops(m, ffn);
  const double seconds = 32 * layer / h.peak_flops;
  const double one = estimate_step(run, h).optimizer - adam;
  EXPECT_NEAR(one, seconds, 0.01 * seconds);
  run.parallel = test::layout(4, 1, 1);
  run.training.global_batch_size = 4;
  EXPECT_NEAR(estimate_step(run, h).optimizer - adam, seconds / 4, 0.01 * seconds);
}

// torchtitan: 1.28 with 405B on 512 GPUs in 8 stages.
TEST(PublishedGains, InterleavingIsFaster) {
  EXPECT_LT(step_of(llama_70b(256, 8, 4, 5)), 0.97 * step_of(llama_70b(256, 8, 4, 0)));
}

// torchtitan: 1.09 to 1.10 in bf16 with 8 tensor ranks.
TEST(PublishedGains, OverlappingMatmulsWithTheirCollectivesIsFaster) {
  config::Run run = with_full_recompute(llama_70b(256, 8, 1, 0));
  run.parallel.use_megatron_fsdp = true;
  const double gain = step_of(run) / step_of(run, {.tensor_overlap = true});
  EXPECT_GT(gain, 1.02);
  EXPECT_LT(gain, 1.20);
}

// Megatron-Bridge: 0.716 for 8 instead of 4 tensor ranks with 70B.
TEST(PublishedGains, MoreTensorRanksAreSlower) {
  EXPECT_GT(step_of(llama_70b(64, 8, 4, 5)), 1.02 * step_of(llama_70b(64, 4, 4, 5)));
}

// Megatron-Bridge: 0.941 for 8 instead of 4 stages with the same micro-batch.
TEST(PublishedGains, MoreStagesAreSlower) {
  EXPECT_GT(step_of(llama_70b(64, 4, 8, 5)), step_of(llama_70b(64, 4, 4, 5)));
}

// Full recomputation leaves 0.77 of the speed.
TEST(PublishedGains, FullRecomputationCostsAboutAForwardPass) {
  const config::Run run = llama_70b(64, 4, 4, 5);
  EXPECT_NEAR(step_of(run) / step_of(with_full_recompute(run)), 0.77, 0.05);
}

// Megatron-Bridge: 1.317 with Qwen3 30B on 16 H100, 1.177 if rows are sent once per node.
TEST(PublishedGains, OverlappingExpertAllToAllIsFaster) {
  config::Run run = run_of(test::llama3_8b(), test::layout(16, 1, 1), 4096, 1, 64);
  run.model.hidden_size = 2048;
  run.model.moe.num_experts = 128;
  run.model.moe.ffn_hidden_size = 768;
  run.model.moe.router_topk = 8;
  run.model.moe.token_dispatcher_type = config::TokenDispatcher::kAllToAll;
  run.parallel.expert_model_parallel_size = 16;
  const double gain = step_of(run) / step_of(run, {.dispatch_overlap = true});
  EXPECT_GT(gain, 1.1);
  EXPECT_LT(gain, 1.8);
  const double once =
      step_of(run, {.once_per_node = true}) / step_of(run, {.dispatch_overlap = true, .once_per_node = true});
  EXPECT_GT(once, 1.05);
  EXPECT_LT(once, gain);
}

// Four micro-batches make three pairs, which hide the dispatch; a forward and a backward pass run alone.
TEST(StepTime, PairsHideTheDispatch) {
  config::Run run = run_of(test::llama3_8b(), test::layout(2, 1, 1), 4096, 1, 8);
  run.model.moe.num_experts = 8;
  run.model.moe.ffn_hidden_size = 768;
  run.model.moe.router_topk = 2;
  run.model.moe.token_dispatcher_type = config::TokenDispatcher::kAllToAll;
  run.parallel.expert_model_parallel_size = 2;
  Hardware h = ideal();
  h.intra_node.bandwidth = 1e9;
  const StepTime without = estimate_step(run, h);
  run.parallel.overlap_moe_expert_parallel_comm = true;
  const StepTime with = estimate_step(run, h);
  EXPECT_GT(without.dispatch, 0);
  EXPECT_NEAR(with.dispatch, without.dispatch / 4, 1e-9 * without.dispatch);
  EXPECT_NEAR(without.step - with.step, 0.75 * without.dispatch, 1e-9 * without.step);
  EXPECT_NEAR(with.bubble, without.bubble, 1e-9 * without.step);
}

// torchtitan: 0.14 of the tokens with 8 context ranks for 8 times the length.
TEST(PublishedGains, LongSequencesCostMoreThanTheirContextRanksGain) {
  config::Run short_run = run_of(test::llama3_8b(), test::layout(8, 1, 1), 32768, 1, 8), long_run = short_run;
  long_run.training.seq_length = 262144;
  long_run.training.global_batch_size = 1;
  long_run.parallel.context_parallel_size = 8;
  EXPECT_NEAR(step_of(short_run) / step_of(long_run), 0.14 / 1, 0.15);
  EXPECT_LT(step_of(short_run), 0.5 * step_of(long_run));
}

// Megatron's README: the same batch of 177B on 48 times as many GPUs, 47 % to 42 % of the peak.
TEST(PublishedGains, StrongScalingLosesEfficiency) {
  config::Run few = llama_70b(64, 8, 4, 5), many = llama_70b(1024, 8, 4, 5);
  EXPECT_GT(step_of(many) * 16, 1.02 * step_of(few));
}

TEST(StepTime, Fp32SlowsMatmulsAndDoublesBytes) {
  config::Run run = run_of(test::llama3_8b(), test::layout(8, 1, 1), 2048, 2, 16);
  Hardware h = ideal();
  h.fp32_flops = h.peak_flops / 8;
  h.sustained_share = 0.7;
  const double in_bf16 = estimate_step(run, h).compute;
  run.model.params_dtype = config::Dtype::kFloat32;
  const StepTime t = estimate_step(run, h);
  EXPECT_NEAR(t.compute, in_bf16 * 8 * 0.7, 1e-9 * t.compute) << "sustained_share does not apply to fp32";
  const double flops = training_flops(run.model, 2048, 16, 1);
  EXPECT_NEAR(t.mfu, flops / t.step / 8 / h.fp32_flops, 1e-12);
  h = test::instant();
  h.memory_bandwidth = 1e12;
  EXPECT_NEAR(estimate_step(run, h).optimizer, 8.03e9 * (8 + 8 + 16 + 4) / 1e12, 0.001)
      << "no separate main parameters";
  const double passes = estimate_step(run, h).compute;
  run.model.params_dtype = config::Dtype::kBfloat16;
  EXPECT_GT(passes, 1.5 * estimate_step(run, h).compute);
}

TEST(StepTime, TextListsEveryPart) {
  const Hardware h = read_hardware("h100");
  const std::string text = step_time_text(estimate_step(llama_70b(256, 8, 4, 5), h), h);
  for (const char* word :
       {"estimate on H100 SXM: ", " s per step, ", " tokens/s per device, MFU ", "compute",
        "tensor-parallel comm", "pipeline bubble", "data-parallel comm", "optimizer", "other"})
    EXPECT_THAT(text, ::testing::HasSubstr(word));
}

}  // namespace
}  // namespace colonnade::cost
