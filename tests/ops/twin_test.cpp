// Every CUDA kernel against its CPU counterpart at the sizes of real models. Skipped without a GPU.
#include <functional>

#include "colonnade/ops/activation.h"
#include "colonnade/ops/attention.h"
#include "colonnade/ops/dropout.h"
#include "colonnade/ops/embedding.h"
#include "colonnade/ops/norm.h"
#include "colonnade/ops/optimizer.h"
#include "colonnade/ops/vocab_loss.h"
#include "ops/support.h"

namespace colonnade::ops {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;
using Parameters = std::vector<std::unique_ptr<tensor::Parameter>>;
/// Maps activations and parameters on one device to results.
using Op = std::function<Tensors(const Tensors&, Parameters&)>;

constexpr std::int64_t kSeq = 130, kBatch = 2, kHeads = 12, kDim = 64, kHidden = kHeads * kDim;

/// Runs forward and backward; returns results, input gradients and parameter gradients on the CPU.
Tensors run_op(const at::Device& device, const Tensors& inputs, const Tensors& weights, const Op& op) {
  Tensors x;
  Parameters w;
  for (const Tensor& input : inputs) x.push_back(input.to(device).detach().set_requires_grad(true));
  for (const Tensor& weight : weights) w.push_back(test::parameter(weight.to(device)));
  Tensors all = op(x, w);
  at::manual_seed(7);
  Tensor loss = at::zeros({}, at::dtype(at::kDouble).device(device));
  for (const Tensor& y : all) {
    const Tensor probe = at::randn(y.sizes(), at::dtype(at::kDouble)).to(device);
    loss = loss + (y.to(at::kDouble) * probe).sum();
  }
  loss.backward();
  for (Tensor& y : all) y = y.detach().cpu();
  for (const Tensor& leaf : x) all.push_back(leaf.grad().cpu());
  for (const auto& parameter : w) all.push_back(parameter->main_grad.cpu());
  return all;
}

class GpuTwin : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override {
    if (!test::device().is_cuda()) GTEST_SKIP() << "needs a GPU and COLONNADE_TEST_DEVICE=cuda";
    at::manual_seed(1);
  }
  static Tensor random(at::IntArrayRef shape) { return test::random(shape, GetParam()).cpu(); }

  static void expect_equal(const char* name, const Tensors& inputs, const Tensors& weights, const Op& op) {
    const Tensors cpu = run_op(at::kCPU, inputs, weights, op);
    const Tensors cuda = run_op(test::device(), inputs, weights, op);
    ASSERT_EQ(cpu.size(), cuda.size());
    for (std::size_t i = 0; i < cpu.size(); ++i)
      EXPECT_LT(test::distance(cuda[i], cpu[i]), 2 * test::tolerance(GetParam())) << name << ", tensor " << i;
  }
};

TEST_P(GpuTwin, Norms) {
  const Tensors x{random({kSeq, kBatch, kHidden}), random({kSeq, kBatch, kHidden})};
  const Tensors w{random({kHidden}), random({kHidden})};
  expect_equal("rms", {x[0]}, {w[0]},
               [](const Tensors& x, Parameters& w) { return Tensors{rms_norm(x[0], *w[0], 1e-5, true)}; });
  expect_equal("layer, residual", x, w, [](const Tensors& x, Parameters& w) {
    const AddNormOutput added = add_layer_norm(x[0], x[1], *w[0], w[1].get(), 1e-5, false);
    return Tensors{added.sum, added.normed};
  });
}

TEST_P(GpuTwin, Activations) {
  for (const auto kind :
       {config::Activation::kSwiglu, config::Activation::kGeluTanh, config::Activation::kGeglu})
    expect_equal(
        "activation", {random({kSeq, kBatch, kHidden})}, {random({kHidden})},
        [kind](const Tensors& x, Parameters& w) { return Tensors{activate(x[0], w[0].get(), kind)}; });
}

TEST_P(GpuTwin, Dropout) {
  expect_equal("dropout", {random({kSeq, kBatch, kHidden}), random({kSeq, kBatch, kHidden})},
               {random({kHidden})}, [](const Tensors& x, Parameters& w) {
                 const DropoutKey key{.key = 3,
                                      .samples = at::tensor({5, 1000000007}, at::kLong).to(x[0].device()),
                                      .sequence_length = kSeq,
                                      .hidden_size = kHidden};
                 return Tensors{bias_dropout_add(x[0], w[0].get(), x[1], 0.3, key)};
               });
}

