// Roofline times of a block's compute, and its exposed communication.
#include "colonnade/cost/stage_time.h"

#include <algorithm>

#include "colonnade/cost/stage_compute.h"

namespace colonnade::cost {
namespace {

constexpr double kAttentionBackward = 2.5;  // recomputed scores, and four matmuls for the two of forward

/// Times of the block costs of one run.
class Roofline {
 public:
  Roofline(const config::Run& run, const Hardware& hardware, const Execution& execution,
           const CommGroups& groups)
      : hw_(hardware),
        execution_(execution),
        groups_(groups),
        ring_(groups.tensor),
        dtypes_(config::dtypes_of(run)),
        activation_(static_cast<double>(config::bytes(dtypes_.activation))),
        parameter_(static_cast<double>(config::bytes(dtypes_.parameter))),
        main_gradient_(static_cast<double>(config::bytes(dtypes_.main_gradient))),
        all_fp32_(dtypes_.activation == config::Dtype::kFloat32),
        sequence_parallel_(run.parallel.sequence_parallel) {}

  [[nodiscard]] StageTime time(const RepeatedCompute& block) const {
    StageTime t;
    const BlockCompute& cost = block.compute;
    t.forward.compute = elementwise(cost.forward_bytes, cost.forward_kernels) + attention(cost, false);
    t.backward.compute = elementwise(cost.backward_bytes, cost.backward_kernels) + attention(cost, true);
    double matmul_seconds = 0;
    for (const Matmul& p : cost.matmuls) matmul_seconds += add(p, t);
    for (const Collective& c : cost.collectives) {
      const double once = collective(c, cost);
      communication_of(c.group, t.forward) += c.forward * once;
      communication_of(c.group, t.backward) += c.backward * once;
    }
    add_ring(cost, t);
    if (block.is_layer && execution_.op_recompute)
      t.backward.compute += elementwise(cost.forward_bytes, cost.forward_kernels) + matmul_seconds / 2;
    return t;
  }

  /// Exposed seconds of `communication` overlapped with independent `compute`.
  [[nodiscard]] double exposed(double communication, double compute) const {
    return exposed_seconds(hw_, communication, compute);
  }

 private:
  [[nodiscard]] double elementwise(double bytes, int kernels) const {
    return execution_.elementwise_passes *
           (bytes / (hw_.memory_bandwidth * hw_.memory_share) + kernels * hw_.kernel_seconds);
  }

  [[nodiscard]] double attention(const BlockCompute& cost, bool backward) const {
    if (cost.attention.flops == 0) return 0;
    const double share = backward ? hw_.attention_backward : hw_.attention_forward;
    const double flops = cost.attention.flops * (backward ? kAttentionBackward : 1);
    const double speed = all_fp32_ ? hw_.fp32_flops : hw_.peak_flops * hw_.sustained_share;
    return flops / (speed * share) + cost.attention.ring * hw_.kernel_seconds;
  }

  /// KV hops overlap attention to the previous block. In backward the gradients follow one step later, and
  /// the last one is exposed.
  void add_ring(const BlockCompute& cost, StageTime& t) const {
    const int k = cost.attention.ring;
    if (k == 1) return;
    const double kv = context_hop(cost, cost.attention.kv_bytes);
    const double gradient = context_hop(cost, cost.attention.kv_grad_bytes);
    const double block = attention(cost, false) / k, block_backward = attention(cost, true) / k;
    t.forward.context += (k - 1) * exposed(kv, block);
    t.backward.context += exposed(kv, block_backward) + (k - 2) * exposed(kv + gradient, block_backward) +
                          exposed(gradient, block_backward) + gradient;
  }

  /// Context ranks: neighbours form the all-to-all group, every heads-th rank the ring.
  [[nodiscard]] std::vector<int> all_to_all_group(const BlockCompute& cost) const {
    return {groups_.context.begin(), groups_.context.begin() + cost.context.heads};
  }
  [[nodiscard]] std::vector<int> ring_group(const BlockCompute& cost) const {
    std::vector<int> ranks;
    const auto ring = static_cast<std::size_t>(cost.context.ring);
    const auto heads = static_cast<std::size_t>(cost.context.heads);
    for (std::size_t i = 0; i < ring; ++i) ranks.push_back(groups_.context.at(i * heads));
    return ranks;
  }
  [[nodiscard]] double context_hop(const BlockCompute& cost, double bytes) const {
    return hop_seconds(hw_, ring_group(cost), bytes);
  }

  static double& communication_of(GroupKind among, PassTime& t) {
    return among == GroupKind::kTensor ? t.tensor : among == GroupKind::kDispatch ? t.dispatch : t.context;
  }

  [[nodiscard]] double collective(const Collective& c, const BlockCompute& cost) const {
    switch (c.group) {
      case GroupKind::kTensor:
        return groups_.tensor.seconds(c.bytes);
      case GroupKind::kContextAllToAll:
        return all_to_all_of(hw_, all_to_all_group(cost)).seconds(c.bytes);
      case GroupKind::kContextRing:
        return ring_of(hw_, ring_group(cost)).seconds(c.bytes);
      case GroupKind::kDispatch:
        break;
    }
    if (!c.all_to_all) return groups_.dispatch.seconds(c.bytes);
    const double bytes = c.bytes * c.imbalance;
    return execution_.once_per_node ? groups_.dispatch_all_to_all.seconds_once_per_node(bytes, cost.topk)
                                    : groups_.dispatch_all_to_all.seconds(bytes);
  }

