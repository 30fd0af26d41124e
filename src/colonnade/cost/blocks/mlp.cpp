// See mlp.h.
#include "colonnade/cost/blocks/mlp.h"

namespace colonnade::cost {

std::int64_t mlp_bytes(const Sizes& z, std::int64_t ffn) { return z.n * z.e * (z.fc1_per_ffn + 1) * ffn; }

void mlp_backward(LayerTracker& tracker, const Sizes& z, std::int64_t ffn, std::int64_t output_gradient) {
  const std::int64_t fc1 = z.fc1_per_ffn * ffn, up = z.n * z.e * fc1, down = z.n * z.e * ffn;
  tracker.row_parallel(down, weight_gradient_bytes(z, ffn * z.m.hidden_size));
  tracker.release(output_gradient);
  tracker.transient(up);
  tracker.release(down);  // the gradient of the activation's input replaces the input
  tracker.column_parallel(up, weight_gradient_bytes(z, fc1 * z.m.hidden_size));
}

void add_mlp(BlockCompute& compute, const RealSizes& z, const char* fc1, const char* fc2, std::int64_t ffn) {
  const double columns = RealSizes::real(ffn), fc1_columns = z.fc1_per_ffn * columns;
  compute.add_elementwise(z.n * z.e * (fc1_columns + columns), z.n * z.e * (2 * fc1_columns + columns), 1, 1);
  compute.matmuls.push_back({fc1, z.n, fc1_columns, z.h, LinearSharding::kColumns, z.full_hidden});
  compute.matmuls.push_back({fc2, z.n, z.h, columns, LinearSharding::kRows, z.full_hidden});
}

double mlp_column_flops(const config::Model& m) {
  return 2 * static_cast<double>(m.hidden_size) * (m.is_gated() ? 3 : 2);
}

double mlp_parameters(const config::Model& m) {
  return 2 * static_cast<double>(m.hidden_size) * static_cast<double>(m.ffn_hidden_size) *
         (m.is_gated() ? 1.5 : 1);
}

MlpCost::MlpCost(const Sizes& z) : MixerCost(z), ffn_(z.m.ffn_hidden_size / z.tp) {}

std::int64_t MlpCost::saved() const {
  const std::int64_t bytes = mlp_bytes(z_, ffn_);
  return bytes - z_.recomputed("mlp", bytes);
}

void MlpCost::backward(LayerTracker& tracker) const {
  tracker.enter_mixer();
  if (z_.recomputes("mlp")) {
    tracker.allocate(mlp_bytes(z_, ffn_));
    tracker.transient(output_workspace());
  }
  mlp_backward(tracker, z_, ffn_);
  tracker.release_output_gradient(true);
  tracker.leave_mixer(true);
}

std::int64_t MlpCost::wgrad_saved() const { return 2 * z_.full_hidden() + mlp_bytes(z_, ffn_); }

std::int64_t MlpCost::largest_weight_gradient() const {
  return weight_gradient_bytes(z_, z_.fc1_per_ffn * ffn_ * z_.m.hidden_size);
}

std::int64_t MlpCost::evaluation() const {
  return 2 * z_.stream + z_.hidden + z_.full_hidden() + mlp_bytes(z_, ffn_);
}

BlockCompute MlpCost::compute(AttentionKernel /*kernel*/) const {
  BlockCompute compute;
  add_mlp(compute, RealSizes(z_), "fc1", "fc2", ffn_);
  return compute;
}

void MlpCost::add_recomputed(AttentionKernel kernel, std::vector<BlockCompute>& parts) const {
  if (z_.recomputes("mlp")) parts.push_back(compute(kernel));
}

double MlpCost::parameters() const { return mlp_parameters(z_.m); }

ForwardFlops MlpCost::flops() const {
  const auto tokens = static_cast<double>(z_.seq_length);
  return {.linears = tokens * (mlp_column_flops(z_.m) * static_cast<double>(z_.m.ffn_hidden_size))};
}

ForwardFlops MlpCost::recomputed_flops() const { return z_.recomputes("mlp") ? flops() : ForwardFlops(); }

}  // namespace colonnade::cost
