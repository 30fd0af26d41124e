// Gloo backend. The only source that includes gloo's headers: they come from the Linux distribution while the
// library is part of LibTorch, so only shared pointers of gloo types may cross the boundary.
#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <exception>

#include "colonnade/base/stop_signal.h"
#include "colonnade/comm/c10d_backends.h"
#include "colonnade/comm/local_reduce.h"

namespace colonnade::comm {
namespace {

/// The tensor as gloo can read it: the CPU tensor itself, or a host copy of a CUDA tensor.
at::Tensor host_copy(const at::Tensor& tensor) { return tensor.is_cpu() ? tensor.detach() : tensor.cpu(); }
at::Tensor host_buffer(const at::Tensor& tensor) {
  return tensor.is_cpu() ? tensor.detach() : at::empty(tensor.sizes(), tensor.options().device(at::kCPU));
}

bool is_low_precision(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBFloat16 || tensor.scalar_type() == at::kHalf;
}

// Callers' tags are smaller. All-gathers complete in order and share a tag; each reduce-scatter in flight has
// its own.
constexpr int kGatherTag = 1 << 30, kReduceScatterTag = kGatherTag + 1, kReduceScatterTags = 1 << 16;

/// A reduce-scatter in chunks. Sends are posted at once, so that no member depends on this rank's wait().
/// Received chunks are added with a few chunks per peer in flight, so that a large tensor needs no full-size
/// copy.
class ChunkedReduceScatter {
 public:
  ChunkedReduceScatter(c10::intrusive_ptr<c10d::ProcessGroupGloo> group, const at::Tensor& out,
                       const at::Tensor& in, int tag)
      : group_(std::move(group)),
        rank_(group_->getRank()),
        size_(group_->getSize()),
        tag_(tag),
        out_(out.view(-1)),
        in_(in.view({size_, out.numel()})),
        chunk_(chunk_length()),
        num_chunks_((out.numel() + chunk_ - 1) / chunk_),
        recv_buffers_(
            at::empty({std::min<std::int64_t>(kInFlight, num_chunks_), size_ - 1, chunk_}, out.options())) {
    for (std::int64_t i = 0; i < num_chunks_; ++i) send(i);
    for (std::int64_t i = 0; i < recv_buffers_.size(0); ++i) receive(i);
  }

  void wait() {
    for (std::int64_t i = 0; i < num_chunks_; ++i) {
      for (int peer = 1; peer < size_; ++peer) {
        received_.front()->wait();
        received_.pop_front();
      }
      add(i);
      if (i + kInFlight < num_chunks_) receive(i + kInFlight);
    }
    for (const C10dWork& work : sent_) work->wait();
  }

 private:
  static constexpr std::int64_t kInFlight = 2, kTargetChunks = 32;
  static constexpr std::int64_t kMinBytes = 256 << 10, kMaxBytes = 2 << 20, kMaxBufferBytes = 8 << 20;

  /// Chunk size in elements.
  [[nodiscard]] std::int64_t chunk_length() const {
    const auto part = static_cast<std::int64_t>(out_.nbytes());
    const std::int64_t bytes = std::min(std::clamp(part / kTargetChunks, kMinBytes, kMaxBytes),
                                        kMaxBufferBytes / (kInFlight * (size_ - 1)));
    return std::clamp<std::int64_t>(bytes / static_cast<std::int64_t>(out_.element_size()), 1,
                                    std::max<std::int64_t>(1, out_.numel()));
  }
  [[nodiscard]] std::int64_t length(std::int64_t i) const {
    return std::min(chunk_, out_.numel() - i * chunk_);
  }
  /// Receive buffer for chunk i from the peer `steps` ranks before this one (modulo size).
  [[nodiscard]] at::Tensor recv_buffer(std::int64_t i, int steps) const {
    return recv_buffers_[i % kInFlight][steps - 1].narrow(0, 0, length(i));
  }

  void send(std::int64_t i) {
    for (int steps = 1; steps < size_; ++steps) {
      const int peer = (rank_ + steps) % size_;
      std::vector<at::Tensor> chunk{in_[peer].narrow(0, i * chunk_, length(i))};
      sent_.push_back(group_->send(chunk, peer, tag_));
    }
  }
  void receive(std::int64_t i) {
    for (int steps = 1; steps < size_; ++steps) {
      std::vector<at::Tensor> chunk{recv_buffer(i, steps)};
      received_.push_back(group_->recv(chunk, (rank_ + size_ - steps) % size_, tag_));
    }
  }
  void add(std::int64_t i) {
    std::vector<const void*> parts;
    for (int r = 0; r < size_; ++r) {
      const at::Tensor part =
          r == rank_ ? in_[r].narrow(0, i * chunk_, length(i)) : recv_buffer(i, (rank_ + size_ - r) % size_);
      parts.push_back(part.const_data_ptr());
    }
    reduce(out_.scalar_type(), parts, out_.narrow(0, i * chunk_, length(i)).data_ptr(), length(i),
           Reduce::kSum);
  }

  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
  int rank_, size_, tag_;
  at::Tensor out_, in_;
  std::int64_t chunk_, num_chunks_;
  at::Tensor recv_buffers_;
  std::vector<C10dWork> sent_;
  std::deque<C10dWork> received_;
};

class GlooBackend final : public Backend {
 public:
  GlooBackend(const GroupSpec& spec, c10::intrusive_ptr<c10d::ProcessGroupGloo::Options> options)
      : Backend(spec.ranks, spec.index),
        group_(c10::make_intrusive<c10d::ProcessGroupGloo>(spec.store, spec.index, size(),
                                                           std::move(options))) {}

  /// Leaks the group if operations are unfinished: waiting for a lost peer would delay process exit until the
  /// timeout.
  ~GlooBackend() override {
    if (*unfinished_ > 0) group_.release();
  }

