// Times of matmuls, elementwise kernels and collectives of a stage on given hardware.
#pragma once

#include <cstdint>

#include "colonnade/cost/hardware.h"
#include "colonnade/cost/interconnect.h"
#include "colonnade/cost/model_cost.h"
#include "colonnade/layout/mesh.h"

namespace colonnade::cost {

/// Execution techniques of a training program. The defaults are Colonnade's; the others serve the comparison
/// with published times of other programs.
struct Execution {
  bool op_recompute = false;      ///< every second matmul and all elementwise kernels of the layers are
                                  ///< recomputed (torchtitan's selective "op")
  bool tensor_overlap = false;    ///< matmuls in chunks that overlap their collectives (--tp-comm-overlap)
  double elementwise_passes = 1;  ///< memory traffic relative to the fused kernels (unfused programs)
  bool dispatch_overlap = false;  ///< the token dispatch of every pass overlaps the compute of another
                                  ///< micro-batch; without it only that of pairs (pairs_passes) does
  bool once_per_node = false;     ///< a token is sent once per node with some of its destinations (DeepEP)
  bool fused_scores = false;      ///< sinks, soft caps, dropout and windows inside the attention kernel
};

/// Seconds of a forward or backward pass of one micro-batch on one virtual stage: compute, and exposed
/// communication by group.
struct PassTime {
  double compute = 0;
  double tensor = 0;
  double context = 0;
  double dispatch = 0;
  [[nodiscard]] double total() const { return compute + tensor + context + dispatch; }
  PassTime& add(const PassTime& other, double times = 1);
};
struct StageTime {
  PassTime forward, backward;
  double weight = 0;  ///< weight-gradient matmuls, part of backward
  /// Parts of forward.dispatch and backward.dispatch that a pair of passes hides in the compute of the other
  /// pass, that of this stage.
  double hidden_forward = 0, hidden_backward = 0;
};

/// Communication groups of rank 0.
struct CommGroups {
  CommGroups(const Hardware& hardware, const layout::Mesh& mesh);
  std::vector<int> context;  ///< context-parallel ranks
  Ring tensor, dispatch;
  AllToAll dispatch_all_to_all;
};

StageTime stage_time(const ModelCost& model, const layout::StageBlocks& stage, const Hardware& hardware,
                     const Execution& execution, const CommGroups& groups);

}  // namespace colonnade::cost