  /// `weight_bytes`: bytes of the operand or result with the weight's shape.
  [[nodiscard]] double matmul(const Matmul& p, double weight_bytes) const {
    const bool fp32 = all_fp32_ || p.kind == MatmulKind::kFp32;
    const double speed = fp32 ? hw_.fp32_flops * hw_.matmul_curve.back().share
                              : hw_.peak_flops * hw_.sustained_share * hw_.matmul_share(p.m, p.n, p.k);
    const double bytes = (fp32 ? kFp32 : activation_) * p.m * (p.k + p.n) + weight_bytes;
    const double one =
        std::max(2 * p.m * p.n * p.k / speed, bytes / (hw_.memory_bandwidth * hw_.memory_share));
    return p.count * one + hw_.kernel_seconds;
  }

  /// Exposed seconds of a matmul's own communication, pipelined in as many chunks as ranks; the first chunk
  /// is exposed.
  [[nodiscard]] double exposed_pipelined(double communication, double compute) const {
    if (!execution_.tensor_overlap) return communication;
    return exposed(communication, compute) + communication / ring_.ranks;
  }

  // Without sequence parallelism activations are all-reduced, which takes as long as a reduce-scatter and an
  // all-gather. Returns the time of the forward matmul, which equals that of the input gradient.
  double add(const Matmul& p, StageTime& t) const {
    const double once = matmul(p, parameter_ * p.n * p.k);
    // Main gradients are read and written; those of grouped GEMMs are computed in the activations' dtype
    // first.
    const bool grouped = p.kind == MatmulKind::kGrouped;
    const double weight = matmul(p, (2 * main_gradient_ + (grouped ? 2 * activation_ : 0)) * p.n * p.k);
    t.forward.compute += once;
    t.backward.compute += once + weight;
    t.weight += weight;
    if (ring_.ranks < 2 || p.sharding == LinearSharding::kReplicated) return once;
    const double half = ring_.seconds(p.comm_bytes);
    if (p.sharding == LinearSharding::kColumns) {
      if (sequence_parallel_) t.forward.tensor += exposed_pipelined(half, once);
      t.backward.tensor +=
          sequence_parallel_ ? exposed(half, once) + exposed(half, weight) : exposed(2 * half, weight);
    } else {
      t.forward.tensor += sequence_parallel_ ? exposed_pipelined(half, once) : 2 * half;
      if (sequence_parallel_) t.backward.tensor += exposed_pipelined(half, once);
    }
    return once;
  }

  const Hardware& hw_;
  const Execution& execution_;
  const CommGroups& groups_;
  const Ring& ring_;
  config::Dtypes dtypes_;
  double activation_, parameter_, main_gradient_;  ///< bytes per element
  bool all_fp32_;                                  ///< matmuls of activations in fp32
  bool sequence_parallel_;
};

}  // namespace

PassTime& PassTime::add(const PassTime& other, double times) {
  compute += times * other.compute;
  tensor += times * other.tensor;
  context += times * other.context;
  dispatch += times * other.dispatch;
  return *this;
}

CommGroups::CommGroups(const Hardware& hardware, const layout::Mesh& mesh)
    : context(mesh.peers(0, {layout::Axis::kCp})),
      tensor(ring_of(hardware, mesh, {layout::Axis::kTp})),
      dispatch(ring_of(hardware, mesh, layout::kDispatchAxes)),
      dispatch_all_to_all(all_to_all_of(hardware, mesh.peers(0, layout::kDispatchAxes))) {}

StageTime stage_time(const ModelCost& model, const layout::StageBlocks& stage, const Hardware& hardware,
                     const Execution& execution, const CommGroups& groups) {
  const Roofline roofline(model.run(), hardware, execution, groups);
  const AttentionKernel kernel = execution.fused_scores ? AttentionKernel::kFused : AttentionKernel::kUnfused;
  StageTime sum;
  for (const RepeatedCompute& block : stage_compute(model, stage, kernel)) {
    const StageTime t = roofline.time(block);
    sum.forward.add(t.forward, block.times);
    sum.backward.add(t.backward, block.times).add(t.forward, block.recomputed);
    sum.weight += block.times * t.weight;
  }
  // Forward of one micro-batch overlaps backward of another: each hides its communication in the other's
  // kernels.
  const double forward = roofline.exposed(sum.forward.dispatch, sum.backward.compute);
  const double backward = roofline.exposed(sum.backward.dispatch, sum.forward.compute);
  if (execution.dispatch_overlap) {
    sum.forward.dispatch = forward;
    sum.backward.dispatch = backward;
  } else if (model.run().parallel.pairs_passes()) {
    sum.hidden_forward = sum.forward.dispatch - forward;
    sum.hidden_backward = sum.backward.dispatch - backward;
  }
  return sum;
}

}  // namespace colonnade::cost
