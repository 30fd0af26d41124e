// LibTorch's dtypes of the dtypes in settings.
#include "colonnade/tensor/dtypes.h"

#include <gtest/gtest.h>

namespace colonnade::tensor {
namespace {

using config::Dtype;

TEST(Dtypes, HaveTheirBytesInLibTorch) {
  for (const Dtype dtype : {Dtype::kFloat64, Dtype::kFloat32, Dtype::kBfloat16, Dtype::kFloat16})
    EXPECT_EQ(static_cast<std::int64_t>(c10::elementSize(scalar_type(dtype))), config::bytes(dtype))
        << config::name(dtype);
  EXPECT_EQ(scalar_type(Dtype::kBfloat16), at::kBFloat16);
  EXPECT_EQ(scalar_type(Dtype::kFloat16), at::kHalf);
}

TEST(Dtypes, OptionsHaveDtypeAndDevice) {
  const at::TensorOptions meta = options(Dtype::kFloat16, at::kMeta);
  EXPECT_EQ(meta.dtype().toScalarType(), at::kHalf);
  EXPECT_EQ(meta.device(), at::Device(at::kMeta));
}

TEST(Dtypes, AccumulateInFp32OrFloat64) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf})
    EXPECT_EQ(acc_type(type), at::kFloat);
  EXPECT_EQ(acc_type(at::kDouble), at::kDouble);
}

}  // namespace
}  // namespace colonnade::tensor
