// The output gate against its formula in float64.
#include "colonnade/ops/output_gate.h"

#include "colonnade/base/error.h"
#include "ops/support.h"

namespace colonnade::ops {
namespace {

using at::Tensor;
using test::distance;

TEST(OutputGate, EqualsTheFormulaInEveryDtype) {
  at::manual_seed(1);
  for (const auto type : test::kTypes) {
    const Tensor x = test::random({5, 2, 24}, type).set_requires_grad(true);
    const Tensor gate = (test::random({5, 2, 24}, type) * 4).set_requires_grad(true);
    const Tensor probe = test::random({5, 2, 24});
    const Tensor x_ref = x.detach().to(at::kDouble).set_requires_grad(true);
    const Tensor gate_ref = gate.detach().to(at::kDouble).set_requires_grad(true);
    const Tensor ref = x_ref * gate_ref.sigmoid();
    const auto expected = torch::autograd::grad({(ref * probe).sum()}, {x_ref, gate_ref});
    const Tensor y = output_gate(x, gate);
    const auto grads = torch::autograd::grad({(y.to(at::kDouble) * probe).sum()}, {x, gate});
    SCOPED_TRACE(c10::toString(type));
    EXPECT_EQ(y.scalar_type(), type);
    EXPECT_LT(distance(y, ref), test::tolerance(type));
    EXPECT_LT(distance(grads[0], expected[0]), test::tolerance(type));
    EXPECT_LT(distance(grads[1], expected[1]), test::tolerance(type));
  }
}

TEST(OutputGate, RejectsOtherShapesAndDtypes) {
  EXPECT_THROW(output_gate(test::random({2, 3}), test::random({3, 2})), Error);
  EXPECT_THROW(output_gate(test::random({2, 3}), test::random({2, 3}, at::kFloat)), Error);
}

}  // namespace
}  // namespace colonnade::ops
