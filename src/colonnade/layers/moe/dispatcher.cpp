// See dispatcher.h.
#include "colonnade/layers/moe/dispatcher.h"

#include <ATen/ATen.h>

#include <numeric>

#include "colonnade/base/error.h"
#include "colonnade/layers/regions.h"
#include "colonnade/layout/expert_capacity.h"
#include "colonnade/ops/permute.h"
#include "colonnade/tensor/kept.h"

namespace colonnade::layers {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Counts = std::vector<std::int64_t>;

/// Numbers on the host; those of meta are assumed.
Counts on_host(const at::Tensor& counts) {
  Counts numbers(static_cast<std::size_t>(counts.numel()));
  const at::Tensor host = counts.cpu().contiguous();
  std::copy_n(host.const_data_ptr<std::int64_t>(), host.numel(), numbers.begin());
  return numbers;
}

std::int64_t sum(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

/// What is known of a group with experts.
struct DispatchSite {
  comm::Group group;
  std::int64_t etp, local_experts, all_experts;
  config::Moe moe;
  std::string name;

  [[nodiscard]] int expert_ranks() const { return group.size() / static_cast<int>(etp); }
  [[nodiscard]] int expert_rank() const { return group.rank() / static_cast<int>(etp); }
  /// Whether every expert computes as many rows.
  [[nodiscard]] bool fills(const ops::Routing& routing) const {
    return moe.pad_expert_input_to_capacity && routing.capacity > 0;
  }
};

// ---- by gathering ----

struct GatherRows : torch::autograd::Function<GatherRows> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const DispatchSite* site) {
    tensor::keep(ctx, site);
    return gather_sequence(x, site->group, site->name + " / tokens");
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto* site = tensor::kept<const DispatchSite*>(ctx);
    return {reduce_scatter_sequence(grads[0], site->group, site->name + " / gradient of tokens"),
            at::Tensor()};
  }
};

class ByGathering final : public Dispatcher {
 public:
  explicit ByGathering(DispatchSite site) : site_(std::move(site)) {}

  [[nodiscard]] at::Tensor run(const at::Tensor& x, const ops::Routing& routing,
                               const ComputeExperts& compute,
                               const std::function<void()>& beside) const override {
    if (beside) beside();
    const bool alone = site_.group.size() == 1;
    const at::Tensor weights = alone ? routing.weights : GatherRows::apply(routing.weights, &site_);
    const at::Tensor experts = gather_sequence(routing.experts, site_.group, site_.name + " / experts");
    const ops::ExpertRange range{site_.expert_rank() * site_.local_experts,
                                 site_.local_experts,
                                 site_.all_experts,
                                 routing.capacity * site_.group.size(),
                                 site_.fills(routing),
                                 layout::assumed_share(site_.moe, site_.expert_rank(), site_.expert_ranks())};
    const ops::RowOrder order = ops::order_by_expert(experts, range);
    const Counts counts = counts_of(order, range);
    at::Tensor rows = ops::permute(alone ? x : GatherRows::apply(x, &site_), order);
    rows = compute(std::move(rows), counts);
    return scatter_partial(ops::unpermute(rows, weights, order), site_.group);
  }

 private:
  /// Rows of each expert; on meta nobody asks which has how many.
  static Counts counts_of(const ops::RowOrder& order, const ops::ExpertRange& range) {
    Counts counts(static_cast<std::size_t>(range.count), range.most);
    if (range.filled) return counts;
    if (!order.counts.is_meta()) return on_host(order.counts);
    counts.assign(counts.size(), 0);
    counts.front() = order.token.size(0);
    return counts;
  }

  DispatchSite site_;
};

// ---- by exchange ----

/// Rows on their way; both ends must live until they have arrived.
struct Travelling {
  at::Tensor leaving, arrived;
  comm::Work work;

  at::Tensor wait() {
    work.wait();
    leaving = at::Tensor();
    return std::move(arrived);
  }
};

/// Rows in another order, which LibTorch's C++ side cannot take on meta.
at::Tensor taken_rows(const at::Tensor& rows, const at::Tensor& from) {
  return rows.is_meta() ? at::empty({from.size(0), rows.size(1)}, rows.options())
                        : rows.index_select(0, from);
}

/// An exchange over the group and the order of what arrived.
struct Exchange {
  const DispatchSite* site;
  comm::Rows rows;          ///< on the way there
  at::Tensor from, places;  ///< int64: row i there is arrived row from[i]; places is its inverse

