// See device_dispatch.h.
#include "colonnade/comm/device_dispatch.h"

#include "colonnade/base/error.h"

namespace colonnade::comm {
namespace {

class DeviceDispatchBackend final : public Backend {
 public:
  DeviceDispatchBackend(std::shared_ptr<Backend> host, std::shared_ptr<Backend> device)
      : Backend(device->ranks(), device->rank()), host_(std::move(host)), device_(std::move(device)) {
    COL_CHECK(host_->ranks() == ranks() && host_->rank() == rank(),
              "group backends {} and {} must have the same members; got {} and {}", host_->name(),
              device_->name(), list_ranks(host_->ranks()), list_ranks(ranks()));
  }

  [[nodiscard]] std::string_view name() const override { return device_->name(); }
  [[nodiscard]] at::Device device() const override { return host_->device(); }

  Work all_reduce(at::Tensor tensor, Reduce op, const Call& call) override {
    return backend_for(tensor).all_reduce(tensor, op, call);
  }
  Work all_gather(at::Tensor out, at::Tensor in, const Call& call) override {
    return backend_for(in).all_gather(out, in, call);
  }
  Work reduce_scatter(at::Tensor out, at::Tensor in, const Call& call) override {
    return backend_for(in).reduce_scatter(out, in, call);
  }
  Work broadcast(at::Tensor tensor, int root, const Call& call) override {
    return backend_for(tensor).broadcast(tensor, root, call);
  }
  Work all_to_all(at::Tensor out, at::Tensor in, const Rows& rows, const Call& call) override {
    return backend_for(in).all_to_all(out, in, rows, call);
  }
  Work send(at::Tensor tensor, int to, int tag, const Call& call) override {
    return backend_for(tensor).send(tensor, to, tag, call);
  }
  Work recv(at::Tensor tensor, int from, int tag, const Call& call) override {
    return backend_for(tensor).recv(tensor, from, tag, call);
  }
  void barrier(const Call& call) override { host_->barrier(call); }

 private:
  [[nodiscard]] Backend& backend_for(const at::Tensor& tensor) const {
    return tensor.is_cpu() ? *host_ : *device_;
  }

  std::shared_ptr<Backend> host_;
  std::shared_ptr<Backend> device_;
};

}  // namespace

std::shared_ptr<Backend> dispatch_by_device(std::shared_ptr<Backend> host, std::shared_ptr<Backend> device) {
  return std::make_shared<DeviceDispatchBackend>(std::move(host), std::move(device));
}

}  // namespace colonnade::comm
