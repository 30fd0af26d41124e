// Layouts of one run agree, and a defect in a layout is distinguished from rounding.
#include "colonnade/train/compare_layouts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "colonnade/base/error.h"
#include "job/runs.h"

namespace colonnade::train {
namespace {

using test::words;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kModel =
    "--num-layers 2 --hidden-size 32 --ffn-hidden-size 48 --num-attention-heads 4 --vocab-size 61 --seq-length 16 "
    "--max-position-embeddings 16 --micro-batch-size 1 --global-batch-size 8 --hidden-dropout 0.1 ";

config::Run run_of(int world, const std::string& more) { return test::settings(world, words(kModel + more)); }

TEST(CompareLayouts, AgreeInFp32) {
  const Comparison found = compare_layouts(
      {run_of(1, "")},
      {run_of(8,
              "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2 "
              "--use-distributed-optimizer --micro-batch-size 2")},
      2);
  EXPECT_FALSE(found.first) << found.first->what << ' ' << found.first->distance;
  EXPECT_GE(found.largest.size(), 5U);
  for (const ValueDifference& one : found.largest) EXPECT_FALSE(one.exceeds_bound()) << one.what;
}

// Gradients of key biases are mere rounding, and Adam moves them by the full learning rate in either
// direction.
TEST(CompareLayouts, AgreeInFp32WhereGradientsAreRounding) {
  const std::string wide = "--init-method-std 0.1 --attention-dropout 0 ";
  const Comparison found =
      compare_layouts({run_of(1, wide)}, {run_of(4, wide + "--context-parallel-size 2")}, 3);
  EXPECT_FALSE(found.first) << found.first->what << ' ' << found.first->distance;
}

constexpr const char* kTp2Sp = "--tensor-model-parallel-size 2 --sequence-parallel";

using GradientChange = at::Tensor (*)(const at::Tensor& grad);

/// A block that modifies its gradient in the backward pass.
class ModifiedGradient final : public tensor::Block {
 public:
  ModifiedGradient(std::unique_ptr<tensor::Block> inner, GradientChange change)
      : inner_(std::move(inner)), change_(change) {}
  at::Tensor forward(const at::Tensor& x, const tensor::Pass& pass) override {
    const at::Tensor y = inner_->forward(x, pass);
    y.register_hook(change_);
    return y;
  }
  std::vector<tensor::Parameter*> parameters() override { return inner_->parameters(); }

