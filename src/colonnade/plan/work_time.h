// Times of products, passes over memory and collectives on given hardware.
#pragma once

#include <cstdint>

#include "colonnade/config/run.h"
#include "colonnade/plan/hardware.h"
#include "colonnade/plan/mesh.h"
#include "colonnade/plan/stages.h"

namespace colonnade::plan {

/// How the program that runs the step does it. The defaults are Colonnade's; others are there to compare with
/// published times of other programs.
struct Execution {
  bool half_again = false;  ///< every second product and all elementwise passes of the layers are made again
                            ///< (torchtitan's selective "op")
  bool tensor_overlap = false;  ///< products cut in pieces beside their gathers and sums (--tp-comm-overlap)
  double elementwise_passes = 1;  ///< passes over memory for one of the fused kernels' (unfused programs)
};

/// The ranks along some axes as a ring.
struct Ring {
  int ranks = 1;
  double bandwidth = 1;  ///< bytes per second that each rank passes on
  double latency = 0;    ///< seconds per step

  /// Gathering, or summing and scattering, `bytes` in all.
  [[nodiscard]] double seconds(double bytes) const {
    return ranks < 2 ? 0 : bytes * (ranks - 1) / ranks / bandwidth + (ranks - 1) * latency;
  }
};
/// Rank 0's ring over `axes`. Where it leaves the node, the ring's members within a node share all their ways
/// out: bandwidth = min(inside, outside * members of a node).
Ring ring_of(const Hardware& hardware, const Mesh& mesh, AxisSet axes);

/// Of one micro-batch on one virtual stage.
struct PassTime {
  double compute = 0;  ///< seconds of kernels
  double tensor = 0;   ///< seconds of waiting for the tensor ranks on top
  [[nodiscard]] double total() const { return compute + tensor; }
};
struct StageTime {
  PassTime forward, backward;
  double weight = 0;  ///< of backward: the products that give the gradients of weights
};
StageTime stage_time(const config::Run& run, const StageBlocks& stage, const Hardware& hardware,
                     const Execution& execution, const Ring& tensor_ranks);

}  // namespace colonnade::plan