  [[nodiscard]] std::string_view name() const override { return "gloo"; }

  Work all_reduce(at::Tensor tensor, Reduce op, const Call&) override {
    // gloo rounds after every addition; with two members there is only one.
    const bool widen = op == Reduce::kSum && size() > 2 && is_low_precision(tensor);
    std::vector<at::Tensor> host{widen ? host_copy(tensor).to(at::kFloat) : host_copy(tensor)};
    return wait_then(group_->allreduce(host, reduce_options(op)),
                     [tensor, result = host[0]] { copy_back(tensor, result); });
  }

  Work all_gather(at::Tensor out, at::Tensor in, const Call&) override {
    return start([&] { return all_gather_p2p(out, in); });
  }

  Work reduce_scatter(at::Tensor out, at::Tensor in, const Call&) override {
    return start([&] { return chunked_reduce_scatter(out, in); });
  }

  Work broadcast(at::Tensor tensor, int root, const Call&) override {
    std::vector<at::Tensor> host{host_copy(tensor)};
    return wait_then(group_->broadcast(host, root_options(root)),
                     [tensor, result = host[0]] { copy_back(tensor, result); });
  }

  Work all_to_all(at::Tensor out, at::Tensor in, const Rows& rows, const Call&) override {
    at::Tensor to = host_buffer(out), from = host_copy(in);
    return wait_then(exchange(to, from, rows), [out, to, from] { copy_back(out, to); });
  }

  Work send(at::Tensor tensor, int to, int tag, const Call&) override {
    std::vector<at::Tensor> host{host_copy(tensor)};
    return wait_then(group_->send(host, to, tag), [host] {});
  }

  Work recv(at::Tensor tensor, int from, int tag, const Call&) override {
    std::vector<at::Tensor> host{host_buffer(tensor)};
    return wait_then(group_->recv(host, from, tag),
                     [tensor, result = host[0]] { copy_back(tensor, result); });
  }

  void barrier(const Call&) override {
    wait_then(group_->barrier(), [] {}).wait();
  }

 private:
  /// Defers an error at the start of an operation to its wait(), where later errors surface too.
  template <typename Start>
  Work start(const Start& start_op) {
    try {
      return start_op();
    } catch (...) {
      ++*unfinished_;
      return Work([failed = std::current_exception()] { std::rethrow_exception(failed); });
    }
  }

  /// Point-to-point all-gather into `out`; c10d's own needs a copy of it.
  Work all_gather_p2p(const at::Tensor& out, const at::Tensor& in) {
    const at::Tensor to = host_buffer(out), from = host_copy(in), parts = to.view({size(), from.numel()});
    std::vector<C10dWork> pending;
    for (int steps = 1; steps < size(); ++steps) {
      const int next = (rank() + steps) % size(), previous = (rank() + size() - steps) % size();
      std::vector<at::Tensor> mine{from}, theirs{parts[previous]};
      pending.push_back(group_->recv(theirs, previous, kGatherTag));
      pending.push_back(group_->send(mine, next, kGatherTag));
    }
    copy_back(parts[rank()], from.view(-1));
    return make_work([out, to, pending = std::move(pending)] {
      for (const C10dWork& work : pending) work->wait();
      copy_back(out, to);
    });
  }

  Work chunked_reduce_scatter(const at::Tensor& out, const at::Tensor& in) {
    const at::Tensor sum = host_buffer(out);
    const auto parts =
        std::make_shared<ChunkedReduceScatter>(group_, sum, host_copy(in), next_reduce_scatter_tag());
    return make_work([out, sum, parts] {
      parts->wait();
      copy_back(out, sum);
    });
  }

  int next_reduce_scatter_tag() {
    return kReduceScatterTag + static_cast<int>(reduce_scatters_++ % kReduceScatterTags);
  }
  /// Empty `rows`: equal slices of dimension 0.
  C10dWork exchange(at::Tensor& out, at::Tensor& in, Rows rows = {}) {
    return group_->alltoall_base(out, in, rows.received, rows.sent);
  }

  static void copy_back(const at::Tensor& tensor, const at::Tensor& result) {
    if (!tensor.is_cpu() || tensor.data_ptr() != result.data_ptr()) tensor.detach().copy_(result);
  }

  /// A Work that waits for `started` and then runs `then` on the waiting thread.
  template <typename Then>
  Work wait_then(C10dWork started, Then then) {
    return make_work([started = std::move(started), then = std::move(then)] {
      started->wait();
      then();
    });
  }
  /// A Work that runs `end` to complete an operation in progress.
  template <typename End>
  Work make_work(End end) {
    ++*unfinished_;
    return Work([end = std::move(end), unfinished = unfinished_] {
      const at::NoGradGuard no_grad;
      end();
      --*unfinished;
    });
  }

  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
  std::uint32_t reduce_scatters_ = 0;  ///< reduce-scatters started, equal on all members
  std::shared_ptr<std::atomic<int>> unfinished_ = std::make_shared<std::atomic<int>>(0);
};

}  // namespace

std::shared_ptr<Backend> make_gloo(const GroupSpec& spec) {
  ignore_broken_pipes();  // a lost peer then becomes an error that names the operation
  auto options = c10d::ProcessGroupGloo::Options::create(spec.timeout);
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  if (spec.one_machine) {  // overrides the variable: other machines must not reach the ranks
    options->devices = {c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")};
  } else if (interface != nullptr && *interface != '\0') {
    options->devices = {c10d::ProcessGroupGloo::createDeviceForInterface(interface)};
  } else {
    options->devices = {c10d::ProcessGroupGloo::createDefaultDevice()};
  }
  return std::make_shared<GlooBackend>(spec, std::move(options));
}

}  // namespace colonnade::comm
