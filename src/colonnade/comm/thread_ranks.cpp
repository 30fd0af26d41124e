// Shared-memory backend of Group, and the threads that run as ranks.
#include "colonnade/comm/thread_ranks.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/util/accumulate.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>

#include "colonnade/base/error.h"
#include "colonnade/comm/backend.h"
#include "colonnade/comm/local_reduce.h"
#include "colonnade/comm/thread_world.h"

namespace colonnade::comm {
namespace {

const std::byte* bytes_of(const void* p) { return static_cast<const std::byte*>(p); }
std::byte* bytes_of(void* p) { return static_cast<std::byte*>(p); }

/// memcpy, except onto itself: an all_gather's `in` may be its slice of `out`.
void copy_bytes(void* to, const void* from, std::size_t bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, bytes);
}

class ThreadBackend final : public Backend {
 public:
  ThreadBackend(std::shared_ptr<Mailbox> mailbox, std::vector<int> ranks, int rank)
      : Backend(std::move(ranks), rank), mailbox_(std::move(mailbox)) {}

  [[nodiscard]] std::string_view name() const override { return "threads"; }

  Work all_reduce(at::Tensor tensor, Reduce op, const Call& call) override {
    return run_collective(call, tensor, tensor, [&] {
      // Only member r reads and writes slice r, in every member's buffer.
      const auto [first, last] = owned_range(tensor.numel());
      const auto offset = static_cast<std::size_t>(first) * tensor.element_size();
      const auto bytes = static_cast<std::size_t>(last - first) * tensor.element_size();
      reduce(tensor.scalar_type(), inputs(offset), bytes_of(tensor.data_ptr()) + offset, last - first, op);
      for (int r = 0; r < size(); ++r) {
        copy_bytes(bytes_of(mailbox_->args(r).out) + offset, bytes_of(tensor.data_ptr()) + offset, bytes);
      }
    });
  }

  Work all_gather(at::Tensor out, at::Tensor in, const Call& call) override {
    return run_collective(call, out, in, [&] {
      for (int r = 0; r < size(); ++r) copy_bytes(shard(out, r), mailbox_->args(r).in, in.nbytes());
    });
  }

  Work reduce_scatter(at::Tensor out, at::Tensor in, const Call& call) override {
    return run_collective(call, out, in, [&] {
      const auto offset = static_cast<std::size_t>(rank()) * out.nbytes();
      reduce(out.scalar_type(), inputs(offset), out.data_ptr(), out.numel(), Reduce::kSum);
    });
  }

  Work broadcast(at::Tensor tensor, int root, const Call& call) override {
    return run_collective(call, tensor, tensor,
                          [&] { copy_bytes(tensor.data_ptr(), mailbox_->args(root).in, tensor.nbytes()); });
  }

  Work all_to_all(at::Tensor out, at::Tensor in, const Rows& rows, const Call& call) override {
    check_cpu(in);
    const std::int64_t width = c10::multiply_integers(in.sizes().slice(1));
    const CollectiveArgs args{call.operation, call.what, in.scalar_type(), width, in.data_ptr(),
                              out.data_ptr(), &rows};
    mailbox_->begin_collective(rank(), args);
    std::string fault;
    std::byte* to = bytes_of(out.data_ptr());
    for (int r = 0; r < size(); ++r) {
      const std::int64_t expected = rows.received[static_cast<std::size_t>(r)];
      const std::vector<std::int64_t>& theirs = mailbox_->args(r).rows->sent;
      const std::int64_t sent = theirs[static_cast<std::size_t>(rank())];
      if (sent != expected)
        fault = fmt::format("{} rows sent by member {} and {} expected", sent, r, expected);
      const auto row = static_cast<std::size_t>(width) * in.element_size();
      const auto first =
          static_cast<std::size_t>(std::accumulate(theirs.begin(), theirs.begin() + rank(), std::int64_t{0}));
      copy_bytes(to, bytes_of(mailbox_->args(r).in) + first * row,
                 static_cast<std::size_t>(std::min(sent, expected)) * row);
      to += static_cast<std::size_t>(expected) * row;
    }
    mailbox_->end_collective(rank());
    COL_CHECK(fault.empty(), "all_to_all \"{}\": sent and received row counts must match; got {}", call.what,
              fault);
    return hide_until_wait(out, in);
  }

  Work send(at::Tensor tensor, int to, int tag, const Call& call) override {
    check_cpu(tensor);
    const at::Tensor message = tensor.clone();
    mailbox_->send(rank(), to, tag, message);
    return Work([tensor, message, what = std::string(call.what)] {
      COL_CHECK(std::memcmp(tensor.const_data_ptr(), message.const_data_ptr(), message.nbytes()) == 0,
                "send \"{}\": the tensor must not change before wait(); got another value", what);
    });
  }

  Work recv(at::Tensor tensor, int from, int tag, const Call&) override {
    check_cpu(tensor);
    const std::uint64_t sequence = mailbox_->reserve_receive(from, rank(), tag);
    return Work([mailbox = mailbox_, tensor, from, to = rank(), tag, sequence] {
      const at::Tensor message = mailbox->receive(from, to, tag, sequence);
      COL_CHECK(message.sizes() == tensor.sizes() && message.scalar_type() == tensor.scalar_type(),
                "recv: sender and receiver must agree; got {} {} sent and {} {} expected, tag {}",
                c10::toString(message.scalar_type()), message.sizes(), c10::toString(tensor.scalar_type()),
                tensor.sizes(), tag);
      copy_bytes(tensor.data_ptr(), message.data_ptr(), tensor.nbytes());
    });
  }

