// See dispatcher.h.
#include "colonnade/layers/moe/dispatcher.h"

#include <ATen/ATen.h>

#include <numeric>

#include "colonnade/base/error.h"
#include "colonnade/layers/mappings.h"
#include "colonnade/layout/expert_capacity.h"
#include "colonnade/ops/permute.h"
#include "colonnade/tensor/saved_value.h"

namespace colonnade::layers {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Counts = std::vector<std::int64_t>;

/// Copies counts to the host.
Counts to_host(const at::Tensor& counts) {
  Counts numbers(static_cast<std::size_t>(counts.numel()));
  const at::Tensor host = counts.cpu().contiguous();
  std::copy_n(host.const_data_ptr<std::int64_t>(), host.numel(), numbers.begin());
  return numbers;
}

std::int64_t sum(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

/// Settings of a dispatcher and the group that shares its experts.
struct DispatcherArgs {
  comm::Group group;
  std::int64_t etp, local_experts, num_experts;
  config::Moe moe;
  std::string name;
  std::shared_ptr<Turns> turns;

  [[nodiscard]] int expert_ranks() const { return group.size() / static_cast<int>(etp); }
  [[nodiscard]] int expert_rank() const { return group.rank() / static_cast<int>(etp); }
  /// Whether every expert computes exactly its capacity of rows.
  [[nodiscard]] bool pads_to_capacity(const ops::Routing& routing) const {
    return moe.pad_expert_input_to_capacity && routing.capacity > 0;
  }
};

// ---- all-gather ----

struct GatherRows : torch::autograd::Function<GatherRows> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const DispatcherArgs* args) {
    tensor::save_value(ctx, args);
    return gather_sequence(x, args->group, args->name + " / tokens");
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto* args = tensor::saved_value<const DispatcherArgs*>(ctx);
    return {reduce_scatter_sequence(grads[0], args->group, args->name + " / gradient of tokens"),
            at::Tensor()};
  }
};

class AllGatherDispatcher final : public Dispatcher {
 public:
  explicit AllGatherDispatcher(DispatcherArgs args) : args_(std::move(args)) {}

  [[nodiscard]] at::Tensor run(const at::Tensor& x, const ops::Routing& routing,
                               const ComputeExperts& compute,
                               const std::function<void()>& overlapped) const override {
    if (overlapped) overlapped();
    const bool alone = args_.group.size() == 1;
    const at::Tensor weights = alone ? routing.weights : GatherRows::apply(routing.weights, &args_);
    const at::Tensor experts = gather_sequence(routing.experts, args_.group, args_.name + " / experts");
    const ops::ExpertRange range{args_.expert_rank() * args_.local_experts,
                                 args_.local_experts,
                                 args_.num_experts,
                                 routing.capacity * args_.group.size(),
                                 args_.pads_to_capacity(routing),
                                 layout::assumed_share(args_.moe, args_.expert_rank(), args_.expert_ranks())};
    const ops::PermuteMap order = ops::make_permute_map(experts, range);
    const Counts counts = counts_of(order, range);
    at::Tensor rows = ops::permute(alone ? x : GatherRows::apply(x, &args_), order);
    rows = compute(std::move(rows), counts);
    return reduce_scatter_to_sp_region(ops::unpermute(rows, weights, order), args_.group);
  }

 private:
  /// Rows of each expert; on meta all rows are the first one's, as only their sum matters.
  static Counts counts_of(const ops::PermuteMap& order, const ops::ExpertRange& range) {
    Counts counts(static_cast<std::size_t>(range.count), range.capacity);
    if (range.padded) return counts;
    if (!order.counts.is_meta()) return to_host(order.counts);
    counts.assign(counts.size(), 0);
    counts.front() = order.token.size(0);
    return counts;
  }

  DispatcherArgs args_;
};

// ---- all-to-all ----

/// An all-to-all in flight; both buffers must live until it ends.
struct InFlightRows {
  at::Tensor outgoing, incoming;
  comm::Work work;
  Turns* turns = nullptr;

  /// In a pair of passes the other one computes first. The rows of both are in flight then: one's dispatch,
  /// the other's combine.
  at::Tensor wait() {
    if (turns != nullptr) turns->hand_over();
    work.wait();
    outgoing = at::Tensor();
    return std::move(incoming);
  }
};

/// index_select of rows; on meta, where LibTorch's C++ API has none, an empty result.
at::Tensor select_rows(const at::Tensor& rows, const at::Tensor& source) {
  return rows.is_meta() ? at::empty({source.size(0), rows.size(1)}, rows.options())
                        : rows.index_select(0, source);
}

/// Row counts of an all-to-all over the group and the reordering of received rows by expert.
struct AllToAllPlan {
  const DispatcherArgs* args;
  comm::Rows rows;             ///< counts of the dispatch
  at::Tensor source, inverse;  ///< int64: row i by expert is received row source[i]; its inverse

