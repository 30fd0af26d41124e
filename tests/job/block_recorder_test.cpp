// The formulas of cost/blocks against the recorded costs of the same blocks, one by one.
#include "colonnade/job/block_recorder.h"

#include <gtest/gtest.h>

#include "colonnade/cost/model_cost.h"
#include "job/planned.h"

namespace colonnade::job {
namespace {

using layout::BlockKind;
using test::Planned;

constexpr double kLossBytes = 64;  // bytes of loss scalars

/// Costs of a block of a built model: of several blocks of the plan for the one that ends a stage.
struct Formula {
  const cost::ModelCost& model;
  std::vector<layout::BlockId> ids;

  [[nodiscard]] double sum(std::int64_t (cost::BlockCost::*quantity)() const) const {
    std::int64_t bytes = 0;
    for (const layout::BlockId& id : ids) bytes += (model.block(id).*quantity)();
    return static_cast<double>(bytes);
  }
  [[nodiscard]] double backward_peak(const layout::StageBlocks& stage, bool delay_wgrad) const {
    cost::StageTracker tracker(stage, delay_wgrad);
    for (auto id = ids.rbegin(); id != ids.rend(); ++id) model.block(*id).backward(tracker);
    return static_cast<double>(tracker.peak());
  }
  /// Blocks other than layers count on top of the hidden states that the stage receives.
  [[nodiscard]] double evaluation() const {
    const bool has_input = ids.front().kind != BlockKind::kLayer && ids.front().kind != BlockKind::kEmbedding;
    return sum(&cost::BlockCost::evaluation) + (has_input ? static_cast<double>(model.hidden()) : 0);
  }
  [[nodiscard]] double forward_matmuls() const {
    std::vector<cost::RepeatedCompute> parts;
    for (const layout::BlockId& id : ids) model.block(id).add_compute(cost::AttentionKernel::kUnfused, parts);
    double flops = 0;
    for (const cost::RepeatedCompute& part : parts) flops += part.times * matmuls_of(part.compute);
    return flops;
  }
  [[nodiscard]] double recomputed_matmuls() const {
    std::vector<cost::BlockCompute> parts;
    for (const layout::BlockId& id : ids)
      model.block(id).add_recomputed(cost::AttentionKernel::kUnfused, parts);
    double flops = 0;
    for (const cost::BlockCompute& part : parts) flops += matmuls_of(part);
    return flops;
  }
  /// Without grouped matmuls, which do not run on meta tensors.
  [[nodiscard]] static double matmuls_of(const cost::BlockCompute& compute) {
    double flops = 0;
    for (const cost::Matmul& m : compute.matmuls)
      if (m.kind != cost::MatmulKind::kGrouped) flops += 2 * m.m * m.n * m.k * m.count;
    return flops;
  }
};

/// The plan's blocks by block of the built stage: embedding, each layer, and all others together.
std::vector<std::vector<layout::BlockId>> built_units(const layout::StageBlocks& stage) {
  std::vector<std::vector<layout::BlockId>> units;
  for (const layout::BlockId& id : stage.blocks) {
    const bool joins = !units.empty() && units.back().front().kind != BlockKind::kEmbedding &&
                       units.back().front().kind != BlockKind::kLayer;
    if (joins)
      units.back().push_back(id);
    else
      units.push_back({id});
  }
  return units;
}

/// Peaks of layers are at most one hidden state below the plan and, up to small buffers, not above it; in
/// delayed passes by one and in evaluations by two hidden states. The plan has the peaks of embedding and
/// head relative to those of a stage's largest block (planned_peaks_test.cpp): alone they are at most two
/// hidden states of all tensor ranks higher.
void expect_peaks(const BlockRecord& record, const Formula& formula, const layout::StageBlocks& stage) {
  const auto state = static_cast<double>(formula.model.hidden());
  const bool is_layer = formula.ids.front().kind == BlockKind::kLayer;
  const auto expect = [&](std::int64_t got, double planned, double share, double states, const char* what) {
    const double all = 2 * state * formula.model.run().parallel.tensor_model_parallel_size;
    EXPECT_LE(static_cast<double>(got), planned + share * planned + (is_layer ? states * state : all))
        << what;
    const double least = is_layer ? planned - share * planned - std::max(1.2, states) * state : 0;
    EXPECT_GE(static_cast<double>(got), least) << what;
  };
  expect(record.backward_peak, formula.backward_peak(stage, false), 0.03, 0.2, "backward");
  expect(record.backward_input_peak, formula.backward_peak(stage, true), 0.03, 1.2, "input gradients");
  expect(record.evaluation, formula.evaluation(), 0.1, 2.1, "evaluation");
}

/// Every block of rank 0 of a model in one stage.
void expect_formulas(const config::Run& run) {
  count_meta_tensors();
  const auto log = std::make_shared<comm::CallLog>();
  Job job(run, comm::Communicators(layout::Mesh(run.parallel), 0, comm::null_factory(log)));
  const cost::ModelCost model(run);
  const layout::StageBlocks stage = model.stages().front();
  const auto units = built_units(stage);
  const tensor::Stage& built = *job.model.stages.front();
  ASSERT_EQ(built.blocks.size(), units.size());
  const tensor::Batch batch = empty_batch(run);
  const pipeline::Steps steps = empty_steps(run);
  const auto tokens = static_cast<double>(run.training.micro_batch_size * run.training.seq_length);
  std::vector<std::int64_t> shape;
  for (std::size_t i = 0; i < units.size(); ++i) {
    SCOPED_TRACE(fmt::format("block {}", i));
    const bool ends = i + 1 == units.size();
    const BlockRecord record = record_block(
        job, *log, batch,
        [&](const at::Tensor& x, const tensor::Pass& pass) {
          const at::Tensor y = built.blocks[i]->forward(x, pass);
          return ends ? steps.loss(y, pass.batch).value : y;
        },
        shape);
    shape = record.output_shape;
    const Formula formula{model, units[i]};
    EXPECT_NEAR(static_cast<double>(record.saved), formula.sum(&cost::BlockCost::saved),
                kLossBytes + 8 * tokens);
    EXPECT_NEAR(static_cast<double>(record.wgrad_saved), formula.sum(&cost::BlockCost::wgrad_saved),
                kLossBytes);
    expect_peaks(record, formula, stage);
    EXPECT_EQ(record.forward.linears(), formula.forward_matmuls());
    EXPECT_EQ(record.backward.linears(), 2 * formula.forward_matmuls() + formula.recomputed_matmuls());
  }
}

/// Two layers of each kind (those of BERT and T5 are compared as whole runs, planned_bert_test.cpp and
/// planned_encoder_test.cpp), as large as activations must be to outweigh the smallest buffers.
std::string sized(const std::string& more) {
  return "--num-layers 2 --hidden-size 512 --ffn-hidden-size 1024 --num-attention-heads 8 --vocab-size 1024 "
         "--seq-length 256 --max-position-embeddings 256 --attention-dropout 0 --make-vocab-size-divisible-by 8 " +
         more;
}

constexpr const char* kAttention = "--position-embedding-type rope --normalization RMSNorm --swiglu ";
constexpr const char* kSmallLatent =
    "--multi-latent-attention --position-embedding-type rope --q-lora-rank 96 --kv-lora-rank 64 --qk-head-dim 48 "
    "--qk-pos-emb-head-dim 16 --kv-channels 64 --v-head-dim 64 --normalization RMSNorm --disable-bias-linear ";
constexpr const char* kFewExperts =
    "--num-experts 4 --moe-ffn-hidden-size 512 --moe-router-topk 2 --disable-bias-linear --swiglu ";

TEST(BlockRecorder, FormulasEqualWhatEveryKindOfBlockNeeds) {
  const std::string shared = std::string(kFewExperts) + "--moe-shared-expert-intermediate-size 512 ";
  const std::string fp32_stream = "--bf16 --fp32-residual-connection ";
  const std::string models[] = {
      "",
      std::string(kAttention) + "--untie-embeddings-and-output-weights --bf16 --disable-bias-linear ",
      "--parallel-residual ",
      "--parallel-residual " + std::string(kFewExperts),
      "--parallel-residual --bf16 " + std::string(kFewExperts),
      "--parallel-residual " + shared,
      "--parallel-residual --moe-shared-expert-gate " + shared,
      "--moe-shared-expert-gate --bf16 " + shared,
      "--moe-shared-expert-gate --bf16 --moe-token-dispatcher-type alltoall " + shared,
      kSmallLatent,
      kFewExperts,
      shared + "--moe-token-dispatcher-type alltoall ",
      "--mtp-num-layers 2 --position-embedding-type rope ",
      "--recompute-granularity selective --recompute-modules core_attn layernorm mlp ",
      fp32_stream,
      fp32_stream + kAttention +
          "--untie-embeddings-and-output-weights --disable-bias-linear --hidden-dropout 0 ",
      fp32_stream + "--parallel-residual " + kFewExperts,
      fp32_stream + kSmallLatent,
      fp32_stream + "--mtp-num-layers 2 --position-embedding-type rope ",
      fp32_stream + "--recompute-granularity selective --recompute-modules core_attn layernorm mlp ",
  };
  const Planned layouts[] = {
      {"OneRank", 1, "--micro-batch-size 2"},
      {"Tp2Sp", 2, "--tensor-model-parallel-size 2 --sequence-parallel --micro-batch-size 2"},
  };
  for (const Planned& layout : layouts)
    for (const std::string& model : models) {
      SCOPED_TRACE(fmt::format("{}: {}", layout.name, model));
      expect_formulas(test::planned_run(layout, sized(model), "meta"));
    }
}

}  // namespace
}  // namespace colonnade::job
