// A mixture of experts: router, rows to experts and back, products of this rank's experts. With k choices of
// a token, f columns of an expert, E experts, ep expert ranks and etp expert tensor ranks, R = r k etp rows
// leave a rank (fewer with a capacity below 1, more filled up to one), and R u arrive, R u ep / E for each of
// its E / ep experts. u is what routing is assumed to bring the fullest rank over the mean, 1 unless
// --expert-imbalance says otherwise: the others wait for it.
#include "colonnade/cost/work_sizes.h"
#include "colonnade/layout/expert_capacity.h"

namespace colonnade::cost {
namespace {

constexpr double kFp32 = 4, kInt64 = 8;

struct ExpertSizes {
  ExpertSizes(const config::Run& run, const WorkSizes& z)
      : k(static_cast<double>(run.model.moe.router_topk)),
        experts(static_cast<double>(run.model.moe.num_experts)),
        ep(run.parallel.expert_model_parallel_size),
        etp(run.parallel.expert_tensor()),
        ranks(ep * etp),
        local(experts / ep),
        fullest(layout::assumed_share(run.model.moe, 0, run.parallel.expert_model_parallel_size)),
        chosen(static_cast<double>(layout::expert_rows(run.model.moe, static_cast<std::int64_t>(z.r))) * etp),
        rows(chosen * fullest),
        ffn(static_cast<double>(run.model.moe.ffn_hidden_size) / etp),
        chosen_bytes(chosen * z.h * z.e),
        row_bytes(rows * z.h * z.e),
        gathers(run.model.moe.token_dispatcher_type == config::TokenDispatcher::kAllGather) {}
  double k, experts, ep, etp, ranks, local;
  double fullest, chosen, rows;  ///< rows that leave this rank, and those of its experts
  double ffn, chosen_bytes, row_bytes;
  bool gathers;
};

/// A product in fp32 of the converted input; scores and choices in a few passes over [r, E].
void add_router(Work& work, const WorkSizes& z, const ExpertSizes& x) {
  const double converted = z.r * z.h * (z.e + kFp32), scores = z.r * x.experts * kFp32;
  work.products.push_back({"router", z.r, x.experts, z.h, LinearCut::kWhole, 0, ProductKind::kWide});
  work.pass(converted + 4 * scores, 2 * converted + 4 * scores, 12, 8);
}

/// Rows of a token's choices out of its own (read and written), and their weighted sum back; backward the
/// rows of the sum's gradient, for which the weights' gradients read the rows again, and the sum of
/// gradients.
void add_permutation(Work& work, const WorkSizes& z, double rows, double tokens) {
  const double sums = tokens * z.h * z.e;
  work.pass(3 * rows + sums, 4 * rows + sums, 4, 4);
}

/// Rows are sent to their experts, laid in the experts' order, laid back and sent home, each way again
/// backward; numbers of rows go before them.
void add_exchange(Work& work, const WorkSizes& z, const ExpertSizes& x) {
  add_permutation(work, z, x.chosen_bytes, z.r);
  if (x.ranks == 1) return;
  if (!z.m.moe.pad_expert_input_to_capacity)
    work.collectives.push_back({Among::kExperts, true, x.experts * x.etp * kInt64, 1, 0});
  work.collectives.push_back({Among::kExperts, true, x.chosen_bytes, 2, 2, x.fullest});
  work.pass(4 * x.row_bytes, 4 * x.row_bytes, 2, 2);
}

/// All tokens of the group are gathered with their choices and weights, and sums are scattered.
void add_gathering(Work& work, const WorkSizes& z, const ExpertSizes& x) {
  add_permutation(work, z, x.row_bytes, z.r * x.ranks);
  if (x.ranks == 1) return;
  work.collectives.push_back({Among::kExperts, false, x.ranks * z.r * x.k * (kInt64 + kFp32), 1, 0});
  work.collectives.push_back({Among::kExperts, false, x.ranks * z.r * x.k * kFp32, 0, 1});
  work.collectives.push_back({Among::kExperts, false, x.ranks * z.hidden, 2, 2});
}

/// Reads fc1's output, writes fc2's input.
void add_activation(Work& work, const WorkSizes& z, const ExpertSizes& x) {
  const double wide = z.up * x.ffn;
  work.pass(x.rows * z.e * (wide + x.ffn), x.rows * z.e * (2 * wide + x.ffn), 1, 1);
}

void add_products(Work& work, const WorkSizes& z, const ExpertSizes& x) {
  constexpr auto kGrouped = ProductKind::kGrouped;
  const double wide = z.up * x.ffn, each = x.rows / x.local;
  add_activation(work, z, x);
  work.products.push_back({"experts' fc1", each, wide, z.h, LinearCut::kWhole, 0, kGrouped, x.local});
  work.products.push_back({"experts' fc2", each, z.h, x.ffn, LinearCut::kWhole, 0, kGrouped, x.local});
}

/// The sum of both results; a gate is a product of one column in fp32.
void add_shared(Work& work, const WorkSizes& z) {
  const config::Moe& moe = z.m.moe;
  if (moe.shared_expert_intermediate_size == 0) return;
  add_mlp(work, z, "shared fc1", "shared fc2",
          static_cast<double>(moe.shared_expert_intermediate_size) / z.t);
  work.pass(3 * z.hidden, 0, 1, 0);
  if (!moe.shared_expert_gate) return;
  const double converted = z.r * z.h * (z.e + kFp32);
  work.products.push_back({"shared gate", z.r, 1, z.h, LinearCut::kWhole, 0, ProductKind::kWide});
  work.pass(converted + 2 * z.hidden, converted + 4 * z.hidden, 4, 4);
}

}  // namespace

Work expert_activation_work(const config::Run& run) {
  const WorkSizes z(run);
  Work work;
  add_activation(work, z, ExpertSizes(run, z));
  return work;
}

Work shared_experts_work(const config::Run& run) {
  Work work;
  add_shared(work, WorkSizes(run));
  return work;
}

Work experts_work(const config::Run& run) {
  const WorkSizes z(run);
  const ExpertSizes x(run, z);
  Work work;
  work.choices = x.k;
  add_norm(work, z);
  add_sandwich_norm(work, z);
  add_router(work, z, x);
  if (x.gathers)
    add_gathering(work, z, x);
  else
    add_exchange(work, z, x);
  add_products(work, z, x);
  add_shared(work, z);
  return work;
}

}  // namespace colonnade::cost
