// Dtypes by role for tests that name one dtype.
#pragma once

#include <ATen/core/Tensor.h>

#include "colonnade/config/run.h"

namespace colonnade::test {

/// float64 in every role.
inline constexpr config::Dtypes kFloat64 = config::Dtypes().in_float64();

/// Roles of a run with parameters of `type`: those of its settings, or float64.
inline config::Dtypes dtypes(at::ScalarType type) {
  if (type == at::kDouble) return kFloat64;
  config::Run run;
  if (type == at::kBFloat16) run.model.params_dtype = config::Dtype::kBfloat16;
  if (type == at::kHalf) run.model.params_dtype = config::Dtype::kFloat16;
  return config::dtypes_of(run);
}

}  // namespace colonnade::test
