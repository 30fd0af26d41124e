// Dtypes of a run's tensors by role. All code that stores, sends or counts a tensor asks for the dtype of its
// role; dtypes_of() is the only place that derives dtypes from settings.
#pragma once

#include <cstdint>
#include <string_view>

namespace colonnade::config {

struct Run;

enum class Dtype : std::uint8_t {
  kFloat32,
  kBfloat16,
  kFloat16,
  kFloat8,   ///< e4m3; of optimizer states only
  kFloat64,  ///< no setting selects it: tests and layout comparisons compute in it
};

/// The name in settings: "fp32", "bf16", "fp16", "fp8"; "fp64".
std::string_view name(Dtype dtype);

/// Bytes of one element.
constexpr std::int64_t bytes(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat64:
      return 8;
    case Dtype::kFloat32:
      return 4;
    case Dtype::kBfloat16:
    case Dtype::kFloat16:
      break;
    case Dtype::kFloat8:
      return 1;
  }
  return 2;
}

/// Whether an optimizer stores values of this dtype divided by a scale, a power of two per tensor: fp16 and
/// fp8, whose range is narrower than that of fp32.
constexpr bool has_scale(Dtype dtype) { return dtype == Dtype::kFloat16 || dtype == Dtype::kFloat8; }

/// Dtypes of a rank's tensors. Shapes: [n] flat buffers over a rank's n local parameter elements, [n/R] its
/// shard of them with R ranks that share the update; s sequence, b batch, h hidden. Accumulators within
/// kernels and statistics, router logits and states without a gradient are fp32 whatever these say (float64
/// with float64 tensors; tensor::acc_type()).
struct Dtypes {
  /// tensor::Parameter::value, the weights that layers read, and their buffer [n]. --bf16, --fp16.
  Dtype parameter = Dtype::kFloat32;
  /// optim::Segment::main, the values that the optimizer updates, [n/R]. Stored only if it is not
  /// `parameter` or has a scale; otherwise the update writes the parameters. --main-params-dtype.
  Dtype main_parameter = Dtype::kFloat32;
  /// tensor::Parameter::main_grad, sums over micro-batches and ranks, and their buffer [n].
  /// --main-grads-dtype.
  Dtype main_gradient = Dtype::kFloat32;
  /// States of the update rule by name (state()), [n/R] each. --exp-avg-dtype, --exp-avg-sq-dtype.
  Dtype exp_avg = Dtype::kFloat32;
  Dtype exp_avg_sq = Dtype::kFloat32;
  /// Activations within layers, outputs of norms and their gradients. --bf16, --fp16.
  Dtype activation = Dtype::kFloat32;
  /// The residual stream: inputs and outputs of layers [s, b, h], their gradients, and messages between
  /// pipeline stages. --bf16, --fp16; fp32 with --fp32-residual-connection.
  Dtype residual = Dtype::kFloat32;
  /// Gradients [n] as sent to be summed over data-parallel ranks; if it is not `main_gradient`, a rounded
  /// copy is sent. --grad-reduce-in-bf16.
  Dtype gradient_wire = Dtype::kFloat32;
  /// Parameters [n/R] as sent by all-gathers. Megatron's --fp8-param-gather.
  Dtype parameter_wire = Dtype::kFloat32;

  /// Dtype of the optimizer state with this name in checkpoints (config::OptimizerTraits::states).
  [[nodiscard]] constexpr Dtype state(std::string_view name) const {
    return name == "exp_avg_sq" ? exp_avg_sq : exp_avg;
  }
  /// Whether main parameters are stored besides the parameters.
  [[nodiscard]] constexpr bool has_main_copy() const {
    return main_parameter != parameter || has_scale(main_parameter);
  }
  /// Whether gradients are rounded to be sent.
  [[nodiscard]] constexpr bool rounds_gradients() const { return gradient_wire != main_gradient; }
  /// Whether gradients of activations may underflow without a loss scale (optim::LossScale).
  [[nodiscard]] constexpr bool needs_loss_scale() const { return activation == Dtype::kFloat16; }

  /// The same run in float64. A rounded copy of gradients remains rounded: it is part of the algorithm.
  [[nodiscard]] constexpr Dtypes in_float64() const {
    constexpr Dtype kWide = Dtype::kFloat64;
    return {kWide, kWide, kWide, kWide, kWide, kWide, kWide, rounds_gradients() ? gradient_wire : kWide,
            kWide};
  }

  friend bool operator==(const Dtypes&, const Dtypes&) = default;
};

/// Dtypes of a run: parameters, activations and parameter all-gathers in Model::params_dtype; the residual
/// stream in fp32 with --fp32-residual-connection, else in Model::params_dtype; main parameters, main
/// gradients and optimizer states in the dtypes of Optimizer, fp32 by default; gradient reductions in the
/// dtype of main gradients, or in bf16 with --grad-reduce-in-bf16.
Dtypes dtypes_of(const Run& run);

}  // namespace colonnade::config
