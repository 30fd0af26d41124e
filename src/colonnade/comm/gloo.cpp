// Gloo behind Backend. The one source that includes gloo's headers: they come from the distribution
// while the code is LibTorch's own, so only shared pointers of gloo types may cross.
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

/// The tensor that gloo may touch: itself on the CPU, a copy of a CUDA tensor.
at::Tensor on_host(const at::Tensor& tensor) { return tensor.is_cpu() ? tensor.detach() : tensor.cpu(); }
at::Tensor host_space(const at::Tensor& tensor) {
  return tensor.is_cpu() ? tensor.detach() : at::empty(tensor.sizes(), tensor.options().device(at::kCPU));
}

bool is_low_precision(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBFloat16 || tensor.scalar_type() == at::kHalf;
}

// Callers' tags are small. Gathers follow each other in one order; pieces of two sums may come in any.
constexpr int kGatherTag = 1 << 30, kSumTag = kGatherTag + 1, kSumTags = 1 << 16;

/// The sum of what all members hold for this one. What this one holds for others leaves at once, so that
/// nobody depends on its wait(); what comes is added piece by piece, a few pieces of each peer at a time, so
/// that a large tensor has no copy.
class PartSum {
 public:
  PartSum(c10::intrusive_ptr<c10d::ProcessGroupGloo> group, const at::Tensor& out, const at::Tensor& in,
          int tag)
      : group_(std::move(group)),
        rank_(group_->getRank()),
        size_(group_->getSize()),
        tag_(tag),
        out_(out.view(-1)),
        in_(in.view({size_, out.numel()})),
        piece_(piece_length()),
        pieces_((out.numel() + piece_ - 1) / piece_),
        arriving_(at::empty({std::min<std::int64_t>(kAhead, pieces_), size_ - 1, piece_}, out.options())) {
    for (std::int64_t i = 0; i < pieces_; ++i) send(i);
    for (std::int64_t i = 0; i < arriving_.size(0); ++i) receive(i);
  }

  void wait() {
    for (std::int64_t i = 0; i < pieces_; ++i) {
      for (int peer = 1; peer < size_; ++peer) {
        received_.front()->wait();
        received_.pop_front();
      }
      add(i);
      if (i + kAhead < pieces_) receive(i + kAhead);
    }
    for (const Started& one : sent_) one->wait();
  }

 private:
  static constexpr std::int64_t kAhead = 2, kParts = 32;
  static constexpr std::int64_t kSmallest = 256 << 10, kLargest = 2 << 20, kMost = 8 << 20;  // bytes

  /// Elements.
  [[nodiscard]] std::int64_t piece_length() const {
    const auto part = static_cast<std::int64_t>(out_.nbytes());
    const std::int64_t bytes =
        std::min(std::clamp(part / kParts, kSmallest, kLargest), kMost / (kAhead * (size_ - 1)));
    return std::clamp<std::int64_t>(bytes / static_cast<std::int64_t>(out_.element_size()), 1,
                                    std::max<std::int64_t>(1, out_.numel()));
  }
  [[nodiscard]] std::int64_t length(std::int64_t i) const {
    return std::min(piece_, out_.numel() - i * piece_);
  }
  /// What comes of piece i from the peer `steps` ranks behind.
  [[nodiscard]] at::Tensor arriving(std::int64_t i, int steps) const {
    return arriving_[i % kAhead][steps - 1].narrow(0, 0, length(i));
  }