  [[nodiscard]] at::Tensor ordered(const at::Tensor& incoming) const { return select_rows(incoming, source); }
  [[nodiscard]] InFlightRows dispatch_rows(const at::Tensor& x, const char* what) const {
    return start(x.contiguous(), rows, what);
  }
  [[nodiscard]] InFlightRows combine_rows(const at::Tensor& x, const char* what) const {
    return start(select_rows(x, inverse), {.received = rows.sent, .sent = rows.received}, what);
  }

 private:
  [[nodiscard]] InFlightRows start(const at::Tensor& outgoing, const comm::Rows& numbers,
                                   const char* what) const {
    InFlightRows t{.outgoing = outgoing,
                   .incoming = at::empty({sum(numbers.received), outgoing.size(1)}, outgoing.options()),
                   .work = {},
                   .turns = args->turns.get()};
    t.work = args->group.all_to_all(t.incoming, outgoing, numbers, args->name + what);
    return t;
  }
};

/// A dispatch that one autograd function begins and a later one ends.
struct DispatchState {
  AllToAllPlan plan;
  InFlightRows rows;
};

/// Sends the rows; its backward pass waits for the gradients that DispatchEnd's has sent. An empty tensor
/// links the two in the graph, since the numbers of sent and received rows differ.
struct DispatchBegin : torch::autograd::Function<DispatchBegin> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x,
                            const std::shared_ptr<DispatchState>& dispatch) {
    tensor::save_value(ctx, dispatch);
    dispatch->rows = dispatch->plan.dispatch_rows(x, " / rows to their experts");
    return at::empty({0}, x.options());
  }
  static variable_list backward(AutogradContext* ctx, const variable_list&) {
    return {tensor::saved_value<std::shared_ptr<DispatchState>>(ctx)->rows.wait(), at::Tensor()};
  }
};

struct DispatchEnd : torch::autograd::Function<DispatchEnd> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& /*token*/,
                            const std::shared_ptr<DispatchState>& dispatch) {
    tensor::save_value(ctx, dispatch);
    return dispatch->plan.ordered(dispatch->rows.wait());
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto dispatch = tensor::saved_value<std::shared_ptr<DispatchState>>(ctx);
    dispatch->rows = dispatch->plan.combine_rows(grads[0], " / gradients of rows back");
    return {at::empty({0}, grads[0].options()), at::Tensor()};
  }
};

struct Combine : torch::autograd::Function<Combine> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const AllToAllPlan& plan) {
    tensor::save_value(ctx, plan);
    return plan.combine_rows(x, " / rows back to their tokens").wait();
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto plan = tensor::saved_value<AllToAllPlan>(ctx);
    return {plan.ordered(plan.dispatch_rows(grads[0], " / gradients of rows to their experts").wait()),
            at::Tensor()};
  }
};

class AllToAllDispatcher final : public Dispatcher {
 public:
  explicit AllToAllDispatcher(DispatcherArgs args) : args_(std::move(args)) {}

  /// Rows are sent ordered by rank and local expert, and reordered on receipt by expert, then by rank.
  [[nodiscard]] at::Tensor run(const at::Tensor& x, const ops::Routing& routing,
                               const ComputeExperts& compute,
                               const std::function<void()>& overlapped) const override {
    const std::int64_t all = ranks() * args_.local_experts;
    const ops::ExpertRange range{0, all, all, routing.capacity, args_.pads_to_capacity(routing)};
    const ops::PermuteMap order = ops::make_permute_map(expert_slots(routing.experts), range);
    const at::Tensor weights = repeat_for_etp(routing.weights);
    at::Tensor rows = ops::permute(x, order);
    const Counts sent = counts_of(order, range);
    if (ranks() == 1) {
      if (overlapped) overlapped();
      rows = compute(std::move(rows), sent);
      return ops::unpermute(rows, weights, order);
    }
    const Counts received = range.padded ? sent : exchange_counts(order.counts, sent);
    const AllToAllPlan plan = make_plan(sent, received, x.device());
    rows = begin_and_end_dispatch(std::move(rows), plan, overlapped);
    Counts counts(static_cast<std::size_t>(args_.local_experts));
    for (std::size_t i = 0; i < received.size(); ++i) counts[i % counts.size()] += received[i];
    rows = compute(std::move(rows), counts);
    rows = Combine::apply(rows, plan);
    return ops::unpermute(rows, weights, order);
  }

 private:
  [[nodiscard]] std::int64_t ranks() const { return args_.group.size(); }

  /// Autograd runs nodes in reverse order of creation, so `overlapped` runs backward between both ends.
  [[nodiscard]] static at::Tensor begin_and_end_dispatch(at::Tensor rows, const AllToAllPlan& plan,
                                                         const std::function<void()>& overlapped) {
    const auto dispatch = std::make_shared<DispatchState>(DispatchState{.plan = plan, .rows = {}});
    const at::Tensor token = DispatchBegin::apply(rows, dispatch);
    if (overlapped) overlapped();
    return DispatchEnd::apply(token, dispatch);
  }

