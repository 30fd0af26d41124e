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
      imbalance_(layout::assumed_share(moe_, 0, static_cast<int>(ep_))),
      sent_rows_(layout::expert_rows(moe_, z.r) * etp_),
      expert_rows_(std::llround(static_cast<double>(sent_rows_) * imbalance_)),
      combined_rows_(gathers_ ? expert_rows_ : sent_rows_),
      ffn_(moe_.ffn_hidden_size / etp_),
      shared_ffn_(moe_.shared_expert_intermediate_size / z.tp),
      row_bytes_(expert_rows_ * z.m.hidden_size * z.e),
      fc2_input_(expert_rows_ * z.e * ffn_),
      fc1_output_(z.fc1_per_ffn * fc2_input_),
      combined_bytes_(combined_rows_ * z.m.hidden_size * z.e) {}

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
  // With jitter only shared experts save the input without noise.
  const std::int64_t jitter_input = moe_.input_jitter_eps > 0 && shared_ffn_ > 0 ? z_.hidden : 0;
  return jitter_input + routing_saved() + row_bytes_ + fc1_output_ + fc2_input_ + combined_bytes_ +
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

/// Routed experts: from the gradients of the combined outputs to those of the router's input.
void MoeCost::routed_backward(LayerTracker& tracker) const {
  const bool delay_wgrad = tracker.delay_wgrad();
  const std::int64_t all = ranks_ > 1 && gathers_ ? ranks_ * z_.hidden : 0;
  const std::int64_t weight = delay_wgrad ? 0 : expert_gradient_bytes();
  tracker.transient(all + combined_bytes_);                        // row gradients replace the rows' outputs
  if (ranks_ > 1 && !gathers_) tracker.transient(2 * row_bytes_);  // received rows, and sorted by expert
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
  if (ranks_ > 1 && !gathers_) tracker.transient(combined_bytes_ + z_.hidden);
  tracker.allocate(z_.hidden);
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
  routed_backward(tracker);
  if (overlaps) shared_backward(tracker);
  if (shared) tracker.release(z_.hidden);  // two gradients of one input are summed
  tracker.release_output_gradient(shared);
  tracker.release(routing_saved());
  tracker.transient(z_.hidden + (z_.in_fp32() ? 0 : z_.r * z_.m.hidden_size * kFp32));
  if (tracker.delay_wgrad()) tracker.allocate(router_wgrad_saved() - gate_wgrad_saved());
  tracker.complete_own_group();
  tracker.leave_mixer(shared);
}

std::int64_t MoeCost::output_workspace() const {
  const std::int64_t routed = ranks_ == 1 ? 0
                              : gathers_  ? ranks_ * z_.hidden
                                          : std::max(2 * row_bytes_, z_.hidden) - z_.hidden;
  if (shared_ffn_ == 0) return routed + z_.hidden;
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

std::int64_t MoeCost::wgrad_saved() const {
  const std::int64_t shared = shared_ffn_ > 0 ? 2 * z_.full_hidden() + mlp_bytes(z_, shared_ffn_) : 0;
  return router_wgrad_saved() + 2 * row_bytes_ + fc1_output_ + fc2_input_ + shared;
}

/// Without shared experts only the router reads the input; it saves a copy if it converts it.
SharedForWgrad MoeCost::shared_for_wgrad() const {
  const bool shared = shared_ffn_ > 0;
  return {.input = shared || (z_.in_fp32() && moe_.input_jitter_eps == 0),
          .output_gradient = shared && !moe_.shared_expert_gate};
}

/// Gradient of fc2 of one expert; on CUDA in bf16 of all local experts, which one kernel computes.
std::int64_t MoeCost::expert_gradient_bytes() const {
  const bool at_once = z_.on_cuda() && z_.dtypes.activation == config::Dtype::kBfloat16;
  return weight_gradient_bytes(z_, (at_once ? moe_.num_experts / ep_ : 1) * z_.m.hidden_size * ffn_);
}

std::int64_t MoeCost::largest_weight_gradient() const {
  return std::max(weight_gradient_bytes(z_, z_.fc1_per_ffn * shared_ffn_ * z_.m.hidden_size),
                  z_.fc1_per_ffn * expert_gradient_bytes());
}

/// Expert rows and the tensors computed from them next, with the gathered tokens alongside the first and the
/// last.
std::int64_t MoeCost::evaluation() const {
  const std::int64_t first_or_last = ranks_ > 1 && gathers_ ? row_bytes_ + ranks_ * z_.hidden
                                     : ranks_ > 1 ? std::max(2 * row_bytes_, z_.hidden) + combined_bytes_
                                                  : row_bytes_ + z_.hidden;
  return 2 * z_.stream + z_.hidden + routing_saved() +
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
  const double sums = tokens * RealSizes::real(z_.m.hidden_size * z_.e);
  compute.add_elementwise(3 * rows + sums, 4 * rows + sums, 4, 4);
}

/// All-to-all dispatch: rows are sent to their experts, sorted by expert, unsorted and sent back, and the
/// same in backward; row counts are exchanged first.
void MoeCost::add_all_to_all_dispatch(BlockCompute& compute) const {
  const double row = RealSizes::real(z_.m.hidden_size * z_.e), sent = RealSizes::real(sent_rows_) * row;
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
  const double row = RealSizes::real(z_.m.hidden_size * z_.e);
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
      {"experts' fc1", rows, fc1, z.h, LinearSharding::kReplicated, 0, kGrouped, local});
  compute.matmuls.push_back(
      {"experts' fc2", rows, z.h, ffn, LinearSharding::kReplicated, 0, kGrouped, local});
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
  const double routed = mlp_column_flops(z_.m) * static_cast<double>(topk_ * moe_.ffn_hidden_size);
  return {.linears = static_cast<double>(z_.seq_length) * (routed + shared_flops())};
}

ForwardFlops MoeCost::recomputed_flops() const {
  if (z_.recomputes("moe")) return flops();
  if (!z_.recomputes("shared_experts")) return {};
  return {.linears = static_cast<double>(z_.seq_length) * shared_flops()};
}

}  // namespace colonnade::cost
