// Dtypes of a run's tensors by role, derived from its settings.
#include "colonnade/config/dtypes.h"

#include <gtest/gtest.h>

#include "colonnade/config/run.h"

namespace colonnade::config {
namespace {

Dtypes dtypes_of_params(Dtype dtype, bool grad_reduce_in_bf16 = false) {
  Run run;
  run.model.params_dtype = dtype;
  run.parallel.grad_reduce_in_bf16 = grad_reduce_in_bf16;
  return dtypes_of(run);
}

TEST(Dtypes, HaveNamesAndBytes) {
  EXPECT_EQ(bytes(Dtype::kFloat64), 8);
  EXPECT_EQ(bytes(Dtype::kFloat32), 4);
  EXPECT_EQ(bytes(Dtype::kBfloat16), 2);
  EXPECT_EQ(bytes(Dtype::kFloat16), 2);
  EXPECT_EQ(bytes(Dtype::kFloat8), 1);
  EXPECT_EQ(name(Dtype::kFloat64), "fp64");
  EXPECT_EQ(name(Dtype::kFloat32), "fp32");
  EXPECT_EQ(name(Dtype::kBfloat16), "bf16");
  EXPECT_EQ(name(Dtype::kFloat16), "fp16");
  EXPECT_EQ(name(Dtype::kFloat8), "fp8");
}

TEST(Dtypes, AreAllFp32ByDefault) {
  EXPECT_EQ(dtypes_of_params(Dtype::kFloat32), Dtypes());
  EXPECT_FALSE(Dtypes().has_main_copy());
  EXPECT_FALSE(Dtypes().rounds_gradients());
  EXPECT_FALSE(Dtypes().needs_loss_scale());
}

TEST(Dtypes, Of16BitParametersHaveFp32MainParametersGradientsAndStates) {
  for (const Dtype dtype : {Dtype::kBfloat16, Dtype::kFloat16}) {
    const Dtypes d = dtypes_of_params(dtype);
    EXPECT_EQ(d,
              (Dtypes{.parameter = dtype, .activation = dtype, .residual = dtype, .parameter_wire = dtype}));
    EXPECT_TRUE(d.has_main_copy());
    EXPECT_FALSE(d.rounds_gradients());
    EXPECT_EQ(d.needs_loss_scale(), dtype == Dtype::kFloat16);
  }
}

TEST(Dtypes, Fp32ResidualConnectionChangesTheResidualStreamAlone) {
  Dtypes expected = dtypes_of_params(Dtype::kBfloat16);
  EXPECT_EQ(expected.residual, Dtype::kBfloat16);
  expected.residual = Dtype::kFloat32;
  config::Run run;
  run.model.params_dtype = Dtype::kBfloat16;
  run.model.fp32_residual_connection = true;
  EXPECT_EQ(dtypes_of(run), expected);
}

TEST(Dtypes, GradReduceInBf16ChangesTheWireAlone) {
  Dtypes expected = dtypes_of_params(Dtype::kBfloat16);
  expected.gradient_wire = Dtype::kBfloat16;
  EXPECT_EQ(dtypes_of_params(Dtype::kBfloat16, true), expected);
  EXPECT_TRUE(expected.rounds_gradients());
}

TEST(Dtypes, OfThePrecisionAwareOptimizerAreThoseOfItsSettings) {
  config::Run run;
  run.model.params_dtype = Dtype::kBfloat16;
  run.optimizer.main_grads_dtype = Dtype::kBfloat16;
  run.optimizer.main_params_dtype = Dtype::kFloat16;
  run.optimizer.exp_avg_dtype = Dtype::kFloat8;
  run.optimizer.exp_avg_sq_dtype = Dtype::kBfloat16;
  const Dtypes d = dtypes_of(run);
  EXPECT_EQ(d.main_gradient, Dtype::kBfloat16);
  EXPECT_EQ(d.gradient_wire, Dtype::kBfloat16);
  EXPECT_FALSE(d.rounds_gradients());
  EXPECT_EQ(d.main_parameter, Dtype::kFloat16);
  EXPECT_EQ(d.state("exp_avg"), Dtype::kFloat8);
  EXPECT_EQ(d.state("exp_avg_sq"), Dtype::kBfloat16);
  EXPECT_TRUE(has_scale(d.exp_avg) && has_scale(d.main_parameter) && !has_scale(d.exp_avg_sq));
  EXPECT_TRUE(d.has_main_copy());
  run.model.params_dtype = Dtype::kFloat16;  // the main parameters have a scale, the parameters none
  EXPECT_TRUE(dtypes_of(run).has_main_copy());
  EXPECT_EQ(d.in_float64(), Dtypes().in_float64());
}

TEST(Dtypes, InFloat64KeepOnlyARoundedWire) {
  constexpr Dtype wide = Dtype::kFloat64;
  const Dtypes all{wide, wide, wide, wide, wide, wide, wide, wide, wide};
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kBfloat16, Dtype::kFloat16})
    EXPECT_EQ(dtypes_of_params(dtype).in_float64(), all);
  Dtypes rounded = all;
  rounded.gradient_wire = Dtype::kBfloat16;
  EXPECT_EQ(dtypes_of_params(Dtype::kBfloat16, true).in_float64(), rounded);
  EXPECT_FALSE(rounded.has_main_copy());
  EXPECT_FALSE(dtypes_of_params(Dtype::kFloat16).in_float64().needs_loss_scale());
}

}  // namespace
}  // namespace colonnade::config
