// The plan of a custom model against its real step on meta tensors.
#include "colonnade/job/recorded_model.h"

#include <gmock/gmock.h>

#include "colonnade/base/error.h"
#include "colonnade/cost/communication.h"
#include "colonnade/cost/flops.h"
#include "colonnade/cost/recomputed_flops.h"
#include "colonnade/cost/stage_compute.h"
#include "colonnade/layers/recompute.h"
#include "job/planned.h"

namespace colonnade::job {
namespace {

using layout::BlockKind;
using ::testing::HasSubstr;

constexpr auto kTanhInput = tensor::BatchKey::custom("x");

/// y = x + tanh(x W); the first block reads x from the batch.
class TanhBlock final : public tensor::Block {
 public:
  TanhBlock(const layers::Context& context, std::int64_t hidden, std::int64_t number) : first_(number == 0) {
    layout::ParamSpec spec;
    spec.name = fmt::format("blocks.{}.weight", number);
    spec.shape = {hidden, hidden};
    w_ = context.make(spec);
  }
  at::Tensor forward(const at::Tensor& x, const tensor::Pass& pass) override {
    const at::Tensor in = first_ ? pass.batch.at(kTanhInput) : x;
    return in + at::tanh(at::matmul(in, w_->value));
  }
  std::vector<tensor::Parameter*> parameters() override { return {w_.get()}; }

 private:
  bool first_;
  std::unique_ptr<tensor::Parameter> w_;
};

/// Three blocks in each stage.
Model build_tanh(const BuildContext& context) {
  Model model;
  for (const auto& part : context.blocks) {
    auto stage = std::make_unique<tensor::Stage>();
    stage->first = part.has(BlockKind::kEmbedding);
    stage->last = part.has(BlockKind::kHead);
    for (std::int64_t i = 0; i < 3; ++i)
      stage->blocks.push_back(std::make_unique<TanhBlock>(context.layers, 256, i + (stage->first ? 0 : 3)));
    model.stages.push_back(std::move(stage));
  }
  return model;
}

pipeline::Steps tanh_steps(const Job&) {
  pipeline::Steps steps;
  steps.batch = [](int) { return tensor::Batch({{kTanhInput, at::ones({128, 4, 256})}}); };
  steps.loss = [](const at::Tensor& y, const tensor::Batch& batch) {
    const at::Tensor error = (y - 2 * batch.at(kTanhInput)).square().mean();
    return pipeline::Loss{error, {{"error", pipeline::metric_sum(error, at::ones({}))}}};
  };
  return steps;
}

config::Run tanh_run(int world, const std::string& flags) {
  return test::settings(
      world, test::words("--num-layers 2 --hidden-size 256 --num-attention-heads 2 --seq-length 128 "
                         "--max-position-embeddings 128 --micro-batch-size 4 --vocab-size 2 " +
                         flags));
}

// One step of the real executor on each stage, as job::dry_run of a model from settings.
TEST(RecordedModel, PlanOfACustomModelIsThatOfItsDryRun) {
  for (const auto& [world, flags] :
       {std::pair{1, "--global-batch-size 8"},
        {2, "--global-batch-size 8 --use-distributed-optimizer"},
        {2, "--global-batch-size 8 --use-megatron-fsdp"},
        {2, "--global-batch-size 16 --pipeline-model-parallel-size 2"},
        {2, "--global-batch-size 16 --pipeline-model-parallel-size 2 --pipeline-schedule zb-h1"}}) {
    SCOPED_TRACE(flags);
    config::Run run = tanh_run(world, flags);
    const auto model = record_model(run, build_tanh, tanh_steps);
    const std::vector<cost::StageMemory> plan = cost::plan_memory(*model->cost);
    run.training.device = "meta";
    // A plan adds the unsharded parameters and gradients to the whole backward pass of a block.
    const double unit = run.parallel.use_megatron_fsdp ? 2 * 256 * 256 * sizeof(float) : 0;
    for (std::size_t stage = 0; stage < plan.size(); ++stage) {
      const int rank = static_cast<int>(stage) * world / static_cast<int>(plan.size());
      const auto before = static_cast<std::int64_t>(tensor::memory_use(at::kMeta).now);
      Job job(run, comm::Communicators(layout::Mesh(run.parallel), rank, comm::null_factory(nullptr)),
              build_tanh);
      const StepReport report = job.train_step(tanh_steps(job), {.learning_rate = 1e-3});
      EXPECT_EQ(plan[stage].num_parameters, 3 * 256 * 256);
      EXPECT_EQ(plan[stage].parameters, static_cast<std::int64_t>(job.buffers().params().nbytes()));
      EXPECT_EQ(plan[stage].optimizer, optimizer_bytes(job));
      const auto peak = static_cast<double>(report.peaks.forward_backward) - static_cast<double>(before);
      const auto planned = static_cast<double>(plan[stage].peak());
      EXPECT_LT(peak, 1.05 * planned) << "stage " << stage;
      EXPECT_GT(peak, 0.95 * (planned - unit)) << "stage " << stage;
    }
  }
}

TEST(RecordedModel, CountsTheMatmulsOfACustomModel) {
  const auto model = record_model(tanh_run(1, "--global-batch-size 8"), build_tanh, tanh_steps);
  const double tokens = 128.0 * 8;
  EXPECT_EQ(cost::training_flops_by_part(*model->cost, 8).linears, 3 * 3 * 2 * tokens * 256 * 256);
}

// Two of three blocks run their matmul once more in the backward pass.
TEST(RecordedModel, CountsRecomputedMatmuls) {
  const auto build = [](const BuildContext& context) {
    Model model;
    auto stage = std::make_unique<tensor::Stage>();
    stage->first = stage->last = true;
    stage->blocks.push_back(std::make_unique<TanhBlock>(context.layers, 256, 0));
    layers::Blocks recomputed;
    for (std::int64_t i = 1; i < 3; ++i)
      recomputed.push_back(std::make_unique<TanhBlock>(context.layers, 256, i));
    layers::append_with_recomputation(stage->blocks, std::move(recomputed), context.layers.recompute);
    model.stages.push_back(std::move(stage));
    return model;
  };
  const auto model =
      record_model(tanh_run(1,
                            "--global-batch-size 8 --recompute-granularity full --recompute-method uniform "
                            "--recompute-num-layers 1"),
                   build, tanh_steps);
  const double one = 2 * 128.0 * 8 * 256 * 256;
  EXPECT_EQ(cost::training_flops_by_part(*model->cost, 8).linears, 3 * 3 * one);
  EXPECT_EQ(cost::recomputed_flops(*model->cost, 8).linears, 2 * one);
  double times = 0;
  for (const auto& part : cost::stage_compute(*model->cost, model->cost->stages().front()))
    times += part.recomputed * static_cast<double>(part.compute.matmuls.size());
  EXPECT_EQ(times, 2);
}

/// A block that all-reduces its output over tensor ranks.
class ReducedBlock final : public tensor::Block {
 public:
  explicit ReducedBlock(const layers::Context& context) : inner_(context, 256, 0), tp_(context.tp) {}
  at::Tensor forward(const at::Tensor& x, const tensor::Pass& pass) override {
    const at::Tensor y = inner_.forward(x, pass);
    tp_.all_reduce(y.detach(), "y").wait();
    return y;
  }
  std::vector<tensor::Parameter*> parameters() override { return inner_.parameters(); }

