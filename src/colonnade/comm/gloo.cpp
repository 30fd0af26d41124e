// Gloo behind Backend. The one source that includes gloo's headers: they come from the distribution
// while the code is LibTorch's own, so only shared pointers of gloo types may cross.
#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <cstdlib>

#include "colonnade/comm/c10d_backends.h"
#include "colonnade/comm/local_reduce.h"

namespace colonnade::comm {
namespace {

/// The tensor that gloo may touch: itself on the CPU, a copy of a CUDA tensor.
at::Tensor on_host(const at::Tensor& tensor) { return tensor.is_cpu() ? tensor.detach() : tensor.cpu(); }
at::Tensor host_space(const at::Tensor& tensor) {
  return tensor.is_cpu() ? tensor.detach() : at::empty(tensor.sizes(), tensor.options().device(at::kCPU));
}

bool is_low_precision(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBFloat16 || tensor.scalar_type() == at::kHalf;
}

class GlooBackend final : public Backend {
 public:
  GlooBackend(const GroupSeat& seat, c10::intrusive_ptr<c10d::ProcessGroupGloo::Options> options)
      : Backend(seat.ranks, seat.index),
        group_(c10::make_intrusive<c10d::ProcessGroupGloo>(seat.store, seat.index, size(),
                                                           std::move(options))) {}

  /// Waiting for operations that a lost peer will never finish would hold up the end of the process
  /// until the time-out; their group is left to the system instead.
  ~GlooBackend() override {
    if (*unfinished_ > 0) group_.release();
  }

  [[nodiscard]] std::string_view name() const override { return "gloo"; }

  Work all_reduce(at::Tensor tensor, Reduce op, const Call&) override {
    // gloo rounds after each of its additions; two members make one addition.
    const bool widen = op == Reduce::kSum && size() > 2 && is_low_precision(tensor);
    std::vector<at::Tensor> host{widen ? on_host(tensor).to(at::kFloat) : on_host(tensor)};
    return finish(group_->allreduce(host, reduce_options(op)),
                  [tensor, result = host[0]] { put_back(tensor, result); });
  }

  Work all_gather(at::Tensor out, at::Tensor in, const Call&) override {
    at::Tensor to = host_space(out), from = on_host(in);
    return finish(group_->_allgather_base(to, from), [out, to, from] { put_back(out, to); });
  }

  Work reduce_scatter(at::Tensor out, at::Tensor in, const Call&) override {
    at::Tensor from = on_host(in), pieces = at::empty_like(from);
    return finish(exchange(pieces, from), [out, pieces, from, members = size()] {
      std::vector<const void*> parts;
      for (int r = 0; r < members; ++r) {
        parts.push_back(static_cast<const std::byte*>(pieces.data_ptr()) +
                        static_cast<std::size_t>(r) * out.nbytes());
      }
      const at::Tensor sum = host_space(out);
      reduce(out.scalar_type(), parts, sum.data_ptr(), out.numel(), Reduce::kSum);
      put_back(out, sum);
    });
  }

  Work broadcast(at::Tensor tensor, int root, const Call&) override {
    std::vector<at::Tensor> host{on_host(tensor)};
    return finish(group_->broadcast(host, root_options(root)),
                  [tensor, result = host[0]] { put_back(tensor, result); });
  }

  Work all_to_all(at::Tensor out, at::Tensor in, const Rows& rows, const Call&) override {
    at::Tensor to = host_space(out), from = on_host(in);
    return finish(exchange(to, from, rows), [out, to, from] { put_back(out, to); });
  }

  Work send(at::Tensor tensor, int to, int tag, const Call&) override {
    std::vector<at::Tensor> host{on_host(tensor)};
    return finish(group_->send(host, to, tag), [host] {});
  }

  Work recv(at::Tensor tensor, int from, int tag, const Call&) override {
    std::vector<at::Tensor> host{host_space(tensor)};
    return finish(group_->recv(host, from, tag), [tensor, result = host[0]] { put_back(tensor, result); });
  }

  void barrier(const Call&) override {
    finish(group_->barrier(), [] {}).wait();
  }

 private:
  /// Without rows: equal slices of dimension 0.
  Started exchange(at::Tensor& out, at::Tensor& in, Rows rows = {}) {
    return group_->alltoall_base(out, in, rows.received, rows.sent);
  }

  static void put_back(const at::Tensor& tensor, const at::Tensor& result) {
    if (!tensor.is_cpu() || tensor.data_ptr() != result.data_ptr()) tensor.detach().copy_(result);
  }

  /// A Work that waits for `started` and then runs `then` on the waiting thread.
  template <typename Then>
  Work finish(Started started, Then then) {
    ++*unfinished_;
    return Work([started = std::move(started), then = std::move(then), unfinished = unfinished_] {
      const at::NoGradGuard no_grad;
      started->wait();
      then();
      --*unfinished;
    });
  }

  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
  std::shared_ptr<std::atomic<int>> unfinished_ = std::make_shared<std::atomic<int>>(0);
};

}  // namespace

std::shared_ptr<Backend> make_gloo(const GroupSeat& seat) {
  auto options = c10d::ProcessGroupGloo::Options::create(seat.timeout);
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  if (interface != nullptr && *interface != '\0') {
    options->devices = {c10d::ProcessGroupGloo::createDeviceForInterface(interface)};
  } else if (seat.one_machine) {
    options->devices = {c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")};
  } else {
    options->devices = {c10d::ProcessGroupGloo::createDefaultDevice()};
  }
  return std::make_shared<GlooBackend>(seat, std::move(options));
}

}  // namespace colonnade::comm
