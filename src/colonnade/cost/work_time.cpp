// Roofline times of a block's parts, and what of its communication is not hidden.
#include "colonnade/cost/work_time.h"

#include <algorithm>

#include "colonnade/cost/activations.h"
#include "colonnade/cost/work.h"

namespace colonnade::cost {
namespace {

constexpr double kFp32 = 4;
constexpr double kAttentionBackward = 2.5;  // scores again, and four products for the two of forward

/// Puts times to the work of one run.
class Stopwatch {
 public:
  Stopwatch(const config::Run& run, const Hardware& hardware, const Execution& execution, const Ways& ways)
      : hw_(hardware),
        how_(execution),
        ways_(ways),
        ring_(ways.tensor),
        element_(static_cast<double>(element_size(run.model))),
        wide_(run.model.params_dtype == config::ParamsDtype::kFloat32),
        by_sequence_(run.parallel.sequence_parallel) {}

  [[nodiscard]] StageTime time(const RepeatedWork& part) const {
    StageTime t;
    const Work& work = part.work;
    t.forward.compute = passes(work.forward_bytes, work.forward_kernels) + attention(work, false);
    t.backward.compute = passes(work.backward_bytes, work.backward_kernels) + attention(work, true);
    double products = 0;
    for (const Product& p : work.products) products += add(p, t);
    for (const Collective& c : work.collectives) {
      const double once = collective(c, work);
      waits(c.among, t.forward) += c.forward * once;
      waits(c.among, t.backward) += c.backward * once;
    }
    add_ring(work, t);
    if (part.layer && how_.half_again)
      t.backward.compute += passes(work.forward_bytes, work.forward_kernels) + products / 2;
    return t;
  }

  /// What of `communication` is not hidden beside `work` that does not depend on it.
  [[nodiscard]] double beside(double communication, double work) const {
    return unhidden(hw_, communication, work);
  }

 private:
  [[nodiscard]] double passes(double bytes, int kernels) const {
    return how_.elementwise_passes *
           (bytes / (hw_.memory_bandwidth * hw_.memory_share) + kernels * hw_.kernel_seconds);
  }

  [[nodiscard]] double attention(const Work& work, bool backward) const {
    if (work.attention.flops == 0) return 0;
    const double share = backward ? hw_.attention_backward : hw_.attention_forward;
    const double flops = work.attention.flops * (backward ? kAttentionBackward : 1);
    const double speed = wide_ ? hw_.fp32_flops : hw_.peak_flops * hw_.sustained_share;
    return flops / (speed * share) + work.attention.ring * hw_.kernel_seconds;
  }

  /// Keys go round beside attention to the block before. Backward their gradients follow one step behind, the
  /// last of them alone.
  void add_ring(const Work& work, StageTime& t) const {
    const int k = work.attention.ring;
    if (k == 1) return;
    const double hop = context_hop(work, work.attention.hop);
    const double gradient = context_hop(work, work.attention.gradient_hop);
    const double block = attention(work, false) / k, block_backward = attention(work, true) / k;
    t.forward.context += (k - 1) * beside(hop, block);
    t.backward.context += beside(hop, block_backward) + (k - 2) * beside(hop + gradient, block_backward) +
                          beside(gradient, block_backward) + gradient;
  }

  /// Of the context ranks neighbours exchange heads; every heads-th one is in a ring.
  [[nodiscard]] std::vector<int> heads_group(const Work& work) const {
    return {ways_.context.begin(), ways_.context.begin() + work.context.heads};
  }
  [[nodiscard]] std::vector<int> ring_group(const Work& work) const {
    std::vector<int> ranks;
    const auto ring = static_cast<std::size_t>(work.context.ring);
    const auto heads = static_cast<std::size_t>(work.context.heads);
    for (std::size_t i = 0; i < ring; ++i) ranks.push_back(ways_.context.at(i * heads));
    return ranks;
  }
  [[nodiscard]] double context_hop(const Work& work, double bytes) const {
    return hop_seconds(hw_, ring_group(work), bytes);
  }

  static double& waits(Among among, PassTime& t) {
    return among == Among::kTensor ? t.tensor : among == Among::kExperts ? t.experts : t.context;
  }

  [[nodiscard]] double collective(const Collective& c, const Work& work) const {
    switch (c.among) {
      case Among::kTensor:
        return ways_.tensor.seconds(c.bytes);
      case Among::kHeads:
        return exchange_of(hw_, heads_group(work)).seconds(c.bytes);
      case Among::kRing:
        return ring_of(hw_, ring_group(work)).seconds(c.bytes);
      case Among::kExperts:
        break;
    }
    if (!c.exchange) return ways_.experts.seconds(c.bytes);
    const double bytes = c.bytes * c.fullest;
    return how_.once_per_node ? ways_.expert_exchange.seconds_once_per_node(bytes, work.choices)
                              : ways_.expert_exchange.seconds(bytes);
  }

