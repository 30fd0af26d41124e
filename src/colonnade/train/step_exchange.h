// What the ranks exchange after each step: stop requests, times and memory.
#pragma once

#include <ATen/core/Tensor.h>

#include "colonnade/comm/group.h"

namespace colonnade::train {

/// Numbers of one rank, or of all.
struct StepExchange {
  bool stop = false;       ///< asked to stop; of all: any rank
  double step_ms = 0;      ///< of all: the slowest
  double peak_memory = 0;  ///< bytes; of all: the largest
  int peak_rank = 0;       ///< of all: the first rank with the largest
};

/// The same result on every rank. One all-gather over `world`, on the device of `options`.
StepExchange exchange_step(const StepExchange& mine, const comm::Group& world,
                           const at::TensorOptions& options);

}  // namespace colonnade::train
