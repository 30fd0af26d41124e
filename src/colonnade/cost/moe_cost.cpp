// Costs of MoE layers: router, dispatch and combine, local experts. With top-k routing, f columns per expert,
// E experts, ep expert ranks and etp expert tensor ranks, a rank sends R = r k etp rows (fewer with a
// capacity factor below 1, more with padding) and receives R u, R u ep / E for each of its E / ep
// experts. u is the assumed load of the most loaded rank relative to the mean, 1 unless --expert-imbalance is
// given; the other ranks wait for it.
#include "colonnade/cost/block_sizes.h"
#include "colonnade/layout/expert_capacity.h"

namespace colonnade::cost {
namespace {

struct MoeSizes {
  MoeSizes(const config::Run& run, const BlockSizes& z)
      : topk(static_cast<double>(run.model.moe.router_topk)),
        experts(static_cast<double>(run.model.moe.num_experts)),
        ep(run.parallel.expert_model_parallel_size),
        etp(run.parallel.expert_tensor_size()),
        ranks(ep * etp),
        local_experts(experts / ep),
        imbalance(layout::assumed_share(run.model.moe, 0, run.parallel.expert_model_parallel_size)),
        sent_rows(static_cast<double>(layout::expert_rows(run.model.moe, static_cast<std::int64_t>(z.r))) *
                  etp),
        rows(sent_rows * imbalance),
        ffn(static_cast<double>(run.model.moe.ffn_hidden_size) / etp),
        sent_bytes(sent_rows * z.h * z.e),
        row_bytes(rows * z.h * z.e),
        gathers(run.model.moe.token_dispatcher_type == config::TokenDispatcher::kAllGather) {}
  double topk, experts, ep, etp, ranks, local_experts;
  double imbalance, sent_rows, rows;  ///< rows sent by this rank, and rows of its experts
  double ffn, sent_bytes, row_bytes;
  bool gathers;
};

/// fp32 matmul of the converted input; scores and top-k take a few passes over [r, E].
void add_router(BlockCost& cost, const BlockSizes& z, const MoeSizes& x) {
  const double converted = z.r * z.h * (z.e + kFp32), scores = z.r * x.experts * kFp32;
  cost.matmuls.push_back({"router", z.r, x.experts, z.h, LinearSharding::kReplicated, 0, MatmulKind::kFp32});
  cost.add_elementwise(converted + 4 * scores, 2 * converted + 4 * scores, 12, 8);
}

/// Copies a token's row for each of its experts (read and written) and combines the results with
/// their weights. Backward copies the gradient rows, reads the rows again for the weights' gradients, and
/// sums the gradients.
void add_permutation(BlockCost& cost, const BlockSizes& z, double rows, double tokens) {
  const double sums = tokens * z.h * z.e;
  cost.add_elementwise(3 * rows + sums, 4 * rows + sums, 4, 4);
}

/// All-to-all dispatch: rows are sent to their experts, sorted by expert, unsorted and sent back, and the
/// same in backward; row counts are exchanged first.
void add_all_to_all_dispatch(BlockCost& cost, const BlockSizes& z, const MoeSizes& x) {
  add_permutation(cost, z, x.sent_bytes, z.r);
  if (x.ranks == 1) return;
  if (!z.m.moe.pad_expert_input_to_capacity)
    cost.collectives.push_back({GroupKind::kExperts, true, x.experts * x.etp * kInt64, 1, 0});
  cost.collectives.push_back({GroupKind::kExperts, true, x.sent_bytes, 2, 2, x.imbalance});
  cost.add_elementwise(4 * x.row_bytes, 4 * x.row_bytes, 2, 2);
}

/// All-gather dispatch: all tokens of the group are gathered with their top-k indices and weights, and
/// outputs are reduce-scattered.
void add_all_gather_dispatch(BlockCost& cost, const BlockSizes& z, const MoeSizes& x) {
  add_permutation(cost, z, x.row_bytes, z.r * x.ranks);
  if (x.ranks == 1) return;
  cost.collectives.push_back({GroupKind::kExperts, false, x.ranks * z.r * x.topk * (kInt64 + kFp32), 1, 0});
  cost.collectives.push_back({GroupKind::kExperts, false, x.ranks * z.r * x.topk * kFp32, 0, 1});
  cost.collectives.push_back({GroupKind::kExperts, false, x.ranks * z.hidden, 2, 2});
}

/// Expert activation: reads fc1's output, writes fc2's input.
void add_activation(BlockCost& cost, const BlockSizes& z, const MoeSizes& x) {
  const double fc1 = z.fc1_per_ffn * x.ffn;
  cost.add_elementwise(x.rows * z.e * (fc1 + x.ffn), x.rows * z.e * (2 * fc1 + x.ffn), 1, 1);
}

void add_expert_matmuls(BlockCost& cost, const BlockSizes& z, const MoeSizes& x) {
  constexpr auto kGrouped = MatmulKind::kGrouped;
  const double fc1 = z.fc1_per_ffn * x.ffn, rows_per_expert = x.rows / x.local_experts;
  add_activation(cost, z, x);
  cost.matmuls.push_back(
      {"experts' fc1", rows_per_expert, fc1, z.h, LinearSharding::kReplicated, 0, kGrouped, x.local_experts});
  cost.matmuls.push_back({"experts' fc2", rows_per_expert, z.h, x.ffn, LinearSharding::kReplicated, 0,
                          kGrouped, x.local_experts});
}

/// Shared experts and the sum with the routed ones; a gate is an fp32 matmul with one column.
void add_shared(BlockCost& cost, const BlockSizes& z) {
  const config::Moe& moe = z.m.moe;
  if (moe.shared_expert_intermediate_size == 0) return;
  add_mlp(cost, z, "shared fc1", "shared fc2",
          static_cast<double>(moe.shared_expert_intermediate_size) / z.t);
  cost.add_elementwise(3 * z.hidden, 0, 1, 0);
  if (!moe.shared_expert_gate) return;
  const double converted = z.r * z.h * (z.e + kFp32);
  cost.matmuls.push_back({"shared gate", z.r, 1, z.h, LinearSharding::kReplicated, 0, MatmulKind::kFp32});
  cost.add_elementwise(converted + 2 * z.hidden, converted + 4 * z.hidden, 4, 4);
}

}  // namespace

BlockCost expert_activation_cost(const config::Run& run) {
  const BlockSizes z(run);
  BlockCost cost;
  add_activation(cost, z, MoeSizes(run, z));
  return cost;
}

BlockCost shared_experts_cost(const config::Run& run) {
  BlockCost cost;
  add_shared(cost, BlockSizes(run));
  return cost;
}

BlockCost moe_cost(const config::Run& run) {
  const BlockSizes z(run);
  const MoeSizes x(run, z);
  BlockCost cost;
  cost.topk = x.topk;
  add_norm(cost, z);
  add_sandwich_norm(cost, z);
  add_router(cost, z, x);
  if (x.gathers)
    add_all_gather_dispatch(cost, z, x);
  else
    add_all_to_all_dispatch(cost, z, x);
  add_expert_matmuls(cost, z, x);
  add_shared(cost, z);
  return cost;
}

}  // namespace colonnade::cost
