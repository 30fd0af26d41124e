// Activations against LibTorch's in float64, with and without bias.
#include "colonnade/ops/activation.h"

#include "colonnade/base/error.h"
#include "ops/support.h"

namespace colonnade::ops {
namespace {

using at::Tensor;
using config::Activation;
using test::distance;

constexpr double kBound = 1.25, kOffset = 0.5;

Tensor reference_activation(const Tensor& z, Activation kind) {
  if (kind == Activation::kQuickGeglu) {
    const Tensor pairs = z.unflatten(-1, {-1, 2});
    const Tensor gate = pairs.select(-1, 0).clamp_max(kBound);
    return gate * (gate * 1.702).sigmoid() * (pairs.select(-1, 1).clamp(-kBound, kBound) + kOffset);
  }
  const bool gated =
      kind == Activation::kSwiglu || kind == Activation::kGeglu || kind == Activation::kGegluTanh;
  const Tensor gate = gated ? z.chunk(2, -1)[0] : z;
  Tensor y;
  switch (kind) {
    case Activation::kGeluErf:
    case Activation::kGeglu:
      y = at::gelu(gate);
      break;
    case Activation::kGeluTanh:
    case Activation::kGegluTanh:
      y = at::gelu(gate, "tanh");
      break;
    case Activation::kSquaredRelu:
      y = at::relu(gate).square();
      break;
    case Activation::kRelu:
      y = at::relu(gate);
      break;
    case Activation::kSwiglu:
      y = at::silu(gate);
      break;
    default:
      break;
  }
  return gated ? y * z.chunk(2, -1)[1] : y;
}

constexpr Activation kAll[] = {Activation::kGeluErf,    Activation::kGeluTanh, Activation::kSquaredRelu,
                               Activation::kSwiglu,     Activation::kGeglu,    Activation::kGegluTanh,
                               Activation::kQuickGeglu, Activation::kRelu};

ActivationKind with_bounds(Activation activation) {
  ActivationKind kind = activation;
  kind.bound = kBound;
  kind.offset = kOffset;
  return kind;
}

TEST(Activate, EqualsLibTorchWithAndWithoutBias) {
  at::manual_seed(1);
  for (const auto type : test::kTypes)
    for (const Activation kind : kAll)
      for (const bool with_bias : {false, true}) {
        SCOPED_TRACE(
            fmt::format("{} kind {} bias {}", c10::toString(type), static_cast<int>(kind), with_bias));
        const Tensor x = (test::random({37, 2, 74}, type) * 2).set_requires_grad(true);
        const auto bias = test::parameter(test::random({74}, type));
        const Tensor x_ref = x.detach().to(at::kDouble).set_requires_grad(true);
        const Tensor bias_ref = bias->value.detach().to(at::kDouble).set_requires_grad(true);
        const Tensor ref = reference_activation(with_bias ? x_ref + bias_ref : x_ref, kind);
        const Tensor probe = test::random(ref.sizes());
        const auto expected = test::gradients(ref, probe, {x_ref, bias_ref});

        const Tensor y = activate(x, with_bias ? bias.get() : nullptr, with_bounds(kind));
        (y.to(at::kDouble) * probe).sum().backward();
        EXPECT_LT(distance(y, ref), test::tolerance(type));
        EXPECT_LT(distance(x.grad(), expected[0]), test::tolerance(type));
        if (with_bias)
          EXPECT_LT(distance(bias->main_grad, expected[1]), test::tolerance(type));
        else
          EXPECT_FALSE(bias->has_grad());
      }
}

TEST(Activate, DoesNotClampByDefault) {
  const Tensor x = test::random({3, 6}, at::kDouble) * 100;
  const Tensor gate = x.unflatten(-1, {3, 2}).select(-1, 0), up = x.unflatten(-1, {3, 2}).select(-1, 1);
  EXPECT_LT(distance(activate(x, Activation::kQuickGeglu), gate * (gate * 1.702).sigmoid() * up), 1e-12);
}

TEST(Activate, RejectsAnOddGatedInput) {
  EXPECT_THROW(activate(test::random({2, 7}), Activation::kSwiglu), Error);
}

}  // namespace
}  // namespace colonnade::ops