  [[nodiscard]] at::Tensor ordered(const at::Tensor& arrived) const { return taken_rows(arrived, from); }
  [[nodiscard]] Travelling send(const at::Tensor& x, const char* what) const {
    return depart(x.contiguous(), rows, what);
  }
  [[nodiscard]] Travelling send_back(const at::Tensor& x, const char* what) const {
    return depart(taken_rows(x, places), {.received = rows.sent, .sent = rows.received}, what);
  }

 private:
  [[nodiscard]] Travelling depart(const at::Tensor& leaving, const comm::Rows& numbers,
                                  const char* what) const {
    Travelling t{.leaving = leaving,
                 .arrived = at::empty({sum(numbers.received), leaving.size(1)}, leaving.options()),
                 .work = {}};
    t.work = site->group.all_to_all(t.arrived, leaving, numbers, site->name + what);
    return t;
  }
};

/// An exchange that one autograd node begins and a later one ends.
struct Journey {
  Exchange exchange;
  Travelling rows;
};

/// Rows set out; in the backward pass it waits for the gradients that Arrive has sent. What leads from one to
/// the other in the graph is an empty tensor, for as many rows leave as arrive only by chance.
struct SetOut : torch::autograd::Function<SetOut> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x,
                            const std::shared_ptr<Journey>& journey) {
    tensor::keep(ctx, journey);
    journey->rows = journey->exchange.send(x, " / rows to their experts");
    return at::empty({0}, x.options());
  }
  static variable_list backward(AutogradContext* ctx, const variable_list&) {
    return {tensor::kept<std::shared_ptr<Journey>>(ctx)->rows.wait(), at::Tensor()};
  }
};

struct Arrive : torch::autograd::Function<Arrive> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& /*begun*/,
                            const std::shared_ptr<Journey>& journey) {
    tensor::keep(ctx, journey);
    return journey->exchange.ordered(journey->rows.wait());
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto journey = tensor::kept<std::shared_ptr<Journey>>(ctx);
    journey->rows = journey->exchange.send_back(grads[0], " / gradients of rows back");
    return {at::empty({0}, grads[0].options()), at::Tensor()};
  }
};

struct Back : torch::autograd::Function<Back> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const Exchange& exchange) {
    tensor::keep(ctx, exchange);
    return exchange.send_back(x, " / rows back to their tokens").wait();
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto exchange = tensor::kept<Exchange>(ctx);
    return {exchange.ordered(exchange.send(grads[0], " / gradients of rows to their experts").wait()),
            at::Tensor()};
  }
};

class ByExchange final : public Dispatcher {
 public:
  explicit ByExchange(DispatchSite site) : site_(std::move(site)) {}

  /// Rows leave ordered by member and by expert there; those that arrive are ordered by expert, then by
  /// member.
  [[nodiscard]] at::Tensor run(const at::Tensor& x, const ops::Routing& routing,
                               const ComputeExperts& compute,
                               const std::function<void()>& beside) const override {
    const std::int64_t all = members() * site_.local_experts;
    const ops::ExpertRange range{0, all, all, routing.capacity, site_.fills(routing)};
    const ops::RowOrder order = ops::order_by_expert(seats(routing.experts), range);
    const at::Tensor weights = repeated(routing.weights);
    at::Tensor rows = ops::permute(x, order);
    const Counts sent = counts_of(order, range);
    if (members() == 1) {
      if (beside) beside();
      rows = compute(std::move(rows), sent);
      return ops::unpermute(rows, weights, order);
    }
    const Counts received = range.filled ? sent : ask_counts(order.counts, sent);
    const Exchange exchange = plan(sent, received, x.device());
    rows = send_rows(std::move(rows), exchange, beside);
    Counts counts(static_cast<std::size_t>(site_.local_experts));
    for (std::size_t i = 0; i < received.size(); ++i) counts[i % counts.size()] += received[i];
    rows = compute(std::move(rows), counts);
    rows = Back::apply(rows, exchange);
    return ops::unpermute(rows, weights, order);
  }

 private:
  [[nodiscard]] std::int64_t members() const { return site_.group.size(); }

  /// The shape of the graph decides what runs while gradients travel: nodes run in the reverse of the order
  /// in which they were made.
  [[nodiscard]] static at::Tensor send_rows(at::Tensor rows, const Exchange& exchange,
                                            const std::function<void()>& beside) {
    const auto journey = std::make_shared<Journey>(Journey{.exchange = exchange, .rows = {}});
    const at::Tensor begun = SetOut::apply(rows, journey);
    if (beside) beside();
    return Arrive::apply(begun, journey);
  }

  /// Each number once for each of the etp members.
  [[nodiscard]] at::Tensor repeated(const at::Tensor& x) const {
    return site_.etp == 1 ? x : x.unsqueeze(-1).expand({-1, -1, site_.etp}).reshape({x.size(0), -1});
  }

