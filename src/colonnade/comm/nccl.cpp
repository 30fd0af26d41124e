// NCCL backend for CUDA tensors: one communicator per group, and one per tag, direction and pair of ranks
// that exchange messages, so that a send never waits for a message in the other direction.
#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <cstdlib>
#include <map>
#include <set>

#include "colonnade/base/error.h"
#include "colonnade/comm/c10d_backends.h"

namespace colonnade::comm {
namespace {

class NcclBackend final : public Backend {
 public:
  explicit NcclBackend(const GroupSpec& spec)
      : Backend(spec.ranks, spec.index),
        spec_(spec),
        watchdog_(spec.watchdog ? spec.watchdog : make_nccl_watchdog(spec.timeout)),
        group_(make("group")) {}

  [[nodiscard]] std::string_view name() const override { return "nccl"; }
  [[nodiscard]] at::Device device() const override {
    return {at::kCUDA, static_cast<at::DeviceIndex>(spec_.device_index)};
  }

  Work all_reduce(at::Tensor tensor, Reduce op, const Call& call) override {
    std::vector<at::Tensor> tensors{on_device(tensor)};
    return start(*group_, -1, call, [&] { return group_->allreduce(tensors, reduce_options(op)); });
  }

  Work all_gather(at::Tensor out, at::Tensor in, const Call& call) override {
    at::Tensor to = on_device(out), from = on_device(in);
    return start(*group_, -1, call, [&] { return group_->_allgather_base(to, from); });
  }

  Work reduce_scatter(at::Tensor out, at::Tensor in, const Call& call) override {
    at::Tensor to = on_device(out), from = on_device(in);
    return start(*group_, -1, call, [&] { return group_->_reduce_scatter_base(to, from); });
  }

  Work broadcast(at::Tensor tensor, int root, const Call& call) override {
    std::vector<at::Tensor> tensors{on_device(tensor)};
    return start(*group_, -1, call, [&] { return group_->broadcast(tensors, root_options(root)); });
  }

  Work all_to_all(at::Tensor out, at::Tensor in, const Rows& rows, const Call& call) override {
    at::Tensor to = on_device(out), from = on_device(in);
    Rows mine = rows;
    return start(*group_, -1, call,
                 [&] { return group_->alltoall_base(to, from, mine.received, mine.sent); });
  }

  Work send(at::Tensor tensor, int to, int tag, const Call& call) override {
    std::vector<at::Tensor> tensors{on_device(tensor)};
    auto& group = message_group(tag, rank() < to);
    return start(group, to, call, [&] { return group.send(tensors, to, tag); });
  }

  Work recv(at::Tensor tensor, int from, int tag, const Call& call) override {
    std::vector<at::Tensor> tensors{on_device(tensor)};
    auto& group = message_group(tag, from < rank());
    return start(group, from, call, [&] { return group.recv(tensors, from, tag); });
  }

  void barrier(const Call&) override {
    c10d::BarrierOptions options;
    options.device_ids = {spec_.device_index};
    group_->barrier(options)->wait();
  }

 private:
  [[nodiscard]] c10::intrusive_ptr<c10d::ProcessGroupNCCL> make(const std::string& name) const {
    auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = kNever;  // watchdog_ handles timeouts
    return c10::make_intrusive<c10d::ProcessGroupNCCL>(
        c10::make_intrusive<c10d::PrefixStore>(name, spec_.store), spec_.index,
        static_cast<int>(spec_.ranks.size()), options);
  }

  c10d::ProcessGroupNCCL& message_group(int tag, bool to_higher_rank) {
    auto& message_group = message_groups_[{tag, to_higher_rank}];
    if (!message_group)
      message_group = make(fmt::format("messages.{}.{}", tag, to_higher_rank ? "up" : "down"));
    return *message_group;
  }

  [[nodiscard]] at::Tensor on_device(const at::Tensor& tensor) const {
    COL_CHECK(tensor.device() == device(), "nccl: tensors must be on {}; got {}", device().str(),
              tensor.device().str());
    return tensor.detach();
  }

  /// Starts an operation on `group`; `peer` is the other member of a message, else -1.
  template <typename Start>
  Work start(const c10d::ProcessGroupNCCL& group, int peer, const Call& call, const Start& start) {
    watchdog_->check();
    // First use of a communicator blocks the host until the other members join.
    if (opened_.emplace(&group, peer).second && call.page != nullptr) call.page->wait(call.ticket, call.what);
    const C10dWork started = start();
    const auto op = watchdog_->add(call, [started, on = device()] {
      const c10::DeviceGuard guard(on);  // the query must not initialize another GPU
      const bool completed = started->isCompleted();
      if (const std::exception_ptr error = started->exception()) std::rethrow_exception(error);
      return completed;
    });
    return Work([started, op, watchdog = watchdog_] {
      watchdog->check();
      started->wait();
      op->host_waited = true;
    });
  }

  static constexpr std::chrono::hours kNever{24 * 365};
  GroupSpec spec_;
  std::shared_ptr<DeviceOpWatchdog> watchdog_;
  std::set<std::pair<const c10d::ProcessGroupNCCL*, int>> opened_;  ///< communicators in use, with their peer
  c10::intrusive_ptr<c10d::ProcessGroupNCCL> group_;
  std::map<std::pair<int, bool>, c10::intrusive_ptr<c10d::ProcessGroupNCCL>> message_groups_;
};

}  // namespace

std::shared_ptr<DeviceOpWatchdog> make_nccl_watchdog(std::chrono::milliseconds timeout) {
  for (const char* name :
       {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_ENABLE_MONITORING", "TORCH_NCCL_DUMP_ON_TIMEOUT"})
    ::setenv(name, "0", /*overwrite=*/0);
  // Destructors must not run: they would wait for the device.
  return std::make_shared<DeviceOpWatchdog>(timeout, [] { std::_Exit(kExitRankLost); });
}

std::shared_ptr<Backend> make_nccl(const GroupSpec& spec) {
  // NCCL bootstraps over sockets even if data goes over NVLink.
  if (spec.one_machine) ::setenv("NCCL_SOCKET_IFNAME", "lo", /*overwrite=*/1);
  return std::make_shared<NcclBackend>(spec);
}

}  // namespace colonnade::comm
