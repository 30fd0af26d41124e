// NCCL behind Backend: CUDA tensors, one communicator per group, one more per tag, direction and pair of
// ranks that exchange messages, so that a send never waits behind a message the other way.
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
  explicit NcclBackend(const GroupSeat& seat)
      : Backend(seat.ranks, seat.index),
        seat_(seat),
        flights_(seat.flights ? seat.flights : nccl_flights(seat.timeout)),
        group_(make("group")) {}

  [[nodiscard]] std::string_view name() const override { return "nccl"; }
  [[nodiscard]] at::Device device() const override {
    return {at::kCUDA, static_cast<at::DeviceIndex>(seat_.device_index)};
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
    auto& group = lane(tag, rank() < to);
    return start(group, to, call, [&] { return group.send(tensors, to, tag); });
  }

  Work recv(at::Tensor tensor, int from, int tag, const Call& call) override {
    std::vector<at::Tensor> tensors{on_device(tensor)};
    auto& group = lane(tag, from < rank());
    return start(group, from, call, [&] { return group.recv(tensors, from, tag); });
  }

  void barrier(const Call&) override {
    c10d::BarrierOptions options;
    options.device_ids = {seat_.device_index};
    group_->barrier(options)->wait();
  }

 private:
  [[nodiscard]] c10::intrusive_ptr<c10d::ProcessGroupNCCL> make(const std::string& name) const {
    auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = kNever;  // flights_ keeps the time
    return c10::make_intrusive<c10d::ProcessGroupNCCL>(
        c10::make_intrusive<c10d::PrefixStore>(name, seat_.store), seat_.index,
        static_cast<int>(seat_.ranks.size()), options);
  }

  c10d::ProcessGroupNCCL& lane(int tag, bool upwards) {
    auto& lane = lanes_[{tag, upwards}];
    if (!lane) lane = make(fmt::format("messages.{}.{}", tag, upwards ? "up" : "down"));
    return *lane;
  }

  [[nodiscard]] at::Tensor on_device(const at::Tensor& tensor) const {
    COL_CHECK(tensor.device() == device(), "nccl: tensors must be on {}; got {}", device().str(),
              tensor.device().str());
    return tensor.detach();
  }

  /// Starts an operation on `group`, with the member `peer` alone where it is not -1.
  template <typename Start>
  Work start(const c10d::ProcessGroupNCCL& group, int peer, const Call& call, const Start& start) {
    flights_->check();
    // The first use meets the other members on the host: it is a wait.
    if (opened_.emplace(&group, peer).second && call.page != nullptr) call.page->wait(call.ticket, call.what);
    const Started started = start();
    const auto flight = flights_->add(call, [started, on = device()] {
      const c10::DeviceGuard guard(on);  // asking must not wake another GPU
      const bool over = started->isCompleted();
      if (const std::exception_ptr error = started->exception()) std::rethrow_exception(error);
      return over;
    });
    return Work([started, flight, flights = flights_] {
      flights->check();
      started->wait();
      flight->awaited = true;
    });
  }

  static constexpr std::chrono::hours kNever{24 * 365};
  GroupSeat seat_;
  std::shared_ptr<Flights> flights_;
  std::set<std::pair<const c10d::ProcessGroupNCCL*, int>> opened_;  ///< communicators, by their peer
  c10::intrusive_ptr<c10d::ProcessGroupNCCL> group_;
  std::map<std::pair<int, bool>, c10::intrusive_ptr<c10d::ProcessGroupNCCL>> lanes_;
};

}  // namespace

std::shared_ptr<Flights> nccl_flights(std::chrono::milliseconds timeout) {
  for (const char* name :
       {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_ENABLE_MONITORING", "TORCH_NCCL_DUMP_ON_TIMEOUT"})
    ::setenv(name, "0", /*overwrite=*/0);
  // Nothing may be destroyed on the way out: that would wait for the device, too.
  return std::make_shared<Flights>(timeout, [] { std::_Exit(kExitRankLost); });
}

std::shared_ptr<Backend> make_nccl(const GroupSeat& seat) {
  // NCCL's ranks find each other over sockets, also where data goes over NVLink.
  if (seat.one_machine) ::setenv("NCCL_SOCKET_IFNAME", "lo", /*overwrite=*/1);
  return std::make_shared<NcclBackend>(seat);
}

}  // namespace colonnade::comm
