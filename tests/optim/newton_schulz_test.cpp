// Newton-Schulz steps against the singular values of the matrix in float64.
#include "colonnade/optim/newton_schulz.h"

#include <ATen/ops/eye.h>
#include <gmock/gmock.h>

#include "optim/singular_values.h"
#include "support/split.h"

namespace colonnade::optim {
namespace {

using at::Tensor;
using config::MuonCoefficients;
using toys::by_singular_values;

TEST(NewtonSchulz, ChangesTheSingularValuesOnly) {
  const std::pair<MuonCoefficients, int> kCases[] = {
      {MuonCoefficients::kSimple, 7}, {MuonCoefficients::kQuintic, 5}, {MuonCoefficients::kPolarExpress, 9},
      {MuonCoefficients::kCans, 6},   {MuonCoefficients::kAol, 5},     {MuonCoefficients::kDeepSeekV4, 11},
      {MuonCoefficients::kCubic5, 5}};
  for (const auto& [coefficients, steps] : kCases)
    for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{6, 9}, {9, 6}, {5, 5}, {1, 7}}) {
      const Tensor matrix = test::named_random("matrix", shape) * 1e-3;
      const Tensor expected = by_singular_values(matrix, coefficients, steps);
      EXPECT_LT(test::distance(newton_schulz(matrix, coefficients, steps, false), expected), 1e-10)
          << static_cast<int>(coefficients) << " " << shape[0] << " x " << shape[1];
    }
}

TEST(NewtonSchulz, InBf16StaysClose) {
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{6, 9}, {9, 6}, {1, 7}}) {
    const Tensor matrix = test::named_random("matrix", shape);
    const Tensor exact = newton_schulz(matrix, MuonCoefficients::kQuintic, 5, false);
    const Tensor rounded = newton_schulz(matrix, MuonCoefficients::kQuintic, 5, true);
    EXPECT_EQ(rounded.scalar_type(), at::kDouble);
    const double error = (rounded - exact).norm().item<double>() / exact.norm().item<double>();
    EXPECT_LT(error, 0.05) << shape[0] << " x " << shape[1];
    EXPECT_GT(error, 1e-5);
  }
}

TEST(NewtonSchulz, StepsThatConvergeOrthogonalize) {
  for (const MuonCoefficients coefficients :
       {MuonCoefficients::kPolarExpress, MuonCoefficients::kDeepSeekV4}) {
    const Tensor q = newton_schulz(test::named_random("matrix", {6, 9}), coefficients, 20, false);
    EXPECT_LT(test::distance(at::matmul(q, q.t()), at::eye(6, at::kDouble)), 1e-2)
        << static_cast<int>(coefficients);
  }
}

}  // namespace
}  // namespace colonnade::optim