  void send(std::int64_t i) {
    for (int steps = 1; steps < size_; ++steps) {
      const int peer = (rank_ + steps) % size_;
      std::vector<at::Tensor> piece{in_[peer].narrow(0, i * piece_, length(i))};
      sent_.push_back(group_->send(piece, peer, tag_));
    }
  }
  void receive(std::int64_t i) {
    for (int steps = 1; steps < size_; ++steps) {
      std::vector<at::Tensor> piece{arriving(i, steps)};
      received_.push_back(group_->recv(piece, (rank_ + size_ - steps) % size_, tag_));
    }
  }
  void add(std::int64_t i) {
    std::vector<const void*> parts;
    for (int r = 0; r < size_; ++r) {
      const at::Tensor part =
          r == rank_ ? in_[r].narrow(0, i * piece_, length(i)) : arriving(i, (rank_ + size_ - r) % size_);
      parts.push_back(part.const_data_ptr());
    }
    reduce(out_.scalar_type(), parts, out_.narrow(0, i * piece_, length(i)).data_ptr(), length(i),
           Reduce::kSum);
  }

  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
  int rank_, size_, tag_;
  at::Tensor out_, in_;
  std::int64_t piece_, pieces_;
  at::Tensor arriving_;
  std::vector<Started> sent_;
  std::deque<Started> received_;
};

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
    return begun([&] { return gather(out, in); });
  }

  Work reduce_scatter(at::Tensor out, at::Tensor in, const Call&) override {
    return begun([&] { return sum_parts(out, in); });
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
  /// What fails when it begins fails where it is waited for, as it does where a peer is lost later.
  template <typename Begin>
  Work begun(const Begin& begin) {
    try {
      return begin();
    } catch (...) {
      ++*unfinished_;
      return Work([failed = std::current_exception()] { std::rethrow_exception(failed); });
    }
  }

  /// c10d's own gathers into a copy of `out`.
  Work gather(const at::Tensor& out, const at::Tensor& in) {
    const at::Tensor to = host_space(out), from = on_host(in), parts = to.view({size(), from.numel()});
    std::vector<Started> under_way;
    for (int steps = 1; steps < size(); ++steps) {
      const int next = (rank() + steps) % size(), previous = (rank() + size() - steps) % size();
      std::vector<at::Tensor> mine{from}, theirs{parts[previous]};
      under_way.push_back(group_->recv(theirs, previous, kGatherTag));
      under_way.push_back(group_->send(mine, next, kGatherTag));
    }
    put_back(parts[rank()], from.view(-1));
    return later([out, to, under_way = std::move(under_way)] {
      for (const Started& one : under_way) one->wait();
      put_back(out, to);
    });
  }

  Work sum_parts(const at::Tensor& out, const at::Tensor& in) {
    const at::Tensor sum = host_space(out);
    const auto parts = std::make_shared<PartSum>(group_, sum, on_host(in), sum_tag());
    return later([out, sum, parts] {
      parts->wait();
      put_back(out, sum);
    });
  }

  int sum_tag() { return kSumTag + static_cast<int>(sums_++ % kSumTags); }
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
    return later([started = std::move(started), then = std::move(then)] {
      started->wait();
      then();
    });
  }
  /// What ends an operation that has begun, as a Work.
  template <typename End>
  Work later(End end) {
    ++*unfinished_;
    return Work([end = std::move(end), unfinished = unfinished_] {
      const at::NoGradGuard no_grad;
      end();
      --*unfinished;
    });
  }

  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
  std::uint32_t sums_ = 0;  ///< begun so far, here as on every member
  std::shared_ptr<std::atomic<int>> unfinished_ = std::make_shared<std::atomic<int>>(0);
};

}  // namespace

std::shared_ptr<Backend> make_gloo(const GroupSeat& seat) {
  ignore_broken_pipes();  // so that a peer that is gone is an error that names the operation
  auto options = c10d::ProcessGroupGloo::Options::create(seat.timeout);
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  if (seat.one_machine) {  // whatever interface is named: other machines must not reach the ranks
    options->devices = {c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")};
  } else if (interface != nullptr && *interface != '\0') {
    options->devices = {c10d::ProcessGroupGloo::createDeviceForInterface(interface)};
  } else {
    options->devices = {c10d::ProcessGroupGloo::createDefaultDevice()};
  }
  return std::make_shared<GlooBackend>(seat, std::move(options));
}

}  // namespace colonnade::comm
