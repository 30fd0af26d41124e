// NCCL behind Backend: CUDA tensors, one communicator per group, one more per tag and direction of
// messages so that a send never waits behind a message the other way.
#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <map>

#include "colonnade/base/error.h"
#include "colonnade/comm/c10d_backends.h"

namespace colonnade::comm {
namespace {

class NcclBackend final : public Backend {
 public:
  explicit NcclBackend(const GroupSeat& seat)
      : Backend(seat.ranks, seat.index), seat_(seat), group_(make("group")) {}

  [[nodiscard]] std::string_view name() const override { return "nccl"; }
  [[nodiscard]] at::Device device() const override {
    return {at::kCUDA, static_cast<at::DeviceIndex>(seat_.device_index)};
  }

  Work all_reduce(at::Tensor tensor, Reduce op, const Call&) override {
    std::vector<at::Tensor> tensors{on_device(tensor)};
    return finish(group_->allreduce(tensors, reduce_options(op)));
  }

  Work all_gather(at::Tensor out, at::Tensor in, const Call&) override {
    at::Tensor to = on_device(out), from = on_device(in);
    return finish(group_->_allgather_base(to, from));
  }

  Work reduce_scatter(at::Tensor out, at::Tensor in, const Call&) override {
    at::Tensor to = on_device(out), from = on_device(in);
    return finish(group_->_reduce_scatter_base(to, from));
  }

  Work broadcast(at::Tensor tensor, int root, const Call&) override {
    std::vector<at::Tensor> tensors{on_device(tensor)};
    return finish(group_->broadcast(tensors, root_options(root)));
  }

  Work all_to_all(at::Tensor out, at::Tensor in, const Call&) override {
    at::Tensor to = on_device(out), from = on_device(in);
    std::vector<std::int64_t> even;  // empty: equal slices of dimension 0
    return finish(group_->alltoall_base(to, from, even, even));
  }

  Work send(at::Tensor tensor, int to, int tag, const Call&) override {
    std::vector<at::Tensor> tensors{on_device(tensor)};
    return finish(lane(tag, rank() < to).send(tensors, to, tag));
  }

  Work recv(at::Tensor tensor, int from, int tag, const Call&) override {
    std::vector<at::Tensor> tensors{on_device(tensor)};
    return finish(lane(tag, from < rank()).recv(tensors, from, tag));
  }

  void barrier(const Call&) override {
    c10d::BarrierOptions options;
    options.device_ids = {seat_.device_index};
    group_->barrier(options)->wait();
  }

 private:
  [[nodiscard]] c10::intrusive_ptr<c10d::ProcessGroupNCCL> make(const std::string& name) const {
    auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = seat_.timeout;
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

  static Work finish(Started started) {
    return Work([started = std::move(started)] { started->wait(); });
  }

  GroupSeat seat_;
  c10::intrusive_ptr<c10d::ProcessGroupNCCL> group_;
  std::map<std::pair<int, bool>, c10::intrusive_ptr<c10d::ProcessGroupNCCL>> lanes_;
};

}  // namespace

std::shared_ptr<Backend> make_nccl(const GroupSeat& seat) { return std::make_shared<NcclBackend>(seat); }

}  // namespace colonnade::comm
