// Backend that records calls instead of communicating.
#include "colonnade/comm/null_backend.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "colonnade/comm/backend.h"

namespace colonnade::comm {

namespace {

class NullBackend final : public Backend {
 public:
  NullBackend(std::shared_ptr<CallLog> log, std::vector<int> ranks, int rank)
      : Backend(std::move(ranks), rank),
        log_(std::move(log)),
        members_(std::make_shared<const std::vector<int>>(Backend::ranks())) {}

  [[nodiscard]] std::string_view name() const override { return "null"; }

  Work all_reduce(at::Tensor tensor, Reduce, const Call& call) override { return record(tensor, call); }
  Work all_gather(at::Tensor out, at::Tensor in, const Call& call) override {
    if (has_memory(out)) out.view({size(), -1}).copy_(in.reshape({1, -1}).clone());
    return record(in, call);
  }
  Work reduce_scatter(at::Tensor out, at::Tensor in, const Call& call) override {
    if (has_memory(out)) out.view({-1}).copy_(in.view({size(), -1})[rank()].clone());
    return record(in, call);
  }
  Work broadcast(at::Tensor tensor, int root, const Call& call) override {
    return record(tensor, call, [&](LoggedCall& logged) { logged.peer = root; });
  }
  /// Each peer is assumed to send this rank's rows for itself, truncated or zero-padded to the expected
  /// count.
  Work all_to_all(at::Tensor out, at::Tensor in, const Rows& rows, const Call& call) override {
    if (has_memory(out)) exchange(out, in, rows);
    return record(in, call, [&](LoggedCall& logged) { logged.rows = rows; });
  }
  /// Keeps the tensor alive until wait(), like a real send.
  Work send(at::Tensor tensor, int to, int tag, const Call& call) override {
    message(tensor, to, tag, call);
    return Work([tensor] {});
  }
  Work recv(at::Tensor tensor, int from, int tag, const Call& call) override {
    return message(tensor, from, tag, call);
  }
  void barrier(const Call& call) override { record({}, call); }

 private:
  static bool has_memory(const at::Tensor& tensor) { return !tensor.is_meta() && tensor.numel() > 0; }
  void exchange(at::Tensor& out, const at::Tensor& in, const Rows& rows) const {
    const auto me = static_cast<std::size_t>(rank());
    const std::int64_t first =
        std::accumulate(rows.sent.begin(), rows.sent.begin() + rank(), std::int64_t{0});
    const at::Tensor own = in.narrow(0, first, rows.sent[me]).clone();
    std::int64_t at = 0;
    for (const std::int64_t received : rows.received) {
      const std::int64_t copied = std::min(received, own.size(0));
      out.narrow(0, at, copied).copy_(own.narrow(0, 0, copied));
      out.narrow(0, at + copied, received - copied).zero_();
      at += received;
    }
  }
  Work message(const at::Tensor& tensor, int peer, int tag, const Call& call) {
    return record(tensor, call, [&](LoggedCall& logged) {
      logged.peer = peer;
      logged.tag = tag;
    });
  }
  Work record(
      const at::Tensor& tensor, const Call& call,
      const std::function<void(LoggedCall&)>& set_fields = [](LoggedCall&) {}) {
    if (!log_) return {};
    LoggedCall logged{.ranks = members_,
                      .axes = call.axes,
                      .operation = std::string(call.operation),
                      .what = call.what,
                      .bytes = call.bytes};
    if (tensor.defined()) {
      logged.shape = tensor.sizes().vec();
      logged.dtype = tensor.scalar_type();
      logged.dynamic_size = tensor.is_cpu();
    }
    set_fields(logged);
    log_->add(std::move(logged));
    return {};
  }
  std::shared_ptr<CallLog> log_;
  std::shared_ptr<const std::vector<int>> members_;
};

class NullFactory final : public GroupFactory {
 public:
  explicit NullFactory(std::shared_ptr<CallLog> log) : log_(std::move(log)) {}
  std::shared_ptr<Backend> make(const std::vector<int>& ranks, int my_index, const std::string&) override {
    return std::make_shared<NullBackend>(log_, ranks, my_index);
  }

 private:
  std::shared_ptr<CallLog> log_;
};

}  // namespace

std::shared_ptr<GroupFactory> null_factory(std::shared_ptr<CallLog> log) {
  return std::make_shared<NullFactory>(std::move(log));
}

}  // namespace colonnade::comm
