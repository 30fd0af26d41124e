// The shared-memory backend of Group and the threads that run on it.
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
  ThreadBackend(std::shared_ptr<Hub> hub, std::vector<int> ranks, int rank)
      : Backend(std::move(ranks), rank), hub_(std::move(hub)) {}

  [[nodiscard]] std::string_view name() const override { return "threads"; }

  Work all_reduce(at::Tensor tensor, Reduce op, const Call& call) override {
    return together(call, tensor, tensor, [&] {
      // Member r owns slice r: it alone reads and writes these elements, in every member's memory.
      const auto [first, last] = slice(tensor.numel());
      const auto offset = static_cast<std::size_t>(first) * tensor.element_size();
      const auto bytes = static_cast<std::size_t>(last - first) * tensor.element_size();
      reduce(tensor.scalar_type(), inputs(offset), bytes_of(tensor.data_ptr()) + offset, last - first, op);
      for (int r = 0; r < size(); ++r) {
        copy_bytes(bytes_of(hub_->post(r).out) + offset, bytes_of(tensor.data_ptr()) + offset, bytes);
      }
    });
  }

  Work all_gather(at::Tensor out, at::Tensor in, const Call& call) override {
    return together(call, out, in, [&] {
      for (int r = 0; r < size(); ++r) copy_bytes(part(out, r), hub_->post(r).in, in.nbytes());
    });
  }

  Work reduce_scatter(at::Tensor out, at::Tensor in, const Call& call) override {
    return together(call, out, in, [&] {
      const auto offset = static_cast<std::size_t>(rank()) * out.nbytes();
      reduce(out.scalar_type(), inputs(offset), out.data_ptr(), out.numel(), Reduce::kSum);
    });
  }

  Work broadcast(at::Tensor tensor, int root, const Call& call) override {
    return together(call, tensor, tensor,
                    [&] { copy_bytes(tensor.data_ptr(), hub_->post(root).in, tensor.nbytes()); });
  }

  Work all_to_all(at::Tensor out, at::Tensor in, const Rows& rows, const Call& call) override {
    check_cpu(in);
    const std::int64_t width = c10::multiply_integers(in.sizes().slice(1));
    const Post post{call.operation, call.what, in.scalar_type(), width, in.data_ptr(), out.data_ptr(), &rows};
    hub_->meet(rank(), post);
    std::string fault;
    std::byte* to = bytes_of(out.data_ptr());
    for (int r = 0; r < size(); ++r) {
      const std::int64_t expected = rows.received[static_cast<std::size_t>(r)];
      const std::vector<std::int64_t>& theirs = hub_->post(r).rows->sent;
      const std::int64_t sent = theirs[static_cast<std::size_t>(rank())];
      if (sent != expected)
        fault = fmt::format("{} rows sent by member {} and {} expected", sent, r, expected);
      const auto row = static_cast<std::size_t>(width) * in.element_size();
      const auto first =
          static_cast<std::size_t>(std::accumulate(theirs.begin(), theirs.begin() + rank(), std::int64_t{0}));
      copy_bytes(to, bytes_of(hub_->post(r).in) + first * row,
                 static_cast<std::size_t>(std::min(sent, expected)) * row);
      to += static_cast<std::size_t>(expected) * row;
    }
    hub_->depart(rank());
    COL_CHECK(fault.empty(), "all_to_all \"{}\": both sides must count the same rows; got {}", call.what,
              fault);
    return hidden(out, in);
  }

  Work send(at::Tensor tensor, int to, int tag, const Call& call) override {
    check_cpu(tensor);
    const at::Tensor letter = tensor.clone();
    hub_->put(rank(), to, tag, letter);
    return Work([tensor, letter, what = std::string(call.what)] {
      COL_CHECK(std::memcmp(tensor.const_data_ptr(), letter.const_data_ptr(), letter.nbytes()) == 0,
                "send \"{}\": the tensor must stay as it is until wait(); got another value", what);
    });
  }

  Work recv(at::Tensor tensor, int from, int tag, const Call&) override {
    check_cpu(tensor);
    const std::uint64_t number = hub_->expect(from, rank(), tag);
    return Work([hub = hub_, tensor, from, to = rank(), tag, number] {
      const at::Tensor letter = hub->take(from, to, tag, number);
      COL_CHECK(letter.sizes() == tensor.sizes() && letter.scalar_type() == tensor.scalar_type(),
                "recv: sender and receiver must agree; got {} {} sent and {} {} expected, tag {}",
                c10::toString(letter.scalar_type()), letter.sizes(), c10::toString(tensor.scalar_type()),
                tensor.sizes(), tag);
      copy_bytes(tensor.data_ptr(), letter.data_ptr(), tensor.nbytes());
    });
  }

  void barrier(const Call& call) override {
    const Post post{call.operation, call.what};
    hub_->meet(rank(), post);
    hub_->depart(rank());
  }

 private:
  static void check_cpu(const at::Tensor& tensor) {
    COL_CHECK(tensor.is_cpu(), "thread ranks: tensors must be on the CPU; got {}", tensor.device().str());
  }

  /// Runs `body` while every member's tensors may be read and nobody has gone on, and hides the result
  /// until wait().
  template <typename Body>
  Work together(const Call& call, const at::Tensor& out, const at::Tensor& in, const Body& body) {
    check_cpu(in);
    const Post post{call.operation, call.what, in.scalar_type(), in.numel(), in.data_ptr(), out.data_ptr()};
    hub_->meet(rank(), post);
    body();
    hub_->depart(rank());
    return hidden(out, in);
  }

  /// `out` holds no numbers before wait(), except where it is `in` of an all_gather, which nobody writes:
  /// who reads too early fails every time and not once in a thousand runs.
  static Work hidden(const at::Tensor& out, const at::Tensor& in) {
    if (out.numel() == 0) return Work();
    const at::Tensor result = out.clone();
    auto* const begin = bytes_of(out.data_ptr());
    const auto* const kept = bytes_of(in.const_data_ptr());
    const bool within = in.numel() < out.numel() && kept >= begin && kept < begin + out.nbytes();
    const std::size_t before = within ? static_cast<std::size_t>(kept - begin) : out.nbytes();
    const std::size_t after = within ? before + in.nbytes() : out.nbytes();
    constexpr int kNoNumber = 0xFF;  // NaN in every float type
    std::memset(begin, kNoNumber, before);
    std::memset(begin + after, kNoNumber, out.nbytes() - after);
    return Work([out, result] { copy_bytes(out.data_ptr(), result.const_data_ptr(), out.nbytes()); });
  }

  [[nodiscard]] std::vector<const void*> inputs(std::size_t offset) const {
    std::vector<const void*> parts;
    for (int r = 0; r < size(); ++r) parts.push_back(bytes_of(hub_->post(r).in) + offset);
    return parts;
  }
  /// Slice r of dimension 0 of `whole`.
  [[nodiscard]] std::byte* part(const at::Tensor& whole, int r) const {
    return bytes_of(whole.data_ptr()) +
           whole.nbytes() / static_cast<std::size_t>(size()) * static_cast<std::size_t>(r);
  }
  /// This member's share of `count` elements, in whole cache lines.
  [[nodiscard]] std::pair<std::int64_t, std::int64_t> slice(std::int64_t count) const {
    constexpr std::int64_t kLine = 64;
    const std::int64_t share = (count / size() / kLine + 1) * kLine;
    return {std::min(count, rank() * share), std::min(count, (rank() + 1) * share)};
  }

  std::shared_ptr<Hub> hub_;
};