 private:
  TanhBlock inner_;
  comm::Group tp_;
};

// One all-reduce of [128, 4, 256] fp32 over two ranks in each of two micro-batches.
TEST(RecordedModel, CountsCollectivesOfItsBlocks) {
  const auto build = [](const BuildContext& context) {
    Model model;
    auto stage = std::make_unique<tensor::Stage>();
    stage->first = stage->last = true;
    stage->blocks.push_back(std::make_unique<ReducedBlock>(context.layers));
    model.stages.push_back(std::move(stage));
    return model;
  };
  const config::Run run = tanh_run(2, "--global-batch-size 8 --tensor-model-parallel-size 2");
  const auto model = record_model(run, build, tanh_steps);
  EXPECT_DOUBLE_EQ(cost::plan_traffic(*model->cost).front().tensor, 2 * (2 * 0.5 * 128 * 4 * 256 * 4));
}

TEST(RecordedModel, PlanSaysThatItsBlocksWereMeasured) {
  const std::string text = plan_text(tanh_run(1, "--global-batch-size 8"), build_tanh, tanh_steps, "h100");
  EXPECT_THAT(text, HasSubstr("fits: "));
  EXPECT_THAT(text, HasSubstr("measured on the CPU path"));
  EXPECT_THAT(text, HasSubstr("layers 0-2"));
  EXPECT_THAT(text, HasSubstr("per step"));
}

TEST(RecordedModel, BlocksMustNotReadValues) {
  const auto reads = [](const Job& job) {
    pipeline::Steps steps = tanh_steps(job);
    steps.loss = [](const at::Tensor& y, const tensor::Batch&) {
      return pipeline::Loss{y.mean() * y.sum().item<double>(), {}};
    };
    return steps;
  };
  const config::Run run = tanh_run(1, "--global-batch-size 8");
  EXPECT_THAT([&] { record_model(run, build_tanh, reads); },
              testing::ThrowsMessage<ConfigError>(HasSubstr("must not read values of tensors")));
}

TEST(RecordedModel, StepsMustNotReplaceTheForwardPass) {
  const auto replaced = [](const Job& job) {
    pipeline::Steps steps = tanh_steps(job);
    steps.forward = [](tensor::Stage& stage, const at::Tensor& x, const tensor::Pass& pass) {
      return stage.forward(x, pass);
    };
    return steps;
  };
  const config::Run run = tanh_run(1, "--global-batch-size 8");
  EXPECT_THAT([&] { record_model(run, build_tanh, replaced); },
              testing::ThrowsMessage<ConfigError>(HasSubstr("steps.forward must be empty")));
}

}  // namespace
}  // namespace colonnade::job
