// Bytes of data-parallel sharding in the passes of a block.
#pragma once

#include <cstdint>

namespace colonnade::cost {

/// Bytes that data parallelism adds while one FSDP unit (block) computes, with sharded gradients or
/// parameters.
struct UnitBytes {
  std::int64_t forward = 0;          ///< unsharded parameters in a forward pass that saves nothing
  std::int64_t backward = 0;         ///< unsharded parameters and gradients in a backward pass
  std::int64_t backward_input = 0;   ///< the same in a pass that delays weight gradients
  std::int64_t backward_weight = 0;  ///< unsharded gradients while delayed weight gradients are computed
  std::int64_t reduce = 0;  ///< after a backward pass: unsharded gradients and the largest reduce-scatter
  std::int64_t reduce_own_group = 0;  ///< the same once the gradients of parameters outside the dense group
                                      ///< (layout::ParamGroup) are complete, with the dense parameters
  std::int64_t reduce_input = 0;      ///< the same after a pass that delays weight gradients
  std::int64_t reduce_weight = 0;     ///< the same after the delayed weight gradients
  std::int64_t kept_params = 0;  ///< parameters unsharded since the forward pass, freed after the backward
  std::int64_t pending_sum = 0;  ///< a partial sum that waits for its partner (--deterministic-mode)
  friend bool operator==(const UnitBytes&, const UnitBytes&) = default;
};

}  // namespace colonnade::cost
