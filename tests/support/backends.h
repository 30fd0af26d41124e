// Test backends: one that forwards every call, for tests to override.
#pragma once

#include <memory>
#include <utility>

#include "colonnade/base/error.h"
#include "colonnade/comm/backend.h"

namespace colonnade::test {

class ForwardingBackend : public comm::Backend {
 public:
  explicit ForwardingBackend(std::shared_ptr<comm::Backend> to)
      : Backend(to->ranks(), to->rank()), to_(std::move(to)) {}

  [[nodiscard]] std::string_view name() const override { return to_->name(); }
  /// Called with the tensor and the tag (-1: none) of every call.
  virtual void look(const at::Tensor& /*tensor*/, int /*tag*/) {}

  comm::Work all_reduce(at::Tensor tensor, comm::Reduce op, const comm::Call& call) override {
    look(tensor, -1);
    return to_->all_reduce(tensor, op, call);
  }
  comm::Work all_gather(at::Tensor out, at::Tensor in, const comm::Call& call) override {
    look(in, -1);
    return to_->all_gather(out, in, call);
  }
  comm::Work reduce_scatter(at::Tensor out, at::Tensor in, const comm::Call& call) override {
    look(in, -1);
    return to_->reduce_scatter(out, in, call);
  }
  comm::Work broadcast(at::Tensor tensor, int root, const comm::Call& call) override {
    look(tensor, -1);
    return to_->broadcast(tensor, root, call);
  }
  comm::Work all_to_all(at::Tensor out, at::Tensor in, const comm::Rows& rows,
                        const comm::Call& call) override {
    look(in, -1);
    return to_->all_to_all(out, in, rows, call);
  }
  comm::Work send(at::Tensor tensor, int to, int tag, const comm::Call& call) override {
    look(tensor, tag);
    return to_->send(tensor, to, tag, call);
  }
  comm::Work recv(at::Tensor tensor, int from, int tag, const comm::Call& call) override {
    look(tensor, tag);
    return to_->recv(tensor, from, tag, call);
  }
  void barrier(const comm::Call& call) override { to_->barrier(call); }

 private:
  std::shared_ptr<comm::Backend> to_;
};

/// Stand-in for NCCL: accepts device tensors (meta tensors in tests) and rejects host tensors.
class DeviceOnlyBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  [[nodiscard]] std::string_view name() const override { return "device only"; }
  [[nodiscard]] at::Device device() const override { return at::Device(at::kMeta); }
  void look(const at::Tensor& tensor, int /*tag*/) override {
    COL_CHECK(!tensor.is_cpu(), "tensors must be on the device; got {}", tensor.device().str());
  }
};

}  // namespace colonnade::test
