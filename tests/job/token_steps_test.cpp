// The stream returns micro-batches in order; the loss counts the tokens of the mask.
#include "colonnade/job/token_steps.h"
#include "colonnade/data/samples/gpt/gpt_batches.h"

#include "colonnade/base/error.h"
#include "job/runs.h"

namespace colonnade::job {
namespace {

using tensor::Field;
using test::operator+;

TEST(TokenStream, ReturnsMicroBatchesInOrderOnly) {
  const config::Run run = test::settings(
      1,
      test::words("--num-layers 1 --hidden-size 16 --num-attention-heads 2 --vocab-size 37 --seq-length 8 "
                  "--max-position-embeddings 8 --micro-batch-size 1 --global-batch-size 4 --eval-iters 0"));
  test::on_jobs(run, [&](Job& job) {
    const auto data = data::open_gpt_batches(run.data, run.training, {.vocab_size = 37, .eod = 36});
    TokenStream stream(*data[0], job, 4);
    for (int step = 1; step < 3; ++step) {
      const auto steps = stream.next();
      for (int m = 0; m < 2; ++m)
        EXPECT_EQ(steps.batch(m).at(Field::kSamples).item<std::int64_t>(), 4 * step + m) << step;
      EXPECT_THROW((void)steps.batch(0), Error);
      EXPECT_THROW((void)steps.batch(3), Error);
      for (int m = 2; m < 4; ++m) (void)steps.batch(m);
    }
  });
}

TEST(GptLoss, IsTheMeanOrTheSumOverTheTokensOfTheMask) {
  const at::Tensor losses = at::tensor({1.0, 2.0, 3.0, 4.0}).view({2, 2});
  const tensor::Batch batch({{Field::kLossMask, at::tensor({1.0, 0.0, 1.0, 1.0}).view({2, 2})}});
  const auto mean = token_loss(losses, batch, /*per_token=*/false);
  EXPECT_NEAR(mean.value.item<double>(), 8.0 / 3, 1e-6);
  EXPECT_TRUE(at::equal(mean.report.at("lm_loss"), at::tensor({8.0, 3.0}, at::kDouble)));
  const auto sum = token_loss(losses, batch, /*per_token=*/true);
  EXPECT_EQ(sum.value.item<double>(), 8);
  EXPECT_TRUE(at::equal(sum.report.at("lm_loss"), at::tensor({8.0, 3.0}, at::kDouble)));
  const tensor::Batch nothing({{Field::kLossMask, at::zeros({2, 2})}});
  EXPECT_EQ(token_loss(losses, nothing, false).value.item<double>(), 0) << "no token has a loss";
}

// Two samples of two tokens; Megatron's pretrain_bert.py adds the mean over samples to that over tokens.
TEST(BertLoss, AddsTheMeansOverTokensAndSamples) {
  const at::Tensor losses = at::tensor({1.0, 2.0, 0.5, 3.0, 4.0, 0.75}).view({2, 3}).set_requires_grad(true);
  const tensor::Batch batch({{Field::kLossMask, at::tensor({1.0, 0.0, 1.0, 1.0}).view({2, 2})}});
  const auto loss = token_loss(losses, batch, /*per_token=*/false);
  EXPECT_NEAR(loss.value.item<double>(), (1 + 3 + 4) / 3.0 + (0.5 + 0.75) / 2, 1e-6);
  EXPECT_TRUE(at::equal(loss.report.at("lm_loss"), at::tensor({8.0, 3.0}, at::kDouble)));
  EXPECT_TRUE(at::equal(loss.report.at("sop_loss"), at::tensor({1.25, 2.0}, at::kDouble)));
  loss.value.backward();
  const at::Tensor shares = at::tensor({1 / 3.0, 0.0, 1 / 2.0, 1 / 3.0, 1 / 3.0, 1 / 2.0}).view({2, 3});
  EXPECT_TRUE(at::allclose(losses.grad(), shares.to(losses.dtype())));
  const tensor::Batch nothing({{Field::kLossMask, at::zeros({2, 2})}});
  EXPECT_NEAR(token_loss(losses, nothing, false).value.item<double>(), 0.625, 1e-6) << "no token has a loss";
}

// Rows beyond the samples of an evaluation count in no mean.
TEST(BertLoss, PaddingRowsAreNotCounted) {
  const at::Tensor losses = at::tensor({1.0, 2.0, 0.5, 3.0, 4.0, 0.0}).view({2, 3});
  const tensor::Batch batch({{Field::kLossMask, at::tensor({1.0, 1.0, 0.0, 0.0}).view({2, 2})},
                             {Field::kSwapped, at::tensor({std::int64_t{1}, kNoOrder})}});
  const auto report = token_loss(losses, batch, /*per_token=*/false).report;
  EXPECT_TRUE(at::equal(report.at("lm_loss"), at::tensor({3.0, 2.0}, at::kDouble)));
  EXPECT_TRUE(at::equal(report.at("sop_loss"), at::tensor({0.5, 1.0}, at::kDouble)));
}

// The MTP loss has the weight of the loss tokens, where a mean over the micro-batch has the weight of all its
// tokens.
TEST(GptLoss, MtpHasTheWeightOfTheLossTokens) {
  const at::Tensor ids = at::arange(8).view({1, 8});
  const at::Tensor mask = at::tensor({1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0}, at::kFloat).view({1, 8});
  tensor::Batch batch({{Field::kTokens, ids}, {Field::kLabels, ids}, {Field::kLossMask, mask}});
  put_mtp_per_token(batch, 2);
  for (const auto& [k, counted] : {std::pair{1, 5.0}, std::pair{2, 5.0}}) {
    const at::Tensor own = batch.at({Field::kLossMask, k});
    EXPECT_EQ(own.sum().item<double>(), counted);
    const double all_tokens = 8, weight = own.sum().item<double>() /
                                          batch.at({Field::kLossCount, k}).item<double>() * all_tokens;
    EXPECT_NEAR(weight, mask.sum().item<double>(), 1e-6);
  }
}

}  // namespace
}  // namespace colonnade::job