  void barrier(const Call& call) override {
    const CollectiveArgs args{call.operation, call.what};
    mailbox_->begin_collective(rank(), args);
    mailbox_->end_collective(rank());
  }

 private:
  static void check_cpu(const at::Tensor& tensor) {
    COL_CHECK(tensor.is_cpu(), "tensors of thread ranks must be on the CPU; got {}", tensor.device().str());
  }

  /// Runs `body` between two barriers, while every member's tensors may be read, and hides the result until
  /// wait().
  template <typename Body>
  Work run_collective(const Call& call, const at::Tensor& out, const at::Tensor& in, const Body& body) {
    check_cpu(in);
    const CollectiveArgs args{call.operation, call.what,     in.scalar_type(),
                              in.numel(),     in.data_ptr(), out.data_ptr()};
    mailbox_->begin_collective(rank(), args);
    body();
    mailbox_->end_collective(rank());
    return hide_until_wait(out, in);
  }

  /// Fills `out` with NaN until wait(), except an all_gather's `in` within it, so that a read before wait()
  /// fails in every run.
  static Work hide_until_wait(const at::Tensor& out, const at::Tensor& in) {
    if (out.numel() == 0) return Work();
    const at::Tensor result = out.clone();
    auto* const begin = bytes_of(out.data_ptr());
    const auto* const kept_begin = bytes_of(in.const_data_ptr());
    const bool within = in.numel() < out.numel() && kept_begin >= begin && kept_begin < begin + out.nbytes();
    const std::size_t before = within ? static_cast<std::size_t>(kept_begin - begin) : out.nbytes();
    const std::size_t after = within ? before + in.nbytes() : out.nbytes();
    constexpr int kNanByte = 0xFF;  // NaN in every float type
    std::memset(begin, kNanByte, before);
    std::memset(begin + after, kNanByte, out.nbytes() - after);
    return Work([out, result] { copy_bytes(out.data_ptr(), result.const_data_ptr(), out.nbytes()); });
  }

  [[nodiscard]] std::vector<const void*> inputs(std::size_t offset) const {
    std::vector<const void*> parts;
    for (int r = 0; r < size(); ++r) parts.push_back(bytes_of(mailbox_->args(r).in) + offset);
    return parts;
  }
  /// Slice r of dimension 0 of `whole`.
  [[nodiscard]] std::byte* shard(const at::Tensor& whole, int r) const {
    return bytes_of(whole.data_ptr()) +
           whole.nbytes() / static_cast<std::size_t>(size()) * static_cast<std::size_t>(r);
  }
  /// This member's range of `count` elements, aligned to cache lines.
  [[nodiscard]] std::pair<std::int64_t, std::int64_t> owned_range(std::int64_t count) const {
    constexpr std::int64_t kLine = 64;
    const std::int64_t share = (count / size() / kLine + 1) * kLine;
    return {std::min(count, rank() * share), std::min(count, (rank() + 1) * share)};
  }

  std::shared_ptr<Mailbox> mailbox_;
};

class ThreadFactory final : public GroupFactory {
 public:
  explicit ThreadFactory(std::shared_ptr<ThreadWorld> world) : world_(std::move(world)) {}

  std::shared_ptr<Backend> make(const std::vector<int>& ranks, int my_index,
                                const std::string& name) override {
    const std::string key = fmt::format("{}#{}", name, group_counts_[name]++);
    return std::make_shared<ThreadBackend>(world_->mailbox(key, ranks), ranks, my_index);
  }

 private:
  std::shared_ptr<ThreadWorld> world_;
  std::map<std::string, int>
      group_counts_;  ///< number of groups by name, since two meshes may use the same name
};

void run_rank(const std::shared_ptr<ThreadWorld>& world, const layout::Mesh& mesh, int rank,
              const std::function<void(Communicators&)>& body) {
  at::set_num_threads(1);
  const ProgressScope scope(world->page(rank));
  try {
    Communicators communicators(mesh, rank, std::make_shared<ThreadFactory>(world));
    body(communicators);
    world->finish(rank, nullptr, "");
  } catch (const std::exception& error) {
    world->finish(rank, std::current_exception(), error.what());
  } catch (...) {
    world->finish(rank, std::current_exception(), "an exception other than std::exception");
  }
}

}  // namespace

void run_ranks(const config::Parallel& parallel, const std::function<void(Communicators&)>& body,
               std::chrono::milliseconds timeout) {
  const layout::Mesh mesh(parallel);
  const int threads_before = at::get_num_threads();
  const auto world = std::make_shared<ThreadWorld>(mesh.world_size(), timeout);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    threads.emplace_back([&, rank] { run_rank(world, mesh, rank, body); });
  }
  for (std::thread& thread : threads) thread.join();
  at::set_num_threads(threads_before);  // the ranks have set a process-wide default
  if (world->first_error()) std::rethrow_exception(world->first_error());
}

void run_ranks(int world, const std::function<void(Communicators&)>& body,
               std::chrono::milliseconds timeout) {
  config::Parallel parallel;
  parallel.world_size = world;
  run_ranks(parallel, body, timeout);
}

}  // namespace colonnade::comm
