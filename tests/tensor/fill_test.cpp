// Initial values do not depend on the layout.
#include "colonnade/tensor/fill.h"

#include <gtest/gtest.h>

#include "colonnade/tensor/parameter.h"

namespace colonnade::tensor {
namespace {

at::Tensor initialized(const layout::ParamSpec& spec, int coord, int size) {
  Parameter parameter(spec, layout::Position::on(layout::Axis::kTp, coord, size), at::kFloat);
  parameter.initialize(1234);
  return parameter.value.detach();
}

layout::ParamSpec sharded_spec(int dim, std::vector<layout::DimSegment> pieces) {
  layout::ParamSpec spec;
  spec.name = "decoder.layers.0.weight";
  spec.shape = {24, 10};
  spec.sharded_dims = {{.dim = dim, .segments = std::move(pieces)}};
  return spec;
}

TEST(FillInitial, ShardsEqualSlicesOfTheFullMatrix) {
  const auto rows = sharded_spec(0, {{"", 24}});
  const auto columns = sharded_spec(1, {{"", 10}});
  const auto full = initialized(rows, 0, 1);
  EXPECT_NEAR(full.std().item<double>(), 0.02, 0.003);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(at::equal(initialized(rows, rank, 2), full.narrow(0, rank * 12, 12)));
    EXPECT_TRUE(at::equal(initialized(columns, rank, 2), full.narrow(1, rank * 5, 5)));
  }
}

// Mean 0 and variance bound^2 / 3 of a uniform distribution.
TEST(FillInitial, UniformValuesAreWithinTheirBound) {
  auto rows = sharded_spec(0, {{"", 24}}), large = rows;
  rows.init = large.init = {.kind = layout::InitKind::kUniform, .std = 0.3};
  large.shape = {24, 4000};
  const auto values = initialized(large, 0, 1);
  EXPECT_LT(values.abs().max().item<double>(), 0.3 + 1e-7);
  EXPECT_GT(values.abs().max().item<double>(), 0.299);
  EXPECT_NEAR(values.mean().item<double>(), 0, 0.003);
  EXPECT_NEAR(values.var().item<double>(), 0.03, 3e-4);
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_TRUE(at::equal(initialized(rows, rank, 2), initialized(rows, 0, 1).narrow(0, rank * 12, 12)));
}

TEST(FillInitial, FusedPiecesAreShardedSeparately) {
  const auto fused = sharded_spec(0, {{"q", 16, 4}, {"k", 4, 4}, {"v", 4, 4}});
  const auto full = initialized(fused, 0, 1);
  const auto second = initialized(fused, 1, 2);  // k and v have one head each, replicated on both ranks
  EXPECT_TRUE(at::equal(second.narrow(0, 0, 8), full.narrow(0, 8, 8)));
  EXPECT_TRUE(at::equal(second.narrow(0, 8, 8), full.narrow(0, 16, 8)));
}

TEST(FillInitial, PaddingRowsAreZero) {
  auto vocabulary = sharded_spec(0, {{"", 24, 1, 32}});
  const auto last = initialized(vocabulary, 1, 2);
  EXPECT_EQ(last.size(0), 16);
  EXPECT_TRUE(at::equal(last.narrow(0, 0, 8), initialized(vocabulary, 0, 1).narrow(0, 16, 8)));
  EXPECT_EQ(last.narrow(0, 8, 8).abs().sum().item<float>(), 0.0F);
}

}  // namespace
}  // namespace colonnade::tensor
