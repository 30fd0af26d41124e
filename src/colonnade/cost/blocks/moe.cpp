// See moe.h.
#include "colonnade/cost/blocks/moe.h"

#include <algorithm>
#include <cmath>

#include "colonnade/cost/blocks/mlp.h"
#include "colonnade/layout/expert_capacity.h"

namespace colonnade::cost {

MoeCost::MoeCost(const Sizes& z)
    : MixerCost(z),
      moe_(z.m.moe),
      ep_(z.run.parallel.expert_model_parallel_size),
      etp_(z.run.parallel.expert_tensor_size()),
      ranks_(ep_ * etp_),
      topk_(moe_.router_topk),
      gathers_(moe_.token_dispatcher_type == config::TokenDispatcher::kAllGather),
      projects_(moe_.routed_size > 0),
      width_(z.m.expert_width()),
      routed_(z.r * width_ * z.e),
      imbalance_(layout::assumed_share(moe_, 0, static_cast<int>(ep_))),
      sent_rows_(layout::expert_rows(moe_, z.r) * etp_),
      expert_rows_(std::llround(static_cast<double>(sent_rows_) * imbalance_)),
      combined_rows_(gathers_ ? expert_rows_ : sent_rows_),
      ffn_(moe_.ffn_hidden_size / etp_),
      shared_ffn_(moe_.shared_expert_intermediate_size / z.tp),
      row_bytes_(expert_rows_ * width_ * z.e),
      fc2_input_(expert_rows_ * z.e * ffn_),
      fc1_output_(z.fc1_per_ffn * fc2_input_),
      combined_bytes_(combined_rows_ * width_ * z.e) {}

// Memory.

/// Router outputs, permutation indices and combine weights.
std::int64_t MoeCost::routing_saved() const {
  const std::int64_t pairs = z_.r * topk_;
  const std::int64_t router = z_.r * moe_.num_experts * kFp32 + pairs * kInt64;
  const std::int64_t z_loss = moe_.z_loss_coeff > 0 ? z_.r * kFp32 * (moe_.num_experts + 2) : 0;
  if (ranks_ > 1 && gathers_)
    return router + z_loss + 2 * expert_rows_ * kInt64 + ranks_ * pairs * (kInt64 + kFp32) +
           moe_.num_experts / ep_ * kInt64;
  const std::int64_t exchange = ranks_ > 1 ? 2 * expert_rows_ * kInt64 : 0;
  return router + z_loss + exchange + 2 * sent_rows_ * kInt64 + pairs * etp_ * (kInt64 + kFp32) +
         moe_.num_experts * etp_ * kInt64;
}

/// The shared-expert gate in fp32 and in the activations' dtype, and the output it scales.
std::int64_t MoeCost::shared_gate_saved() const {
  return moe_.shared_expert_gate ? z_.hidden + z_.r * (kFp32 + (z_.in_fp32() ? 0 : z_.e)) : 0;
}

/// Without recomputation.
std::int64_t MoeCost::all_saved() const {
  // With jitter only shared experts and projections save the input without noise.
  const bool saves_input = shared_ffn_ > 0 || projects_;
  const std::int64_t jitter_input = moe_.input_jitter_eps > 0 && saves_input ? z_.hidden : 0;
  const std::int64_t up_input = projects_ ? routed_ : 0;
  return jitter_input + up_input + routing_saved() + row_bytes_ + fc1_output_ + fc2_input_ + combined_bytes_ +
         mlp_bytes(z_, shared_ffn_) + shared_gate_saved();
}

std::int64_t MoeCost::saved() const {
  const std::int64_t all = all_saved();
  return all - z_.recomputed("moe", all) - z_.recomputed("moe_act", fc2_input_) -
         z_.recomputed("shared_experts", mlp_bytes(z_, shared_ffn_));
}

/// The shared-expert gate: gradients of both factors, then that of its input, in fp32 and converted, which
/// stays alive. The gradient of the shared experts' output replaces that output.
void MoeCost::gate_backward(LayerTracker& tracker) const {
  const std::int64_t converted = z_.in_fp32() ? 0 : z_.r * z_.m.hidden_size * kFp32;
  if (tracker.delay_wgrad()) tracker.allocate(gate_wgrad_saved());
  tracker.transient(z_.hidden + std::max(z_.hidden, converted));
  tracker.allocate(z_.hidden);
}

/// Shared experts; their input stays alive for router and routed experts.
void MoeCost::shared_backward(LayerTracker& tracker) const {
  if (shared_ffn_ == 0) return;
  if (moe_.shared_expert_gate) gate_backward(tracker);
  if (z_.recomputes("shared_experts")) {
    tracker.allocate(mlp_bytes(z_, shared_ffn_));
    tracker.transient(z_.gathered + z_.hidden);
  }
  mlp_backward(tracker, z_, shared_ffn_, moe_.shared_expert_gate ? z_.hidden : 0);
  tracker.allocate(z_.hidden);
}

/// From the output's gradient to that of the combined rows.
void MoeCost::up_backward(LayerTracker& tracker) const {
  if (!projects_) return;
  tracker.transient(routed_ + (tracker.delay_wgrad() ? 0 : projection_gradient_bytes()));
  tracker.allocate(routed_);
  if (!tracker.delay_wgrad()) tracker.release(routed_);  // its input
}

/// From the gradient of the dispatched rows to that of the layer's input.
void MoeCost::down_backward(LayerTracker& tracker) const {
  if (!projects_) return;
  tracker.transient(z_.hidden + (tracker.delay_wgrad() ? 0 : projection_gradient_bytes()));
  tracker.allocate(z_.hidden);
  if (!tracker.delay_wgrad()) return tracker.release(routed_);
  if (!has_other_input_reader()) tracker.allocate(z_.hidden);
  if (z_.sequence_parallel)
    tracker.allocate(z_.hidden);  // the output's gradient, which shared experts gather
}

/// Routed experts: from the gradients of the combined outputs to those of the dispatched tokens.
void MoeCost::routed_backward(LayerTracker& tracker) const {
  const bool delay_wgrad = tracker.delay_wgrad();
  const std::int64_t all = ranks_ > 1 && gathers_ ? ranks_ * routed_ : 0;
  const std::int64_t weight = delay_wgrad ? 0 : expert_gradient_bytes();
  tracker.transient(all + combined_bytes_);                        // row gradients replace the rows' outputs
  if (ranks_ > 1 && !gathers_) tracker.transient(2 * row_bytes_);  // received rows, and sorted by expert
  if (projects_) tracker.release(routed_);                         // gradient of the combined rows
  tracker.release(combined_bytes_ - row_bytes_);
  tracker.allocate(z_.recomputed("moe_act", fc2_input_));
  tracker.transient(fc2_input_ + weight);
  tracker.allocate(fc2_input_);
  if (!delay_wgrad) tracker.release(row_bytes_ + fc2_input_);
  tracker.transient(fc1_output_);
  tracker.release(fc2_input_);
  tracker.transient(row_bytes_ + z_.fc1_per_ffn * weight);
  tracker.allocate(row_bytes_);
  if (!delay_wgrad) tracker.release(row_bytes_ + fc1_output_);
  if (ranks_ > 1) tracker.transient(gathers_ ? all : row_bytes_ + combined_bytes_);
  tracker.release(row_bytes_);
  if (ranks_ > 1 && !gathers_) tracker.transient(combined_bytes_ + routed_);
  tracker.allocate(routed_);
  if (all > 0) tracker.transient(all);
}

/// The router reads tokens in fp32.
void MoeCost::backward(LayerTracker& tracker) const {
  tracker.enter_mixer();
  if (z_.recomputes("moe")) {
    tracker.allocate(all_saved());
    tracker.transient(output_workspace());
  }
  const bool shared = shared_ffn_ > 0, overlaps = moe_.shared_expert_overlap;
  if (!overlaps) shared_backward(tracker);
  up_backward(tracker);
  routed_backward(tracker);
  if (overlaps) shared_backward(tracker);
  down_backward(tracker);
  if (shared) tracker.release(z_.hidden);  // two gradients of one input are summed
  tracker.release_output_gradient(shared || projects_);
  tracker.release(routing_saved());
  tracker.transient(z_.hidden + (z_.in_fp32() ? 0 : z_.r * z_.m.hidden_size * kFp32));
  if (tracker.delay_wgrad()) tracker.allocate(router_wgrad_saved() - gate_wgrad_saved());
  tracker.complete_own_group();
  tracker.leave_mixer(shared || projects_);
}

std::int64_t MoeCost::output_workspace() const {
  const std::int64_t routed = ranks_ == 1 ? 0
                              : gathers_  ? ranks_ * routed_
                                          : std::max(2 * row_bytes_, routed_) - routed_;
  if (shared_ffn_ == 0) return projects_ ? std::max(routed, z_.hidden) : routed + z_.hidden;
  return z_.hidden + std::max({routed, z_.gathered + z_.hidden, 2 * z_.hidden});
}

/// Router and gate share one input if they need not convert it; shared experts share it if they need not
/// gather it.
std::int64_t MoeCost::router_wgrad_saved() const {
  const bool jitter = moe_.input_jitter_eps > 0;
  const bool one_input = shared_ffn_ > 0 && !z_.sequence_parallel && z_.in_fp32() && !jitter;
  return z_.r * kFp32 * (moe_.num_experts + (one_input ? 0 : z_.m.hidden_size)) + gate_wgrad_saved();
}

std::int64_t MoeCost::gate_wgrad_saved() const {
  if (!moe_.shared_expert_gate) return 0;
  const bool converts = !z_.in_fp32() || (moe_.input_jitter_eps > 0 && z_.sequence_parallel);
  return z_.r * kFp32 * (1 + (converts ? z_.m.hidden_size : 0));
}

/// Whether another linear layer saves the layer's input itself, neither converted nor gathered.
bool MoeCost::has_other_input_reader() const {
  const bool shared = shared_ffn_ > 0, jitter = moe_.input_jitter_eps > 0;
  return (z_.in_fp32() && !jitter) || (shared && !z_.sequence_parallel) ||
         (moe_.shared_expert_gate && z_.in_fp32() && jitter);
}

/// Whether the shared experts save the output's gradient itself.
bool MoeCost::shares_output_gradient() const {
  return shared_ffn_ > 0 && !moe_.shared_expert_gate && !z_.sequence_parallel;
}

/// Both projections' inputs and output gradients, without those that other linear layers save too.
std::int64_t MoeCost::projection_wgrad_saved() const {
  if (!projects_) return 0;
  return 2 * routed_ + (has_other_input_reader() ? 0 : z_.hidden) +
         (shares_output_gradient() ? 0 : z_.hidden);
}

std::int64_t MoeCost::projection_gradient_bytes() const {
  return projects_ ? weight_gradient_bytes(z_, width_ * z_.m.hidden_size) : 0;
}

std::int64_t MoeCost::wgrad_saved() const {
  const std::int64_t shared = shared_ffn_ > 0 ? 2 * z_.full_hidden() + mlp_bytes(z_, shared_ffn_) : 0;
  return router_wgrad_saved() + projection_wgrad_saved() + 2 * row_bytes_ + fc1_output_ + fc2_input_ + shared;
}

/// Without shared experts and projections only the router reads the input; it saves a copy if it converts it.
SharedForWgrad MoeCost::shared_for_wgrad() const {
  const bool shared = shared_ffn_ > 0;
  return {.input = shared || projects_ || (z_.in_fp32() && moe_.input_jitter_eps == 0),
          .output_gradient = projects_ || (shared && !moe_.shared_expert_gate)};
}

/// Gradient of fc2 of one expert; on CUDA in bf16 of all local experts, which one kernel computes.
std::int64_t MoeCost::expert_gradient_bytes() const {
  const bool at_once = z_.on_cuda() && z_.dtypes.activation == config::Dtype::kBfloat16;
  return weight_gradient_bytes(z_, (at_once ? moe_.num_experts / ep_ : 1) * width_ * ffn_);
}

std::int64_t MoeCost::largest_weight_gradient() const {
  return std::max({weight_gradient_bytes(z_, z_.fc1_per_ffn * shared_ffn_ * z_.m.hidden_size),
                   z_.fc1_per_ffn * expert_gradient_bytes(), projection_gradient_bytes()});
}

/// Expert rows and the tensors computed from them next, with the gathered tokens alongside the first and the
/// last.
std::int64_t MoeCost::evaluation() const {
  const std::int64_t first_or_last = ranks_ > 1 && gathers_ ? row_bytes_ + ranks_ * routed_
                                     : ranks_ > 1 ? std::max(2 * row_bytes_, routed_) + combined_bytes_
                                                  : row_bytes_ + routed_;
  return 2 * z_.stream + z_.hidden + (projects_ ? routed_ : 0) + routing_saved() +
         std::max({first_or_last, row_bytes_ + fc1_output_, fc1_output_ + fc2_input_});
}

// Compute.

/// fp32 matmul of the converted input; scores and top-k take a few passes over [r, E].
void MoeCost::add_router(BlockCompute& compute) const {
  const RealSizes z(z_);
  const double experts = RealSizes::real(moe_.num_experts);
  const double converted = z.r * z.h * (z.e + kFp32), scores = z.r * experts * kFp32;
  compute.matmuls.push_back({"router", z.r, experts, z.h, LinearSharding::kReplicated, 0, MatmulKind::kFp32});
  compute.add_elementwise(converted + 4 * scores, 2 * converted + 4 * scores, 12, 8);
}

/// Copies a token's row for each of its experts (read and written) and combines the results with
/// their weights. Backward copies the gradient rows, reads the rows again for the weights' gradients, and
/// sums the gradients.
void MoeCost::add_permutation(BlockCompute& compute, double rows, double tokens) const {
  const double sums = tokens * RealSizes::real(width_ * z_.e);
  compute.add_elementwise(3 * rows + sums, 4 * rows + sums, 4, 4);
}

/// All-to-all dispatch: rows are sent to their experts, sorted by expert, unsorted and sent back, and the
/// same in backward; row counts are exchanged first.
void MoeCost::add_all_to_all_dispatch(BlockCompute& compute) const {
  const double row = RealSizes::real(width_ * z_.e), sent = RealSizes::real(sent_rows_) * row;
  const double received = RealSizes::real(sent_rows_) * imbalance_ * row;
  add_permutation(compute, sent, RealSizes::real(z_.r));
  if (ranks_ == 1) return;
  if (!moe_.pad_expert_input_to_capacity)
    compute.collectives.push_back(
        {GroupKind::kDispatch, true, RealSizes::real(moe_.num_experts * etp_ * kInt64), 1, 0});
  compute.collectives.push_back({GroupKind::kDispatch, true, sent, 2, 2, imbalance_});
  compute.add_elementwise(4 * received, 4 * received, 2, 2);
}

/// All-gather dispatch: all tokens of the group are gathered with their top-k indices and weights, and
/// outputs are reduce-scattered.
void MoeCost::add_all_gather_dispatch(BlockCompute& compute) const {
  const double row = RealSizes::real(width_ * z_.e);
  const double tokens = RealSizes::real(ranks_ * z_.r), choices = tokens * RealSizes::real(topk_);
  add_permutation(compute, RealSizes::real(sent_rows_) * imbalance_ * row, tokens);
  if (ranks_ == 1) return;
  compute.collectives.push_back({GroupKind::kDispatch, false, choices * (kInt64 + kFp32), 1, 0});
  compute.collectives.push_back({GroupKind::kDispatch, false, choices * kFp32, 0, 1});
  compute.collectives.push_back({GroupKind::kDispatch, false, tokens * row, 2, 2});
}

/// Expert activation: reads fc1's output, writes fc2's input.
void MoeCost::add_activation(BlockCompute& compute) const {
  const RealSizes z(z_);
  const double rows = RealSizes::real(sent_rows_) * imbalance_, ffn = RealSizes::real(ffn_);
  const double fc1 = z.fc1_per_ffn * ffn;
  compute.add_elementwise(rows * z.e * (fc1 + ffn), rows * z.e * (2 * fc1 + ffn), 1, 1);
}

void MoeCost::add_experts(BlockCompute& compute) const {
  const RealSizes z(z_);
  constexpr auto kGrouped = MatmulKind::kGrouped;
  const double ffn = RealSizes::real(ffn_), fc1 = z.fc1_per_ffn * ffn;
  const double local = RealSizes::real(moe_.num_experts) / RealSizes::real(ep_);
  const double rows = RealSizes::real(sent_rows_) * imbalance_ / local;  // of one expert
  add_activation(compute);
  compute.matmuls.push_back(
      {"experts' fc1", rows, fc1, RealSizes::real(width_), LinearSharding::kReplicated, 0, kGrouped, local});
  compute.matmuls.push_back(
      {"experts' fc2", rows, RealSizes::real(width_), ffn, LinearSharding::kReplicated, 0, kGrouped, local});
}

void MoeCost::add_projections(BlockCompute& compute) const {
  if (!projects_) return;
  const RealSizes z(z_);
  const double width = RealSizes::real(width_);
  compute.matmuls.push_back({"routed down", z.r, width, z.h, LinearSharding::kReplicated});
  compute.matmuls.push_back({"routed up", z.r, z.h, width, LinearSharding::kReplicated});
}

/// Shared experts and the sum with the routed ones; a gate is an fp32 matmul with one column.
void MoeCost::add_shared(BlockCompute& compute) const {
  const RealSizes z(z_);
  if (moe_.shared_expert_intermediate_size == 0) return;
  add_mlp(compute, z, "shared fc1", "shared fc2", shared_ffn_);
  compute.add_elementwise(3 * z.hidden, 0, 1, 0);
  if (!moe_.shared_expert_gate) return;
  const double converted = z.r * z.h * (z.e + kFp32);
  compute.matmuls.push_back({"shared gate", z.r, 1, z.h, LinearSharding::kReplicated, 0, MatmulKind::kFp32});
  compute.add_elementwise(converted + 2 * z.hidden, converted + 4 * z.hidden, 4, 4);
}

BlockCompute MoeCost::compute(AttentionKernel /*kernel*/) const {
  BlockCompute compute;
  compute.topk = RealSizes::real(topk_);
  add_router(compute);
  if (gathers_)
    add_all_gather_dispatch(compute);
  else
    add_all_to_all_dispatch(compute);
  add_experts(compute);
  add_projections(compute);
  add_shared(compute);
  return compute;
}

void MoeCost::add_recomputed(AttentionKernel kernel, std::vector<BlockCompute>& parts) const {
  if (z_.recomputes("moe")) return parts.push_back(compute(kernel));
  if (z_.recomputes("moe_act")) add_activation(parts.emplace_back());
  if (z_.recomputes("shared_experts")) add_shared(parts.emplace_back());
}

// Parameters: Megatron's estimate counts a dense MLP. FLOPs: the router is not counted.

double MoeCost::parameters() const { return mlp_parameters(z_.m); }

double MoeCost::shared_flops() const {
  return mlp_column_flops(z_.m) * static_cast<double>(moe_.shared_expert_intermediate_size);
}

ForwardFlops MoeCost::flops() const {
  const auto h = static_cast<double>(z_.m.hidden_size), l = static_cast<double>(width_);
  double routed = mlp_column_flops(z_.m) * static_cast<double>(topk_ * moe_.ffn_hidden_size);
  if (projects_) routed = routed / h * l + 4 * h * l;
  return {.linears = static_cast<double>(z_.seq_length) * (routed + shared_flops())};
}

ForwardFlops MoeCost::recomputed_flops() const {
  if (z_.recomputes("moe")) return flops();
  if (!z_.recomputes("shared_experts")) return {};
  return {.linears = static_cast<double>(z_.seq_length) * shared_flops()};
}

}  // namespace colonnade::cost