class ThreadFactory final : public GroupFactory {
 public:
  explicit ThreadFactory(std::shared_ptr<ThreadWorld> world) : world_(std::move(world)) {}

  std::shared_ptr<Backend> make(const std::vector<int>& ranks, int my_index,
                                const std::string& name) override {
    const std::string key = fmt::format("{}#{}", name, made_[name]++);
    return std::make_shared<ThreadBackend>(world_->hub(key, ranks), ranks, my_index);
  }

 private:
  std::shared_ptr<ThreadWorld> world_;
  std::map<std::string, int> made_;  ///< groups of equal name: two meshes of one job may want them
};

void run_rank(const std::shared_ptr<ThreadWorld>& world, const layout::Mesh& mesh, int rank,
              const std::function<void(Communicators&)>& body) {
  at::set_num_threads(1);
  const ProgressScope scope(world->page(rank));
  try {
    Communicators communicators(mesh, rank, std::make_shared<ThreadFactory>(world));
    body(communicators);
    world->leave(rank, nullptr, "");
  } catch (const std::exception& error) {
    world->leave(rank, std::current_exception(), error.what());
  } catch (...) {
    world->leave(rank, std::current_exception(), "an exception that is no std::exception");
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
  at::set_num_threads(threads_before);  // the number for new threads is one of the process
  if (world->first_error()) std::rethrow_exception(world->first_error());
}

void run_ranks(int world, const std::function<void(Communicators&)>& body,
               std::chrono::milliseconds timeout) {
  config::Parallel parallel;
  parallel.world_size = world;
  run_ranks(parallel, body, timeout);
}

}  // namespace colonnade::comm
