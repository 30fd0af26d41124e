// Every op on meta tensors: shapes forward and backward, without memory access.
#include "colonnade/ops/activation.h"
#include "colonnade/ops/attention.h"
#include "colonnade/ops/embedding.h"
#include "colonnade/ops/linear.h"
#include "colonnade/ops/norm.h"
#include "colonnade/ops/optimizer.h"
#include "colonnade/ops/vocab_loss.h"
#include "ops/support.h"

namespace colonnade::ops {
namespace {

using at::Tensor;
constexpr std::int64_t kMetaSequence = 6, kMetaBatch = 2, kMetaHeads = 4, kG = 2, kD = 8,
                       kH = kMetaHeads * kD;

Tensor meta(at::IntArrayRef shape, at::ScalarType type = at::kBFloat16) {
  return at::empty(shape, at::dtype(type).device(at::kMeta));
}
Tensor input(at::IntArrayRef shape) { return meta(shape).set_requires_grad(true); }

void expect_backward(const Tensor& y, const Tensor& x, at::IntArrayRef shape) {
  EXPECT_TRUE(y.is_meta());
  EXPECT_EQ(y.sizes(), shape);
  const Tensor grad = torch::autograd::grad({y}, {x}, {at::empty_like(y)}, true)[0];
  EXPECT_TRUE(grad.is_meta());
  EXPECT_EQ(grad.sizes(), x.sizes());
}

TEST(Meta, NormsAndActivations) {
  const auto weight = test::parameter(meta({kH}));
  const auto bias = test::parameter(meta({kH}));
  const Tensor x = input({kMetaSequence, kMetaBatch, kH});
  expect_backward(rms_norm(x, *weight, 1e-5, false), x, {kMetaSequence, kMetaBatch, kH});
  expect_backward(rms_norm(x, 1e-5), x, {kMetaSequence, kMetaBatch, kH});
  expect_backward(layer_norm(x, *weight, bias.get(), 1e-5, true), x, {kMetaSequence, kMetaBatch, kH});
  const AddNormOutput added = add_layer_norm(x, x, *weight, bias.get(), 1e-5, true);
  expect_backward(added.normed, x, {kMetaSequence, kMetaBatch, kH});
  expect_backward(added.sum, x, {kMetaSequence, kMetaBatch, kH});
  expect_backward(add_rms_norm(x, x, *weight, 1e-5, true).normed, x, {kMetaSequence, kMetaBatch, kH});
  expect_backward(activate(x, bias.get(), config::Activation::kGeluErf), x, {kMetaSequence, kMetaBatch, kH});
  expect_backward(activate(x, config::Activation::kSwiglu), x, {kMetaSequence, kMetaBatch, kH / 2});
}

TEST(Meta, Matmuls) {
  const Tensor x = meta({kMetaSequence, kH}), w = meta({kD, kH}), bias = meta({kD});
  EXPECT_EQ(linear_forward(x, w, bias).sizes(), (at::IntArrayRef{kMetaSequence, kD}));
  EXPECT_EQ(linear_input_grad(meta({kMetaSequence, kD}), w).sizes(), x.sizes());
}

TEST(Meta, DropoutAndEmbedding) {
  const auto bias = test::parameter(meta({kH}));
  const Tensor x = input({kMetaSequence, kMetaBatch, kH});
  const DropoutKey key{.key = 1,
                       .samples = meta({kMetaBatch}, at::kLong),
                       .sequence_length = kMetaSequence,
                       .hidden_size = kH};
  expect_backward(dropout(x, 0.1, key), x, {kMetaSequence, kMetaBatch, kH});
  expect_backward(jitter(x, 0.1, key), x, {kMetaSequence, kMetaBatch, kH});
  expect_backward(bias_dropout_add(x, bias.get(), x, 0.1, key), x, {kMetaSequence, kMetaBatch, kH});
  const auto table = test::parameter(meta({100, kH}));
  const Tensor y = embedding(meta({kMetaBatch, kMetaSequence}, at::kLong), *table, 0, 100);
  EXPECT_EQ(y.sizes(), (at::IntArrayRef{kMetaSequence, kMetaBatch, kH}));
  test::gradients(y, meta({kMetaSequence, kMetaBatch, kH}), {table->value});
  EXPECT_TRUE(table->main_grad.is_meta());
}

TEST(Meta, AttentionWithRotary) {
  config::Model model;
  model.kv_channels = kD;
  const RotaryTable table = rotary_table(model, kMetaSequence, at::kMeta);
  EXPECT_TRUE(table.cos.is_meta());
  const Tensor qkv = input({kMetaSequence, kMetaBatch, (kMetaHeads + 2 * kG) * kD});
  const Tensor x = input({kMetaSequence, kMetaBatch, kMetaHeads, kD});
  expect_backward(rotary(x, table), x, {kMetaSequence, kMetaBatch, kMetaHeads, kD});
  AttentionArgs args{.scale = 0.3};
  expect_backward(attention(split_rotary(qkv, kMetaHeads, kG, kD, &table), args), qkv,
                  {kMetaSequence, kMetaBatch, kH});
  args.window = 2;
  expect_backward(attention(split_rotary(qkv, kMetaHeads, kG, kD, &table), args), qkv,
                  {kMetaSequence, kMetaBatch, kH});
  args.dropout = 0.1;
  args.key = {.key = 1,
              .samples = meta({kMetaBatch}, at::kLong),
              .sequence_length = kMetaSequence,
              .hidden_size = kMetaHeads};
  expect_backward(attention(split_rotary(qkv, kMetaHeads, kG, kD, &table), args), qkv,
                  {kMetaSequence, kMetaBatch, kH});

  const Qkv heads{meta({kMetaBatch, kMetaHeads, kMetaSequence, kD}), meta({kMetaBatch, kG, 3, kD}),
                  meta({kMetaBatch, kG, 3, kD})};
  for (const double cap : {0.0, 2.0}) {
    const BlockArgs block_args{.scale = 0.3, .softcap = cap};
    const BlockOutput block = attention_block(heads, block_args, {});
    EXPECT_EQ(block.y.sizes(), heads.q.sizes());
    EXPECT_EQ(block.lse.sizes(), (at::IntArrayRef{kMetaBatch, kMetaHeads, kMetaSequence}));
    merge_block(block, block);
    const Qkv grads = attention_block_backward(heads.q, heads, block, block_args, {});
    EXPECT_EQ(grads.q.sizes(), heads.q.sizes());
    EXPECT_EQ(grads.v.sizes(), heads.v.sizes());
  }
}

TEST(Meta, LossAndOptimizer) {
  Tensor logits = meta({kMetaSequence, 100});
  const Tensor targets = meta({kMetaSequence}, at::kLong);
  const LogitStats stats = logit_stats(logits, targets, 0, 99);
  EXPECT_EQ(stats.max.sizes(), (at::IntArrayRef{kMetaSequence}));
  EXPECT_EQ(stats.target.scalar_type(), at::kFloat);
  logit_gradient(logits, stats, targets, stats.target, 0, 99);
  const Tensor p = meta({kH}, at::kFloat);
  adam_update({{p, p, p, p, Tensor()}}, {});
  sgd_update({{p, p, p, Tensor()}}, {});
  EXPECT_EQ(sum_squares({p}), 0.0);
  EXPECT_EQ(count_zeros({p}), 0);
  EXPECT_FALSE(has_nonfinite(p));
}

}  // namespace
}  // namespace colonnade::ops