  /// Repeats each entry for each of the etp ranks.
  [[nodiscard]] at::Tensor repeat_for_etp(const at::Tensor& x) const {
    return args_.etp == 1 ? x : x.unsqueeze(-1).expand({-1, -1, args_.etp}).reshape({x.size(0), -1});
  }

  /// Expert slots, one per expert and etp rank: each of a token's choices takes one slot on each etp rank
  /// that shares the expert. Slots of dropped pairs come last. experts [n, k] -> [n, k * etp].
  [[nodiscard]] at::Tensor expert_slots(const at::Tensor& experts) const {
    if (args_.etp == 1 || experts.is_meta()) return repeat_for_etp(experts);
    const at::Tensor block = experts.div(args_.local_experts, "floor");
    const at::Tensor first = experts + block * ((args_.etp - 1) * args_.local_experts);
    const at::Tensor shares = at::arange(args_.etp, experts.options()).mul_(args_.local_experts);
    return (first.unsqueeze(-1) + shares).flatten(1);
  }

  /// Rows sent to each expert, by rank; on meta as layout::assumed_rows says.
  [[nodiscard]] Counts counts_of(const ops::PermuteMap& order, const ops::ExpertRange& range) const {
    if (range.padded) return Counts(static_cast<std::size_t>(range.count), range.capacity);
    if (!order.counts.is_meta()) return to_host(order.counts);
    const Counts by_expert =
        layout::assumed_rows(args_.moe, order.token.size(0) / args_.etp, args_.expert_ranks());
    Counts counts;
    for (int m = 0; m < ranks(); ++m) {
      const auto first = by_expert.begin() + m / args_.etp * args_.local_experts;
      counts.insert(counts.end(), first, first + args_.local_experts);
    }
    return counts;
  }

  /// Rows received for each of this rank's experts, by sending rank; on meta all ranks send the same number.
  [[nodiscard]] Counts exchange_counts(const at::Tensor& own, const Counts& sent) const {
    at::Tensor others = at::empty_like(own);
    args_.group.all_to_all(others, own, args_.name + " / numbers of rows").wait();
    if (!own.is_meta()) return to_host(others);
    const auto first = sent.begin() + args_.group.rank() * args_.local_experts;
    Counts received;
    for (int m = 0; m < ranks(); ++m) received.insert(received.end(), first, first + args_.local_experts);
    return received;
  }

  [[nodiscard]] AllToAllPlan make_plan(const Counts& sent, const Counts& received,
                                       const at::Device& device) const {
    AllToAllPlan plan{.args = &args_, .rows = {}, .source = {}, .inverse = {}};
    const auto experts = static_cast<std::size_t>(args_.local_experts);
    for (std::size_t m = 0; m < static_cast<std::size_t>(ranks()); ++m) {
      const auto begin = static_cast<std::ptrdiff_t>(m * experts);
      const auto end = begin + static_cast<std::ptrdiff_t>(experts);
      plan.rows.sent.push_back(std::accumulate(sent.begin() + begin, sent.begin() + end, std::int64_t{0}));
      plan.rows.received.push_back(
          std::accumulate(received.begin() + begin, received.begin() + end, std::int64_t{0}));
    }
    if (device.is_meta()) {
      plan.source = at::empty({sum(received)}, at::dtype(at::kLong).device(device));
      plan.inverse = at::empty_like(plan.source);
      return plan;
    }
    Counts begins(received.size());
    std::exclusive_scan(received.begin(), received.end(), begins.begin(), std::int64_t{0});
    const at::Tensor source = at::empty({sum(received)}, at::kLong), inverse = at::empty_like(source);
    auto* source_of = source.mutable_data_ptr<std::int64_t>();
    auto* inverse_of = inverse.mutable_data_ptr<std::int64_t>();
    std::int64_t row = 0;
    for (std::size_t e = 0; e < experts; ++e)
      for (std::size_t i = e; i < received.size(); i += experts)
        for (std::int64_t j = begins[i]; j < begins[i] + received[i]; ++j, ++row) {
          source_of[row] = j;
          inverse_of[j] = row;
        }
    plan.source = source.to(device);
    plan.inverse = inverse.to(device);
    return plan;
  }

  DispatcherArgs args_;
};

}  // namespace

std::unique_ptr<Dispatcher> make_dispatcher(const config::Moe& moe, const Context& context,
                                            std::string name) {
  const std::int64_t num_experts = moe.num_experts;
  const std::int64_t blocks = context.dispatch.size() / context.etp;
  COL_CHECK(num_experts % blocks == 0,
            "{}: the number of experts must divide by the expert-parallel size; got {} and {}", name,
            num_experts, blocks);
  DispatcherArgs args{.group = context.dispatch,
                      .etp = context.etp,
                      .local_experts = num_experts / blocks,
                      .num_experts = num_experts,
                      .moe = moe,
                      .name = std::move(name),
                      .turns = context.turns};
  if (moe.token_dispatcher_type == config::TokenDispatcher::kAllGather)
    return std::make_unique<AllGatherDispatcher>(std::move(args));
  return std::make_unique<AllToAllDispatcher>(std::move(args));
}

}  // namespace colonnade::layers