  /// `weight_bytes`: of the operand or result that has the weight's shape.
  [[nodiscard]] double product(const Product& p, double weight_bytes) const {
    const bool wide = wide_ || p.kind == ProductKind::kWide;
    const double speed = wide ? hw_.fp32_flops * hw_.products.back().share
                              : hw_.peak_flops * hw_.sustained_share * hw_.product_share(p.m, p.n, p.k);
    const double bytes = (wide ? kFp32 : element_) * p.m * (p.k + p.n) + weight_bytes;
    const double one =
        std::max(2 * p.m * p.n * p.k / speed, bytes / (hw_.memory_bandwidth * hw_.memory_share));
    return p.times * one + hw_.kernel_seconds;
  }

  /// The same where it belongs to the product itself: the first of as many pieces as ranks hides nothing.
  [[nodiscard]] double in_pieces(double communication, double work) const {
    if (!how_.tensor_overlap) return communication;
    return beside(communication, work) + communication / ring_.ranks;
  }

  // Without sequence parallelism a whole activation is summed, which takes as long as scattering and
  // gathering. Returns the time of the product forward, which that of the input's gradient is too.
  double add(const Product& p, StageTime& t) const {
    const double once = product(p, element_ * p.n * p.k);
    // Read and written in fp32; of experts it is made in 16 bits, and added.
    const bool grouped = p.kind == ProductKind::kGrouped;
    const double weight = product(p, (2 * kFp32 + (grouped ? 2 * element_ : 0)) * p.n * p.k);
    t.forward.compute += once;
    t.backward.compute += once + weight;
    t.weight += weight;
    if (ring_.ranks < 2 || p.cut == LinearCut::kWhole) return once;
    const double way = ring_.seconds(p.exchanged);
    if (p.cut == LinearCut::kColumns) {
      if (by_sequence_) t.forward.tensor += in_pieces(way, once);
      t.backward.tensor += by_sequence_ ? beside(way, once) + beside(way, weight) : beside(2 * way, weight);
    } else {
      t.forward.tensor += by_sequence_ ? in_pieces(way, once) : 2 * way;
      if (by_sequence_) t.backward.tensor += in_pieces(way, once);
    }
    return once;
  }

  const Hardware& hw_;
  const Execution& how_;
  const Ways& ways_;
  const Ring& ring_;
  double element_;
  bool wide_;  ///< all is in fp32
  bool by_sequence_;
};

}  // namespace

PassTime& PassTime::add(const PassTime& other, double times) {
  compute += times * other.compute;
  tensor += times * other.tensor;
  context += times * other.context;
  experts += times * other.experts;
  return *this;
}

Ways::Ways(const Hardware& hardware, const layout::Mesh& mesh)
    : context(mesh.peers(0, {layout::Axis::kCp})),
      tensor(ring_of(hardware, mesh, {layout::Axis::kTp})),
      experts(ring_of(hardware, mesh, {layout::Axis::kEtp, layout::Axis::kEp})),
      expert_exchange(exchange_of(hardware, mesh.peers(0, {layout::Axis::kEtp, layout::Axis::kEp}))) {}

StageTime stage_time(const config::Run& run, const layout::StageBlocks& stage, const Hardware& hardware,
                     const Execution& execution, const Ways& ways) {
  const Stopwatch stopwatch(run, hardware, execution, ways);
  const ScoresIn scores = execution.scores_in_kernel ? ScoresIn::kKernel : ScoresIn::kMemory;
  StageTime sum;
  for (const RepeatedWork& part : stage_work(run, stage, scores)) {
    const StageTime t = stopwatch.time(part);
    sum.forward.add(t.forward, part.times);
    sum.backward.add(t.backward, part.times).add(t.forward, part.again);
    sum.weight += part.times * t.weight;
  }
  if (!execution.expert_overlap) return sum;
  // Forward of one micro-batch beside backward of another: each hides beside the other's kernels.
  const double forward = sum.forward.compute, backward = sum.backward.compute;
  sum.forward.experts = stopwatch.beside(sum.forward.experts, backward);
  sum.backward.experts = stopwatch.beside(sum.backward.experts, forward);
  return sum;
}

}  // namespace colonnade::cost
