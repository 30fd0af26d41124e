// Roofline times of a block's parts, and what of its communication is not hidden.
#include "colonnade/plan/work_time.h"

#include <algorithm>

#include "colonnade/plan/activations.h"
#include "colonnade/plan/work.h"

namespace colonnade::plan {
namespace {

constexpr double kFp32 = 4;
constexpr double kAttentionBackward = 2.5;  // scores again, and four products for the two of forward

/// Puts times to the work of one run.
class Stopwatch {
 public:
  Stopwatch(const config::Run& run, const Hardware& hardware, const Execution& execution, const Ring& ring)
      : hw_(hardware),
        how_(execution),
        ring_(ring),
        element_(static_cast<double>(element_size(run.model))),
        by_sequence_(run.parallel.sequence_parallel) {}

  [[nodiscard]] StageTime time(const RepeatedWork& part) const {
    StageTime t;
    const Work& work = part.work;
    t.forward.compute = passes(work.forward_bytes, work.forward_kernels) + attention(work, false);
    t.backward.compute = passes(work.backward_bytes, work.backward_kernels) + attention(work, true);
    const double elementwise = passes(work.forward_bytes, work.forward_kernels);
    double products = 0;
    for (const Product& p : work.products) {
      products += product(p, element_ * p.n * p.k);
      add(p, t);
    }
    if (work.summed > 0) {
      t.forward.tensor += by_sequence_ ? ring_.seconds(work.summed) : 2 * ring_.seconds(work.summed);
      t.backward.tensor += by_sequence_ ? ring_.seconds(work.summed) : 0;
    }
    if (part.layer && how_.half_again) t.backward.compute += elementwise + products / 2;
    return t;
  }

 private:
  [[nodiscard]] double passes(double bytes, int kernels) const {
    return how_.elementwise_passes *
           (bytes / (hw_.memory_bandwidth * hw_.memory_share) + kernels * hw_.kernel_seconds);
  }

  [[nodiscard]] double attention(const Work& work, bool backward) const {
    if (work.attention_flops == 0) return 0;
    const double share = backward ? hw_.attention_backward : hw_.attention_forward;
    const double flops = work.attention_flops * (backward ? kAttentionBackward : 1);
    return flops / (hw_.peak_flops * share * hw_.sustained_share) + hw_.kernel_seconds;
  }

  /// `weight_bytes`: of the operand or result that has the weight's shape.
  [[nodiscard]] double product(const Product& p, double weight_bytes) const {
    const double speed = hw_.peak_flops * hw_.sustained_share * hw_.product_share(p.m, p.n, p.k);
    const double bytes = element_ * p.m * (p.k + p.n) + weight_bytes;
    return std::max(2 * p.m * p.n * p.k / speed, bytes / (hw_.memory_bandwidth * hw_.memory_share)) +
           hw_.kernel_seconds;
  }

  /// What of `communication` is not hidden beside `work` that does not depend on it.
  [[nodiscard]] double beside(double communication, double work) const {
    return std::max(0.0, communication - work) + hw_.overlap_cost * std::min(communication, work);
  }
  /// The same where it belongs to the product itself: the first of as many pieces as ranks hides nothing.
  [[nodiscard]] double in_pieces(double communication, double work) const {
    if (!how_.tensor_overlap) return communication;
    return beside(communication, work) + communication / ring_.ranks;
  }

  // Without sequence parallelism a whole activation is summed, which takes as long as scattering and
  // gathering.
  void add(const Product& p, StageTime& t) const {
    const double once = product(p, element_ * p.n * p.k);
    const double input = once;
    const double weight = product(p, 2 * kFp32 * p.n * p.k);  // read and written, in fp32
    t.forward.compute += once;
    t.backward.compute += input + weight;
    t.weight += weight;
    if (ring_.ranks < 2) return;
    const double way = ring_.seconds(p.exchanged);
    if (p.cut == LinearCut::kColumns) {
      if (by_sequence_) t.forward.tensor += in_pieces(way, once);
      t.backward.tensor += by_sequence_ ? beside(way, input) + beside(way, weight) : beside(2 * way, weight);
    } else {
      t.forward.tensor += by_sequence_ ? in_pieces(way, once) : 2 * way;
      if (by_sequence_) t.backward.tensor += in_pieces(way, input);
    }
  }

  const Hardware& hw_;
  const Execution& how_;
  const Ring& ring_;
  double element_;
  bool by_sequence_;
};

}  // namespace

Ring ring_of(const Hardware& hardware, const Mesh& mesh, AxisSet axes) {
  const std::vector<int> peers = mesh.peers(0, axes);
  const int node = hardware.devices_per_node;
  const auto near = std::count_if(peers.begin(), peers.end(), [node](int rank) { return rank < node; });
  const double inside = hardware.intra_node.bandwidth * hardware.intra_node.share;
  if (near == static_cast<std::int64_t>(peers.size()))
    return {static_cast<int>(peers.size()), inside, hardware.intra_node.latency};
  const double outside =
      hardware.inter_node.bandwidth * hardware.inter_node.share * static_cast<double>(near);
  return {static_cast<int>(peers.size()), std::min(inside, outside), hardware.inter_node.latency};
}

StageTime stage_time(const config::Run& run, const StageBlocks& stage, const Hardware& hardware,
                     const Execution& execution, const Ring& tensor_ranks) {
  const Stopwatch stopwatch(run, hardware, execution, tensor_ranks);
  StageTime sum;
  for (const RepeatedWork& part : stage_work(run, stage)) {
    const StageTime t = stopwatch.time(part);
    sum.forward.compute += part.times * t.forward.compute;
    sum.forward.tensor += part.times * t.forward.tensor;
    sum.backward.compute += part.times * t.backward.compute + part.again * t.forward.compute;
    sum.backward.tensor += part.times * t.backward.tensor + part.again * t.forward.tensor;
    sum.weight += part.times * t.weight;
  }
  return sum;
}

}  // namespace colonnade::plan
