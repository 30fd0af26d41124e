// Step times of encoder-decoder models: stage costs against the FLOPs formula, communication against the
// plan, and monotonicity.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "colonnade/config/derive.h"
#include "colonnade/cost/blocks/attention.h"
#include "colonnade/cost/blocks/cross_attention.h"
#include "colonnade/cost/communication.h"
#include "colonnade/cost/flops.h"
#include "colonnade/cost/model_cost.h"
#include "colonnade/cost/recomputed_flops.h"
#include "colonnade/cost/search.h"
#include "colonnade/cost/stage_compute.h"
#include "colonnade/cost/step_time.h"
#include "cost/ideal.h"

namespace colonnade::cost {
namespace {

using test::ideal;

constexpr std::int64_t kEncoder = 512, kDecoder = 128, kBatch = 2, kHidden = 1024, kFfn = 2816;

/// Four encoder and four decoder layers of T5 1.1, with rotary positions unless `relative`.
config::Run t5(const config::Parallel& layout = test::layout(1, 1, 1), bool relative = false) {
  config::Run run;
  run.model_type = "t5";
  run.model.num_layers = run.model.encoder_num_layers = 4;
  run.model.hidden_size = kHidden;
  run.model.ffn_hidden_size = kFfn;
  run.model.num_attention_heads = run.model.num_query_groups = 16;
  run.model.kv_channels = 64;
  run.model.vocab_size = 32128;
  run.model.activation = config::Activation::kGegluTanh;
  run.model.position_embedding =
      relative ? config::PositionEmbedding::kRelative : config::PositionEmbedding::kRope;
  run.model.attention_dropout = run.model.hidden_dropout = 0;
  run.model.params_dtype = config::Dtype::kBfloat16;
  run.parallel = layout;
  run.training.seq_length = kEncoder;
  run.training.decoder_seq_length = kDecoder;
  run.training.micro_batch_size = run.training.global_batch_size = kBatch;
  return run;
}

double flops_of(const std::vector<Matmul>& matmuls) {
  double sum = 0;
  for (const Matmul& p : matmuls) sum += 2 * p.count * p.m * p.n * p.k;
  return sum;
}

TEST(EncoderDecoderCost, EqualsTheFlopsOnOneIdealDevice) {
  const config::Run run = t5();
  const TrainingFlops flops = training_flops_by_part(run.model, sample_length(run), kBatch, /*tensor=*/1);
  const StepTime t = estimate_step(run, ideal());
  EXPECT_NEAR(t.step, (flops.linears + flops.attention * 3.5 / 3) / 1e12, 1e-9 * t.step);
  EXPECT_NEAR(t.mfu, flops.total() / 1e12 / t.step, 1e-12);
  EXPECT_NEAR(t.tokens_per_second_per_device, kBatch * (kEncoder + kDecoder) / t.step, 1e-6);
}

TEST(EncoderDecoderCost, StagesAddUpToTheFlops) {
  for (const char* layout : {"Ee*3|ett|ttL", "Eee|eet|tttL", "E|e*4|t*4L"}) {
    config::Run run = t5(test::layout(3, 1, 3));
    run.parallel.pipeline_model_parallel_layout = layout;
    double matmuls = 0, attention = 0;
    const ModelCost model(run);
    for (const layout::StageBlocks& stage : layout::split_stages(run.model, run.parallel)) {
      for (const RepeatedCompute& block : stage_compute(model, stage)) {
        matmuls += block.times * flops_of(block.compute.matmuls);
        attention += block.times * block.compute.attention.flops;
      }
    }
    const TrainingFlops flops = training_flops_by_part(run.model, sample_length(run), kBatch, 1);
    EXPECT_NEAR(3 * matmuls, flops.linears, 1e-9 * flops.linears) << layout;
    EXPECT_NEAR(3 * attention, flops.attention, 1e-9 * flops.attention) << layout;
  }
}

TEST(EncoderDecoderCost, CrossAttentionByHand) {
  const BlockCompute work = test::sublayer_compute(t5(test::layout(2, 2, 1)), /*layer=*/4, /*index=*/1);
  const double decoder = kBatch * kDecoder, encoder = kBatch * kEncoder, heads = kHidden / 2.0;
  EXPECT_EQ(flops_of(work.matmuls), 2 * kHidden * (decoder * heads + encoder * 2 * heads + decoder * heads));
  EXPECT_EQ(work.attention.flops, 4 * decoder * kEncoder * heads) << "full QK^T and PV";
  EXPECT_EQ(work.forward_bytes, 4 * decoder * kHidden * 2) << "a norm with residual sum";
  config::Run capped = t5();
  capped.model.attn_logit_softcapping = 30;
  const Sequences sequences(capped);
  const CrossAttentionCost cross(sequences.tokens(), sequences.all().front());
  EXPECT_EQ(cross.core(AttentionKernel::kUnfused).forward_bytes, 11 * decoder * kEncoder * 16 * 2);
}

TEST(EncoderDecoderCost, RelativePositionsMaterializeScoresAndBiases) {
  const config::Run run = t5(test::layout(1, 1, 1), /*relative=*/true);
  const Sequences sequences(run);
  for (const bool encoder : {true, false}) {
    const AttentionCost attention(encoder ? sequences.all().front() : sequences.tokens(),
                                  layer_traits(run)[encoder ? 0 : 4]);
    const BlockCompute work = attention.core(AttentionKernel::kUnfused);
    const auto s = static_cast<double>(encoder ? kEncoder : kDecoder);
    EXPECT_EQ(work.attention.flops, 4 * kBatch * s * s * kHidden) << "the full square";
    EXPECT_EQ(work.forward_bytes, 11 * kBatch * s * s * 16 * 2 + 2 * 16 * s * s * 2);
    EXPECT_EQ(work.backward_bytes, 12 * kBatch * s * s * 16 * 2 + 16 * s * s * (2 * 2 + 2 * 4));
  }
}

TEST(EncoderDecoderCost, TensorParallelTimeMatchesTheTraffic) {
  for (const bool sequence_parallel : {false, true}) {
    for (const char* recompute : {"", "full", "mlp"}) {
      config::Run run = t5(test::layout(2, 2, 1));
      run.parallel.sequence_parallel = sequence_parallel;
      if (*recompute != '\0') run.recompute = {.granularity = "selective", .modules = {recompute}};
      if (recompute == std::string("full"))
        run.recompute = {.granularity = "full", .method = "uniform", .num_layers = 1};
      Hardware h = test::instant();
      h.intra_node.bandwidth = 1e9;
      EXPECT_NEAR(estimate_step(run, h).tensor, plan_traffic(run)[0].tensor / 1e9, 1e-6)
          << sequence_parallel << recompute;
    }
  }
}

TEST(EncoderDecoderCost, RecomputationEqualsItsFlops) {
  for (const config::Recompute& recompute :
       {config::Recompute{.granularity = "full", .method = "uniform", .num_layers = 1},
        config::Recompute{.granularity = "full", .method = "block", .num_layers = 3},
        config::Recompute{.granularity = "selective", .modules = {"core_attn", "mlp"}}}) {
    config::Run run = t5();
    const double saved = estimate_step(run, ideal()).step;
    run.recompute = recompute;
    EXPECT_NEAR(estimate_step(run, ideal()).step - saved,
                recomputed_flops(ModelCost(run), kBatch).total() / 1e12, 1e-9 * saved)
        << recompute.is_full() << recompute.modules.size();
  }
}

TEST(EncoderDecoderCost, GrowsWithEverySize) {
  const Hardware h100 = read_hardware("h100");
  for (const bool relative : {false, true}) {
    const config::Run run = t5(test::layout(2, 1, 2), relative);
    const auto grown = [&](auto&& grow) {
      config::Run other = run;
      grow(other);
      return estimate_step(other, h100).step;
    };
    const double step = estimate_step(run, h100).step;
    EXPECT_GT(grown([](config::Run& r) { r.training.seq_length *= 2; }), step);
    EXPECT_GT(grown([](config::Run& r) { r.training.decoder_seq_length *= 2; }), step);
    EXPECT_GT(grown([](config::Run& r) { r.model.num_layers += 2; }), step);
    EXPECT_GT(grown([](config::Run& r) { r.model.encoder_num_layers += 2; }), step);
    EXPECT_GT(grown([](config::Run& r) { r.training.global_batch_size *= 2; }), step);
    EXPECT_GT(grown([](config::Run& r) { r.recompute = {.granularity = "selective", .modules = {"mlp"}}; }),
              step);
    EXPECT_GT(grown([](config::Run& r) { r.model.attention_dropout = 0.1; }), step);
  }
}

TEST(EncoderDecoderCost, IsSearched) {
  config::Run run = t5();
  run.parallel.world_size = 8;
  run.training.global_batch_size = 64;
  run.training.device = "cuda";
  const Hardware h100 = read_hardware("h100");
  const SearchResult found = search_layouts(run, h100, 200);
  ASSERT_EQ(found.best.size(), 200U);
  int pipelines = 0;
  for (const FoundLayout& layout : found.best) {
    config::Run one = layout.run;
    config::derive(one);
    EXPECT_DOUBLE_EQ(layout.time.step, estimate_step(one, h100).step);
    pipelines += one.parallel.pipeline_model_parallel_size > 1 ? 1 : 0;
  }
  EXPECT_GT(pipelines, 0);
}

}  // namespace
}  // namespace colonnade::cost