  /// A seat is an expert on one member: each choice of a token takes one on each of the etp members that
  /// share the expert; those of dropped pairs lie behind all others. experts [n, k] -> [n, k * etp].
  [[nodiscard]] at::Tensor seats(const at::Tensor& experts) const {
    if (site_.etp == 1 || experts.is_meta()) return repeated(experts);
    const at::Tensor block = experts.div(site_.local_experts, "floor");
    const at::Tensor first = experts + block * ((site_.etp - 1) * site_.local_experts);
    const at::Tensor shares = at::arange(site_.etp, experts.options()).mul_(site_.local_experts);
    return (first.unsqueeze(-1) + shares).flatten(1);
  }

  /// Rows for each expert on each member, by member; on meta those of an expert are assumed.
  [[nodiscard]] Counts counts_of(const ops::RowOrder& order, const ops::ExpertRange& range) const {
    if (range.filled) return Counts(static_cast<std::size_t>(range.count), range.most);
    if (!order.counts.is_meta()) return on_host(order.counts);
    const Counts by_expert =
        layout::assumed_rows(site_.moe, order.token.size(0) / site_.etp, site_.expert_ranks());
    Counts counts;
    for (int m = 0; m < members(); ++m) {
      const auto first = by_expert.begin() + m / site_.etp * site_.local_experts;
      counts.insert(counts.end(), first, first + site_.local_experts);
    }
    return counts;
  }

  /// Rows that every member sends to each of this rank's experts, by member; on meta all send alike.
  [[nodiscard]] Counts ask_counts(const at::Tensor& own, const Counts& sent) const {
    at::Tensor others = at::empty_like(own);
    site_.group.all_to_all(others, own, site_.name + " / numbers of rows").wait();
    if (!own.is_meta()) return on_host(others);
    const auto first = sent.begin() + site_.group.rank() * site_.local_experts;
    Counts received;
    for (int m = 0; m < members(); ++m) received.insert(received.end(), first, first + site_.local_experts);
    return received;
  }

  [[nodiscard]] Exchange plan(const Counts& sent, const Counts& received, const at::Device& device) const {
    Exchange exchange{.site = &site_, .rows = {}, .from = {}, .places = {}};
    const auto experts = static_cast<std::size_t>(site_.local_experts);
    for (std::size_t m = 0; m < static_cast<std::size_t>(members()); ++m) {
      const auto begin = static_cast<std::ptrdiff_t>(m * experts);
      const auto end = begin + static_cast<std::ptrdiff_t>(experts);
      exchange.rows.sent.push_back(
          std::accumulate(sent.begin() + begin, sent.begin() + end, std::int64_t{0}));
      exchange.rows.received.push_back(
          std::accumulate(received.begin() + begin, received.begin() + end, std::int64_t{0}));
    }
    if (device.is_meta()) {
      exchange.from = at::empty({sum(received)}, at::dtype(at::kLong).device(device));
      exchange.places = at::empty_like(exchange.from);
      return exchange;
    }
    Counts begins(received.size());
    std::exclusive_scan(received.begin(), received.end(), begins.begin(), std::int64_t{0});
    const at::Tensor from = at::empty({sum(received)}, at::kLong), places = at::empty_like(from);
    auto* from_of = from.mutable_data_ptr<std::int64_t>();
    auto* place_of = places.mutable_data_ptr<std::int64_t>();
    std::int64_t row = 0;
    for (std::size_t e = 0; e < experts; ++e)
      for (std::size_t i = e; i < received.size(); i += experts)
        for (std::int64_t j = begins[i]; j < begins[i] + received[i]; ++j, ++row) {
          from_of[row] = j;
          place_of[j] = row;
        }
    exchange.from = from.to(device);
    exchange.places = places.to(device);
    return exchange;
  }

  DispatchSite site_;
};

}  // namespace

std::unique_ptr<Dispatcher> make_dispatcher(const config::Moe& moe, const Context& context,
                                            std::string name) {
  const std::int64_t num_experts = moe.num_experts;
  const std::int64_t blocks = context.experts.size() / context.expert_tensor;
  COL_CHECK(num_experts % blocks == 0,
            "{}: the experts must divide by the expert-parallel size; got {} and {}", name, num_experts,
            blocks);
  DispatchSite site{context.experts, context.expert_tensor, num_experts / blocks, num_experts, moe,
                    std::move(name)};
  if (moe.token_dispatcher_type == config::TokenDispatcher::kAllGather)
    return std::make_unique<ByGathering>(std::move(site));
  return std::make_unique<ByExchange>(std::move(site));
}

}  // namespace colonnade::layers