 private:
  std::unique_ptr<tensor::Block> inner_;
  GradientChange change_;
};

/// A GPT whose first layer has a modified gradient.
job::Model with_modified_gradient(const job::BuildContext& context, GradientChange change) {
  job::Model model = job::build_model(context);
  auto& layer = model.stages[0]->blocks.at(1);
  layer = std::make_unique<ModifiedGradient>(std::move(layer), change);
  return model;
}

/// A defect on rank 1.
job::Model with_defect(const job::BuildContext& context) {
  if (context.ranks.rank() != 1) return job::build_model(context);
  return with_modified_gradient(context, [](const at::Tensor& grad) { return grad * 1.01; });
}

/// A correct computation, in a summation order that loses five digits of any dtype.
job::Model with_lost_digits(const job::BuildContext& context) {
  return with_modified_gradient(context, [](const at::Tensor& grad) {
    const at::Tensor large = grad.detach().abs().max() * 1e5;
    return grad + large - large;
  });
}

TEST(CompareLayouts, DefectShowsInFloat64AndIsNamed) {
  const Comparison found = compare_layouts({run_of(1, "")}, {run_of(2, kTp2Sp), with_defect}, 2);
  ASSERT_TRUE(found.first);
  EXPECT_EQ(found.first->step, 1);
  EXPECT_THAT(found.first->what, HasSubstr("gradient of decoder.layers.0.")) << "the loss is correct";
  ASSERT_TRUE(found.first_in_float64);
  EXPECT_EQ(found.first_in_float64->what, found.first->what);
}

TEST(CompareLayouts, DifferenceAbsentInFloat64IsRounding) {
  const Comparison found = compare_layouts({run_of(1, "")}, {run_of(2, kTp2Sp), with_lost_digits}, 2);
  ASSERT_TRUE(found.first);
  EXPECT_EQ(found.first->step, 1);
  EXPECT_THAT(found.first->what, HasSubstr("gradient of decoder.layers.0.")) << "the loss is correct";
  EXPECT_FALSE(found.first_in_float64) << found.first_in_float64->what;
}

// One rank reduces nothing; two ranks round the gradients that they send.
TEST(CompareLayouts, GradientsReducedInBf16AreNotRoundedInFloat64) {
  const std::string wire = "--bf16 --grad-reduce-in-bf16 ";
  const Comparison found = compare_layouts({run_of(1, wire)}, {run_of(2, wire), with_lost_digits}, 2);
  ASSERT_TRUE(found.first);
  EXPECT_FALSE(found.first_in_float64) << found.first_in_float64->what;
}

TEST(CompareLayouts, SettingsThatDependOnTheLayoutAreNamed) {
  const std::string experts =
      "--num-experts 4 --moe-router-topk 2 --disable-bias-linear --moe-router-load-balancing-type none ";
  const std::string capacity = experts + "--moe-expert-capacity-factor 1 ";
  const auto lines = [](const std::string& model, const std::string& other) {
    return expected_differences(run_of(2, model), run_of(2, model + other));
  };
  for (const char* cut :
       {kTp2Sp, "--context-parallel-size 2 --attention-dropout 0", "--micro-batch-size 2"}) {
    EXPECT_THAT(lines(capacity, cut), ElementsAre(HasSubstr("--moe-expert-capacity-factor counts"))) << cut;
    EXPECT_THAT(lines(experts, cut), IsEmpty()) << cut;
  }
  const std::string sinkhorn = experts + "--moe-router-load-balancing-type sinkhorn ";
  EXPECT_THAT(lines(sinkhorn, kTp2Sp), ElementsAre(HasSubstr("sinkhorn balances the tokens")));
  EXPECT_THAT(lines(sinkhorn, "--micro-batch-size 2"),
              ElementsAre(HasSubstr("sinkhorn balances the tokens")));
  for (const char* cut : {"--pipeline-model-parallel-size 2", "--expert-model-parallel-size 2"}) {
    EXPECT_THAT(lines(capacity, cut), IsEmpty()) << cut;
    EXPECT_THAT(lines(sinkhorn, cut), IsEmpty()) << cut;
  }
  const std::string global =
      experts + "--moe-router-load-balancing-type global_aux_loss --moe-aux-loss-coeff 0.01 ";
  EXPECT_THAT(lines(global, "--pipeline-model-parallel-size 2"), ElementsAre(HasSubstr("global_aux_loss")));
  EXPECT_THAT(lines(global, "--expert-model-parallel-size 2"), IsEmpty());
  const std::string local = experts + "--moe-router-load-balancing-type aux_loss --moe-aux-loss-coeff 0.01 ";
  EXPECT_THAT(lines(local, "--micro-batch-size 2"), ElementsAre(HasSubstr("aux_loss is a loss of each")));
  EXPECT_THAT(lines(local, "--pipeline-model-parallel-size 2"), IsEmpty());
  EXPECT_THAT(lines("--eod-mask-loss ", "--micro-batch-size 2"), ElementsAre(HasSubstr("--eod-mask-loss")));
  EXPECT_THAT(lines("--eod-mask-loss --calculate-per-token-loss ", "--micro-batch-size 2"), IsEmpty());
  const std::string further = "--mtp-num-layers 1 --position-embedding-type rope ";
  for (const char* documents : {"--reset-attention-mask ", "--reset-position-ids "}) {
    EXPECT_THAT(lines(further + documents, "--micro-batch-size 2"),
                ElementsAre(HasSubstr("--mtp-num-layers with --reset-attention-mask")));
    EXPECT_THAT(lines(further + documents, "--pipeline-model-parallel-size 2"), IsEmpty());
    EXPECT_THAT(lines(documents, "--micro-batch-size 2"), IsEmpty());
  }
  EXPECT_THAT(lines(further, "--micro-batch-size 2"), IsEmpty());
  for (const char* masked : {"--eod-mask-loss ", "--reset-position-ids "})
    EXPECT_THAT(lines(further + masked + "--calculate-per-token-loss ", "--micro-batch-size 2"),
                ElementsAre(HasSubstr("weights the MTP loss of a micro-batch by its loss tokens")));
  EXPECT_THAT(lines(further + "--calculate-per-token-loss ", "--micro-batch-size 2"), IsEmpty());
  const std::string t5 = "t5 --decoder-seq-length 8 --vocab-extra-ids 9 ";
  EXPECT_THAT(lines(t5, "--micro-batch-size 2"),
              ElementsAre(HasSubstr("samples of t5 and bert have different numbers")));
  EXPECT_THAT(lines(t5 + "--calculate-per-token-loss ", "--micro-batch-size 2"), IsEmpty());
}

TEST(CompareLayouts, DifferencesBeyondTheLayoutAreRejected) {
  const config::Run one = run_of(1, ""), other = run_of(2, "--tensor-model-parallel-size 2 --seed 4321");
  EXPECT_THAT(differing_settings(one, other), Contains(HasSubstr("--seed (1234 and 4321)")));
  EXPECT_THROW(compare_layouts({one}, {other}, 1), ConfigError);
  EXPECT_THAT(differing_settings(one, run_of(2, kTp2Sp)), IsEmpty());
  const std::string experts =
      "--num-experts 4 --moe-token-dispatcher-type alltoall --moe-shared-expert-intermediate-size 8 "
      "--moe-expert-capacity-factor 1.5 --disable-bias-linear --swiglu ";
  EXPECT_THAT(differing_settings(run_of(1, experts), run_of(1, experts + "--moe-pad-expert-input-to-capacity "
                                                                         "--moe-shared-expert-overlap")),
              IsEmpty());
}

std::vector<std::string> farthest_names(const Comparison& found) {
  std::vector<std::string> names;
  for (const ValueDifference& one : found.largest) names.push_back(one.what);
  return names;
}

// The first loss scale overflows fp16, and there are samples for two steps.
TEST(CompareLayouts, StepsSkippedByTheLossScaleAreRepeated) {
  const std::string fp16 = "--fp16 --initial-loss-scale 4294967296 --train-iters 2 --attention-dropout 0 ";
  const Comparison found = compare_layouts({run_of(1, fp16)}, {run_of(2, fp16 + kTp2Sp)}, 2);
  EXPECT_TRUE(found.agree()) << found.first->what;
  EXPECT_EQ(found.steps, 2);
  EXPECT_GT(found.skipped, 4);
  EXPECT_THAT(farthest_names(found), Contains(HasSubstr("gradient of")));
  const auto corrupt = [](const job::BuildContext& context) {
    if (context.ranks.rank() != 1) return job::build_model(context);
    return with_modified_gradient(context, [](const at::Tensor& grad) { return grad * 2; });
  };
  EXPECT_FALSE(compare_layouts({run_of(1, fp16)}, {run_of(2, fp16 + kTp2Sp), corrupt}, 1).agree());
}

TEST(CompareLayouts, EqualLossesAloneAreNotAgreement) {
  const std::string fp16 = "--fp16 --loss-scale 1e30 --no-check-for-nan-in-loss-and-grad ";
  const Comparison found = compare_layouts({run_of(1, fp16)}, {run_of(2, fp16 + kTp2Sp)}, 2);
  EXPECT_FALSE(found.first) << found.first->what;
  EXPECT_EQ(found.steps, 0);
  EXPECT_EQ(found.skipped, 2);
  EXPECT_FALSE(found.agree());
  EXPECT_THAT(farthest_names(found), ElementsAre("lm_loss"));
}

TEST(CompareLayouts, ScaleThatNeverFitsIsGivenUp) {
  const std::string fp16 = "--fp16 --initial-loss-scale 1e30 --min-loss-scale 1e30 ";
  const Comparison found = compare_layouts({run_of(1, fp16)}, {run_of(1, fp16)}, 2);
  EXPECT_EQ(found.steps, 0);
  EXPECT_EQ(found.skipped, 102);
  EXPECT_FALSE(found.agree());
}

// Covers losses, a clipped norm, moments and weights of three steps.
TEST(CompareLayouts, DeterministicModeIsBitwiseEqual) {
  for (const char* type : {"", "--bf16 ", "--fp16 --initial-loss-scale 1024 "}) {
    SCOPED_TRACE(type);
    const std::string model =
        std::string(type) + "--untie-embeddings-and-output-weights --clip-grad 0.01 --deterministic-mode ";
    for (const auto& [world, cut] : {std::pair{2, "--use-distributed-optimizer"},
                                     {4, "--use-megatron-fsdp --pipeline-model-parallel-size 2"},
                                     {8, "--overlap-grad-reduce"}}) {
      SCOPED_TRACE(cut);
      const Comparison found = compare_layouts({run_of(1, model)}, {run_of(world, model + cut)}, 3);
      for (const ValueDifference& value : found.largest) EXPECT_EQ(value.distance, 0) << value.what;
    }
  }
}

}  // namespace
}  // namespace colonnade::train
