// Recomputation gives the same bits as saved activations, runs once, and frees memory in between.
#include "colonnade/layers/recompute.h"

#include "colonnade/ops/attach_loss.h"
#include "colonnade/tensor/counting_allocator.h"
#include "layers/support.h"

namespace colonnade::layers {
namespace {

using at::Tensor;

/// Bytes of tensors on the device under test; CUDA counts in multiples of 512.
std::int64_t live_bytes() {
  tensor::count_cpu_memory();
  return static_cast<std::int64_t>(tensor::memory_use(test::device()).now);
}

TEST(Recompute, GivesOutputAndGradientsOfAllInputs) {
  const auto f = [](const Tensors& x, const tensor::Pass&) { return (x[0].sin() * x[1]).exp(); };
  const auto run = [&](bool recomputed) {
    const tensor::Batch batch;
    const Tensors leaves{test::named_random("a", {5, 3}).requires_grad_(),
                         test::named_random("b", {5, 3}).requires_grad_()};
    const tensor::Pass pass{.batch = batch};
    const Tensor y = recomputed ? recompute(leaves, pass, f) : f(leaves, pass);
    (y * y).sum().backward();
    return std::vector<Tensor>{y.detach(), leaves[0].grad(), leaves[1].grad()};
  };
  const auto kept = run(false), recomputed = run(true);
  for (std::size_t i = 0; i < kept.size(); ++i) EXPECT_TRUE(at::equal(recomputed[i], kept[i])) << i;
}

TEST(Recompute, SavesOnlyInputs) {
  const Tensor x = at::ones({1000}, test::options(at::kFloat)).requires_grad_();
  const tensor::Batch batch;
  const auto before = live_bytes();
  const Tensor y = recompute({x}, {.batch = batch}, [](const Tensors& in, const tensor::Pass&) {
    return in[0].sin().exp().tanh().sum();
  });
  EXPECT_LE(live_bytes() - before, 512);
}

TEST(Recompute, MarksTheRepeatedPassAndKeepsItsBatch) {
  std::vector<bool> recomputed;
  std::vector<double> samples;
  tensor::Report report;
  const Tensor x = at::ones({1}).requires_grad_();
  Tensor y;
  {
    const tensor::Batch batch({{tensor::Field::kSamples, at::full({1}, 7.0)}});
    y = recompute({x}, {.batch = batch, .grad_scale = 0.5, .report = &report},
                  [&](const Tensors& in, const tensor::Pass& pass) {
                    recomputed.push_back(pass.recomputing);
                    EXPECT_EQ(pass.report == nullptr, pass.recomputing);
                    samples.push_back(pass.batch.at(tensor::Field::kSamples).item<double>());
                    return ops::attach_loss(in[0] * 2, (in[0] * 3).sum(), pass.grad_scale);
                  });
  }
  y.backward();
  EXPECT_EQ(recomputed, (std::vector<bool>{false, true}));
  EXPECT_EQ(samples, (std::vector<double>{7, 7}));
  EXPECT_EQ(x.grad().item<double>(), 2 + 3 * 0.5);
}

TEST(Recompute, IsAPlainCallWithoutAGraph) {
  const at::NoGradGuard no_grad;
  const tensor::Batch batch;
  int calls = 0;
  recompute({at::ones({1})}, {.batch = batch}, [&](const Tensors& in, const tensor::Pass&) {
    ++calls;
    return in[0] * 2;
  });
  EXPECT_EQ(calls, 1);
}

TEST(DiscardAndRecompute, FreesOutputsUntilTheirGradient) {
  const Tensor x = test::named_random("x", {128}).requires_grad_();
  const Tensor w = test::named_random("w", {128}).requires_grad_();
  const auto before = live_bytes();
  int calls = 0;
  Tensor z;
  {
    const Tensor discarded = x * 3;  // its rule keeps neither input nor output
    z = discarded * w;
    discard_and_recompute({discarded}, z, [&calls, x = x.detach()] {
      ++calls;
      return Tensors{x * 3};
    });
    EXPECT_EQ(discarded.storage().nbytes(), 0U);
  }
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(live_bytes() - before, static_cast<std::int64_t>(z.nbytes()));
  z.sum().backward();
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(at::equal(w.grad(), x.detach() * 3));
  EXPECT_TRUE(at::equal(x.grad(), w.detach() * 3));
}

TEST(DiscardAndRecompute, RejectsAViewOfOtherStorage) {
  const Tensor x = at::ones({4}).requires_grad_();
  const Tensor half = (x * 2).slice(0, 0, 2);
  EXPECT_THROW(discard_and_recompute({half}, half * 2, [] { return Tensors(); }), Error);
}

}  // namespace
}  // namespace colonnade::layers
