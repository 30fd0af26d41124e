// Times of products, passes over memory and collectives on given hardware.
#pragma once

#include <cstdint>

#include "colonnade/config/run.h"
#include "colonnade/cost/hardware.h"
#include "colonnade/cost/links.h"
#include "colonnade/layout/mesh.h"
#include "colonnade/layout/stages.h"

namespace colonnade::cost {

/// How the program that runs the step does it. The defaults are Colonnade's; others are there to compare with
/// published times of other programs.
struct Execution {
  bool half_again = false;  ///< every second product and all elementwise passes of the layers are made again
                            ///< (torchtitan's selective "op")
  bool tensor_overlap = false;  ///< products cut in pieces beside their gathers and sums (--tp-comm-overlap)
  double elementwise_passes = 1;  ///< passes over memory for one of the fused kernels' (unfused programs)
  bool expert_overlap = false;    ///< exchanges of experts beside what another micro-batch computes
                                  ///< (--overlap-moe-expert-parallel-comm)
  bool once_per_node = false;     ///< a token is sent once to each node with some of its experts (DeepEP)
  bool scores_in_kernel = false;  ///< sinks, soft caps, dropout and windows inside the kernel of attention
};

/// Of one micro-batch on one virtual stage: seconds of kernels, and on top of them of waiting.
struct PassTime {
  double compute = 0;
  double tensor = 0;   ///< for the tensor ranks
  double context = 0;  ///< for the context ranks
  double experts = 0;  ///< for the ranks of experts
  [[nodiscard]] double total() const { return compute + tensor + context + experts; }
  PassTime& add(const PassTime& other, double times = 1);
};
struct StageTime {
  PassTime forward, backward;
  double weight = 0;  ///< of backward: the products that give the gradients of weights
};

/// Rank 0's groups.
struct Ways {
  Ways(const Hardware& hardware, const layout::Mesh& mesh);
  std::vector<int> context;  ///< ranks
  Ring tensor, experts;
  Exchange expert_exchange;
};

StageTime stage_time(const config::Run& run, const layout::StageBlocks& stage, const Hardware& hardware,
                     const Execution& execution, const Ways& ways);

}  // namespace colonnade::cost