TEST_P(GpuTwin, Jitter) {
  expect_equal("jitter", {random({kSeq, kBatch, kHidden})}, {}, [](const Tensors& x, Parameters&) {
    const DropoutKey key{.key = 3,
                         .samples = at::tensor({5, 1000000007}, at::kLong).to(x[0].device()),
                         .sequence_length = kSeq,
                         .hidden_size = kHidden};
    return Tensors{jitter(x[0], 0.3, key)};
  });
}

TEST_P(GpuTwin, Embedding) {
  const Tensor tokens = at::randint(0, 1000, {kBatch, kSeq}, at::kLong);
  expect_equal("embedding", {}, {random({1000, kHidden})}, [&](const Tensors&, Parameters& w) {
    return Tensors{embedding(tokens.to(w[0]->value.device()), *w[0], 0, 1000)};
  });
}

TEST_P(GpuTwin, RotaryAndAttention) {
  config::Model model;
  model.kv_channels = kDim;
  for (const std::int64_t groups : {kHeads, kHeads / 4})
    expect_equal("attention", {random({kSeq, kBatch, (kHeads + 2 * groups) * kDim})}, {},
                 [&](const Tensors& x, Parameters&) {
                   const RotaryTable table = rotary_table(model, kSeq, x[0].device());
                   const Qkv qkv = split_rotary(x[0], kHeads, groups, kDim, &table);
                   return Tensors{attention(qkv, {.scale = 0.125})};
                 });
}

TEST_P(GpuTwin, VocabularyLoss) {
  constexpr std::int64_t kRows = 200, kVocab = 50257;
  const Tensor logits = random({kRows, kVocab});
  const Tensor targets = at::randint(0, kVocab, {kRows}, at::kLong);
  const auto run = [&](const at::Device& device, double cap) {
    Tensor local = logits.to(device, GetParam(), false, true);
    const Tensor local_targets = targets.to(device);
    const LogitStats stats = logit_stats(local, local_targets, 0, kVocab - 7, cap);
    const Tensor grad = at::ones({kRows}, stats.max.options());
    logit_gradient(local, stats, local_targets, grad, 0, kVocab - 7, cap);
    return Tensors{stats.max, stats.sum_exp, stats.target, local};
  };
  for (const double cap : {0.0, 2.0}) {
    const Tensors cpu = run(at::kCPU, cap), cuda = run(test::device(), cap);
    for (std::size_t i = 0; i < cpu.size(); ++i)
      EXPECT_LT(test::distance(cuda[i], cpu[i]), 2 * test::tolerance(GetParam())) << i << " cap " << cap;
  }
}

TEST_P(GpuTwin, OptimizersAndSums) {
  if (GetParam() != at::kFloat && GetParam() != at::kDouble)
    GTEST_SKIP() << "main parameters are fp32 or fp64";
  constexpr std::int64_t kSize = 1'000'003;
  const Tensors initial{random({kSize}), random({kSize}), random({kSize}), random({kSize}).abs()};
  const auto run = [&](const at::Device& device) {
    Tensors t;
    for (const Tensor& x : initial) t.push_back(x.to(device, GetParam(), false, true));
    adam_update({{t[0], t[1], t[2], t[3], {}}},
                {.lr = 0.1, .weight_decay = 0.1, .bias1 = 0.1, .bias2 = 0.05});
    sgd_update({{t[1], t[0], t[2], {}}}, {.lr = 0.1, .momentum = 0.9, .first = false});
    return t;
  };
  const Tensors cpu = run(at::kCPU), cuda = run(test::device());
  for (std::size_t i = 0; i < cpu.size(); ++i)
    EXPECT_LT(test::distance(cuda[i], cpu[i]), test::tolerance(GetParam())) << i;
  EXPECT_NEAR(sum_squares({cuda[0]}) / sum_squares({cpu[0]}), 1.0, 1e-6);
  EXPECT_EQ(count_zeros({initial[0].to(test::device())}), count_zeros({initial[0]}));
}

INSTANTIATE_TEST_SUITE_P(Types, GpuTwin, testing::ValuesIn(test::kTypes),
                         [](const auto& info) { return std::string(c10::toString(info.param)); });

}  // namespace
}  // namespace colonnade::ops
