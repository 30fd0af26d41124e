// Recording and dropping of reductions: a factory that wraps every backend.
#pragma once

#include <ATen/ATen.h>

#include <compare>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "colonnade/comm/backend.h"
#include "colonnade/comm/communicators.h"

namespace colonnade::test {

/// A reduction over a group, with the caller's name. Operation "recv": the received term of a ring reduction.
struct Reduction {
  std::string axes, operation, what;
  auto operator<=>(const Reduction&) const = default;
};

/// Reductions of a run, shared by its ranks.
struct Reductions {
  std::optional<Reduction> dropped;  ///< members keep their own values; a dropped "recv" yields zeros
  std::set<Reduction> seen;
  std::mutex mutex;

  /// Records the reduction; returns whether to drop it.
  bool drops(const comm::Call& call) {
    Reduction reduction{call.axes, std::string(call.operation), call.what};
    const bool drop = dropped == reduction;
    const std::lock_guard lock(mutex);
    seen.insert(std::move(reduction));
    return drop;
  }
};

class ReducingBackend final : public comm::Backend {
 public:
  ReducingBackend(std::shared_ptr<comm::Backend> inner, Reductions& reductions)
      : Backend(inner->ranks(), inner->rank()), inner_(std::move(inner)), reductions_(reductions) {}

  [[nodiscard]] std::string_view name() const override { return inner_->name(); }
  [[nodiscard]] at::Device device() const override { return inner_->device(); }

  comm::Work all_reduce(at::Tensor tensor, comm::Reduce op, const comm::Call& call) override {
    if (reductions_.drops(call)) return {};
    return inner_->all_reduce(tensor, op, call);
  }
  comm::Work reduce_scatter(at::Tensor out, at::Tensor in, const comm::Call& call) override {
    if (!reductions_.drops(call)) return inner_->reduce_scatter(out, in, call);
    const at::Tensor own = in.view({size(), -1})[rank()];
    if (own.data_ptr() != out.data_ptr()) out.view({-1}).copy_(own);
    return {};
  }
  comm::Work recv(at::Tensor tensor, int from, int tag, const comm::Call& call) override {
    const bool is_reduction = call.what.ends_with("gradients of keys and values");
    if (!is_reduction || !reductions_.drops(call)) return inner_->recv(tensor, from, tag, call);
    inner_->recv(tensor, from, tag, call).wait();
    tensor.zero_();
    return {};
  }

  comm::Work all_gather(at::Tensor out, at::Tensor in, const comm::Call& call) override {
    return inner_->all_gather(out, in, call);
  }
  comm::Work broadcast(at::Tensor tensor, int root, const comm::Call& call) override {
    return inner_->broadcast(tensor, root, call);
  }
  /// The receiver sums exchanged gradients; if dropped, the other members' are zero.
  comm::Work all_to_all(at::Tensor out, at::Tensor in, const comm::Rows& rows,
                        const comm::Call& call) override {
    const bool is_reduction = call.what.starts_with("gradient bucket");
    if (!is_reduction || !reductions_.drops(call)) return inner_->all_to_all(out, in, rows, call);
    out.zero_();
    out.view({size(), -1})[rank()].copy_(in.view({size(), -1})[rank()]);
    return {};
  }
  comm::Work send(at::Tensor tensor, int to, int tag, const comm::Call& call) override {
    return inner_->send(tensor, to, tag, call);
  }
  void barrier(const comm::Call& call) override { inner_->barrier(call); }

 private:
  std::shared_ptr<comm::Backend> inner_;
  Reductions& reductions_;
};

/// Wraps the groups of `inner` with `reductions`.
class ReducingFactory final : public comm::GroupFactory {
 public:
  ReducingFactory(std::shared_ptr<comm::GroupFactory> inner, Reductions& reductions)
      : inner_(std::move(inner)), reductions_(reductions) {}
  std::shared_ptr<comm::Backend> make(const std::vector<int>& ranks, int my_index,
                                      const std::string& name) override {
    return std::make_shared<ReducingBackend>(inner_->make(ranks, my_index, name), reductions_);
  }

 private:
  std::shared_ptr<comm::GroupFactory> inner_;
  Reductions& reductions_;
};

/// For train::LayoutRun::wrap_factory; `reductions` must outlive the run.
inline auto between(Reductions& reductions) {
  return [&reductions](std::shared_ptr<comm::GroupFactory> inner) {
    return std::make_shared<ReducingFactory>(std::move(inner), reductions);
  };
}

}  // namespace colonnade::test
