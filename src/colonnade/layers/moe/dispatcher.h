// Token dispatchers: send tokens to the ranks of their experts and combine the results.
// Source: Megatron's core/transformer/moe/token_dispatcher.py; Lepikhin et al. 2020 (GShard).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "colonnade/config/moe.h"
#include "colonnade/layers/context.h"
#include "colonnade/ops/routing.h"

namespace colonnade::layers {

/// MLP of this rank's experts over rows ordered by expert, the first counts[0] for its first expert, and so
/// on. With expert tensor parallelism the result is a partial sum.
using ComputeExperts = std::function<at::Tensor(at::Tensor rows, const std::vector<std::int64_t>& counts)>;

/// y[t] = sum over the experts e of token t of weight[t, e] * expert_e(x[t]), for this rank's tokens.
/// A group of ep x etp ranks holds the experts in ep blocks of equal size; etp neighbouring ranks shard every
/// matrix of a block.
class Dispatcher {
 public:
  virtual ~Dispatcher() = default;
  /// x [n, h] -> [n, h]; with all-gather n is equal on all ranks. Collective over the group, forward and
  /// backward. `overlapped`, if given, is called once: with all-to-all while rows are dispatched, and its
  /// backward pass runs while their gradients return.
  [[nodiscard]] virtual at::Tensor run(const at::Tensor& x, const ops::Routing& routing,
                                       const ComputeExperts& compute,
                                       const std::function<void()>& overlapped = {}) const = 0;
};

/// kAllGather: every rank gathers all tokens of the group, computes its experts' rows and reduce-scatters the
/// sums: one all-gather and one reduce-scatter of [n, h] each way, of static shape. kAllToAll: rows are sent
/// to the ranks of their experts and back: an all-to-all of n * k * etp rows each way, after one of their
/// counts, for which the host waits. A dry run assumes the counts of layout::assumed_share.
///
/// With Context::turns and all-to-all, every wait for rows, forward and backward, hands over to the other
/// pass of a pair, which computes during the exchange (not the exchange of counts, which is short and whose
/// result the host needs). The passes alternate as in Megatron's
/// core/models/common/model_chunk_schedule_plan.py:
///
///     backward   combine's gradients ->              -> experts, dispatch's gradients ->   -> attention ...
///     forward       attention, router, dispatch ->              -> experts, combine ->
///
/// Dropped token-expert pairs are not sent. With --moe-pad-expert-input-to-capacity every expert computes
/// exactly its capacity of rows from every rank, padded with zeros, and no counts are exchanged.
std::unique_ptr<Dispatcher> make_dispatcher(const config::Moe& moe, const Context& context, std::string name);

}  // namespace colonnade::layers
