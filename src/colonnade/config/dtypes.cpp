// See dtypes.h.
#include "colonnade/config/dtypes.h"

#include "colonnade/config/run.h"

namespace colonnade::config {

std::string_view name(Dtype dtype) {
  switch (dtype) {
    case Dtype::kBfloat16:
      return "bf16";
    case Dtype::kFloat16:
      return "fp16";
    case Dtype::kFloat8:
      return "fp8";
    case Dtype::kFloat64:
      return "fp64";
    case Dtype::kFloat32:
      break;
  }
  return "fp32";
}

Dtypes dtypes_of(const Run& run) {
  Dtypes dtypes;
  dtypes.parameter = dtypes.activation = dtypes.parameter_wire = run.model.params_dtype;
  dtypes.residual = run.model.fp32_residual_connection ? Dtype::kFloat32 : dtypes.activation;
  const Optimizer& o = run.optimizer;
  dtypes.main_parameter = o.main_params_dtype;
  dtypes.main_gradient = dtypes.gradient_wire = o.main_grads_dtype;
  dtypes.exp_avg = o.exp_avg_dtype;
  dtypes.exp_avg_sq = o.exp_avg_sq_dtype;
  if (run.parallel.grad_reduce_in_bf16) dtypes.gradient_wire = Dtype::kBfloat16;
  return dtypes;
}

}  // namespace colonnade::config
