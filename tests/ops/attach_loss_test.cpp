// An attached loss contributes its gradient as if added to the output.
#include "colonnade/ops/attach_loss.h"

#include "ops/support.h"

namespace colonnade::ops {
namespace {

using at::Tensor;

TEST(AttachLoss, HasTheGradientOfTheWeightedSum) {
  const Tensor x = test::random({4, 3}).set_requires_grad(true);
  const Tensor y = attach_loss(x * 2, (x * x).sum(), 0.25);
  EXPECT_TRUE(at::equal(y, x * 2));
  const Tensor probe = test::random({4, 3});
  const Tensor got = test::gradients(y, probe, {x})[0];
  EXPECT_LT(test::distance(got, 2 * probe + 0.25 * 2 * x.detach()), 1e-14);
}

}  // namespace
}  // namespace colonnade::ops
