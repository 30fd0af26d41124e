// How tokens reach the ranks of their experts and come back.
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

/// The products of this rank's experts: rows ordered by expert, the first counts[0] of its first expert, and
/// so on. With expert tensor parallelism the result is this rank's part of a sum.
using ComputeExperts = std::function<at::Tensor(at::Tensor rows, const std::vector<std::int64_t>& counts)>;

/// y[t] = sum over the experts e of token t of weight[t, e] * expert_e(x[t]), for this rank's tokens.
/// The experts lie in blocks of equal size on the members of a group of ep x etp ranks; each block is on etp
/// neighbours that hold a part of every matrix of it.
class Dispatcher {
 public:
  virtual ~Dispatcher() = default;
  /// x [n, h], by gathering equally many rows on every rank -> [n, h]. Collective over the group, forward and
  /// backward. `beside`, where given, is called once: by exchange while the rows are on the way to their
  /// experts, and its backward pass runs while their gradients are on the way back.
  [[nodiscard]] virtual at::Tensor run(const at::Tensor& x, const ops::Routing& routing,
                                       const ComputeExperts& compute,
                                       const std::function<void()>& beside = {}) const = 0;
};

/// kAllGather: every rank gets all tokens of the group, computes its experts' rows, and the sums are
/// scattered: one gather and one reduce-scatter of [n, h] each way, in rows of fixed size. kAllToAll: rows go
/// to the ranks of their experts and back: an exchange of n * k * etp rows each way, after one of their
/// numbers, which the host waits for. In a dry run rows are as layout::assumed_share
/// says.
///
/// Pairs that the router has dropped go nowhere. Filled up to the capacity
/// (--moe-pad-expert-input-to-capacity) every expert computes as many rows of every rank, zeros where there
/// are no more: numbers are known, and none are exchanged.
std::unique_ptr<Dispatcher> make_dispatcher(const config::Moe& moe, const Context& context, std::string name);

}  // namespace colonnade::layers
