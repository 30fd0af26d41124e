// Exchange between ranks after each step: stop requests, times and memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "colonnade/comm/group.h"

namespace colonnade::train {

/// Values of one rank, or reduced over all ranks.
struct StepExchange {
  bool stop = false;       ///< stop requested; all ranks: by any rank
  double step_ms = 0;      ///< all ranks: of the slowest
  double peak_memory = 0;  ///< bytes; all ranks: the largest
  int peak_rank = 0;       ///< all ranks: first rank with the largest
  /// More values of this rank, as many as on every other rank; all ranks: those of all, in rank order.
  std::vector<double> values = {};
};

/// Reduces `mine` over all ranks, with the same result on every rank. One all-gather over `world`, on the
/// device of `options`.
StepExchange exchange_step(const StepExchange& mine, const comm::Group& world,
                           const at::TensorOptions& options);

}  // namespace colonnade::train
