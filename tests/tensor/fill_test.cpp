// Initial values do not depend on the layout.
#include "colonnade/tensor/fill.h"

#include <gtest/gtest.h>

#include "colonnade/tensor/parameter.h"

namespace colonnade::tensor {
namespace {

at::Tensor filled(const layout::ParamSpec& spec, int coord, int size) {
  Parameter parameter(spec, layout::Position::on(layout::Axis::kTp, coord, size), at::kFloat);
  parameter.initialize(1234);
  return parameter.value.detach();
}

layout::ParamSpec cut(int dim, std::vector<layout::Piece> pieces) {
  layout::ParamSpec spec;
  spec.name = "decoder.layers.0.weight";
  spec.shape = {24, 10};
  spec.cuts = {{.dim = dim, .pieces = std::move(pieces)}};
  return spec;
}

TEST(Fill, RowsAndColumnsOfACutMatrixAreThoseOfTheWhole) {
  const auto rows = cut(0, {{"", 24}});
  const auto columns = cut(1, {{"", 10}});
  const auto full = filled(rows, 0, 1);
  EXPECT_NEAR(full.std().item<double>(), 0.02, 0.003);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(at::equal(filled(rows, rank, 2), full.narrow(0, rank * 12, 12)));
    EXPECT_TRUE(at::equal(filled(columns, rank, 2), full.narrow(1, rank * 5, 5)));
  }
}

TEST(Fill, PiecesAreCutEachForItself) {
  const auto fused = cut(0, {{"q", 16, 4}, {"k", 4, 4}, {"v", 4, 4}});
  const auto full = filled(fused, 0, 1);
  const auto second = filled(fused, 1, 2);  // k and v have one head each: both ranks hold it
  EXPECT_TRUE(at::equal(second.narrow(0, 0, 8), full.narrow(0, 8, 8)));
  EXPECT_TRUE(at::equal(second.narrow(0, 8, 8), full.narrow(0, 16, 8)));
}

TEST(Fill, FillingRowsAreZero) {
  auto vocabulary = cut(0, {{"", 24, 1, 32}});
  const auto last = filled(vocabulary, 1, 2);
  EXPECT_EQ(last.size(0), 16);
  EXPECT_TRUE(at::equal(last.narrow(0, 0, 8), filled(vocabulary, 0, 1).narrow(0, 16, 8)));
  EXPECT_EQ(last.narrow(0, 8, 8).abs().sum().item<float>(), 0.0F);
}

}  // namespace
}  // namespace colonnade::tensor
