// Group: checks arguments, records each call before it starts, and turns every backend error into a
// CommError.
#include "colonnade/comm/group.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <numeric>

#include "colonnade/base/error.h"
#include "colonnade/base/log.h"
#include "colonnade/base/progress.h"
#include "colonnade/comm/backend.h"
#include "colonnade/comm/trace_range.h"

namespace colonnade::comm {
namespace {

[[noreturn]] void throw_comm_error(const Backend& backend, const Call& call, std::string_view reason) {
  throw CommError(fmt::format(
      "{} \"{}\": every rank of group {} must take part; got an error on rank {} ({} bytes, ranks {}): {}; "
      "see the log of the lost rank, then resume from the last checkpoint",
      call.operation, call.what, call.axes, backend.ranks()[static_cast<std::size_t>(backend.rank())],
      call.bytes, list_ranks(backend.ranks()), reason));
}

/// Runs `body` and turns its exceptions into CommError, except violated preconditions (Error).
template <typename Body>
auto translate(const Backend& backend, const Call& call, const Body& body) {
  try {
    return body();
  } catch (const CommError& error) {
    throw_comm_error(backend, call, error.what());
  } catch (const Error&) {
    throw;
  } catch (const c10::Error& error) {
    throw_comm_error(backend, call, error.what_without_backtrace());
  } catch (const std::exception& error) {
    throw_comm_error(backend, call, error.what());
  }
}

void check_contiguous(std::string_view operation, std::string_view what, const at::Tensor& tensor) {
  COL_CHECK(tensor.is_contiguous(),
            "{} \"{}\": the tensor must be contiguous; got shape {} with strides {}; call contiguous() first",
            operation, what, tensor.sizes(), tensor.strides());
}

/// `full` must have the shape of `size` shards stacked along dimension 0 (of a vector for scalar shards).
void check_sharding(std::string_view operation, std::string_view what, const at::Tensor& full,
                    const at::Tensor& shard, int size) {
  check_contiguous(operation, what, full);
  check_contiguous(operation, what, shard);
  std::vector<std::int64_t> expected = shard.sizes().vec();
  if (expected.empty()) expected.push_back(1);
  expected[0] *= size;
  COL_CHECK(
      full.sizes() == at::IntArrayRef(expected) && full.dtype() == shard.dtype() &&
          full.device() == shard.device(),
      "{} \"{}\": the full tensor must be {} shards along dimension 0; got full {} {} on {} and shard {} {} on {}",
      operation, what, size, full.sizes(), c10::toString(full.scalar_type()), full.device().str(),
      shard.sizes(), c10::toString(shard.scalar_type()), shard.device().str());
}

/// `tensor` must have as many rows as `rows` sums to.
void check_rows(std::string_view what, const char* side, const at::Tensor& tensor,
                const std::vector<std::int64_t>& rows, int members) {
  check_contiguous("all_to_all", what, tensor);
  const bool counts = static_cast<int>(rows.size()) == members &&
                      std::ranges::all_of(rows, [](std::int64_t n) { return n >= 0; });
  const auto sum = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  COL_CHECK(
      counts && tensor.dim() > 0 && tensor.size(0) == sum,
      "all_to_all \"{}\": {} rows must be one count for each of {} members and add up to dimension 0; got "
      "{} for shape {}",
      what, side, members, fmt::join(rows, ", "), tensor.sizes());
}

/// Adds the time of its scope to the rank's communication time.
class CommTimer {
 public:
  explicit CommTimer(Progress& page) : page_(page) {}
  ~CommTimer() { page_.add_communication(monotonic_ns() - begin_ns_); }
  CommTimer(const CommTimer&) = delete;
  CommTimer& operator=(const CommTimer&) = delete;

 private:
  Progress& page_;
  std::int64_t begin_ns_ = monotonic_ns();
};

std::int64_t bytes(const at::Tensor& tensor) { return static_cast<std::int64_t>(tensor.nbytes()); }

/// Result of a collective on a group of one: the input.
void copy_single(const at::Tensor& out, const at::Tensor& in) {
  if (out.is_meta() || out.data_ptr() == in.data_ptr()) return;
  const at::NoGradGuard no_grad;
  out.detach().view_as(in).copy_(in);
}

}  // namespace

std::string list_ranks(const std::vector<int>& ranks) {
  constexpr std::size_t kShown = 16;
  if (ranks.size() <= kShown) return fmt::format("{}", fmt::join(ranks, ", "));
  return fmt::format("{}, ..., {}", fmt::join(ranks.begin(), ranks.begin() + 3, ", "), ranks.back());
}

Work& Work::operator=(Work&& other) {
  if (this != &other) {
    wait();
    wait_ = std::exchange(other.wait_, nullptr);
  }
  return *this;
}

Work::~Work() {
  if (!wait_ || std::uncaught_exceptions() > 0) return;
  try {
    wait();
  } catch (const std::exception& error) {
    log::error("{}", error.what());  // the next call on the group throws
  }
}

void Work::wait() {
  if (!wait_) return;
  const auto wait = std::exchange(wait_, nullptr);
  wait();
}

Group::Group() = default;
Group::Group(std::shared_ptr<Backend> backend, std::string axes)
    : backend_(std::move(backend)), axes_(std::move(axes)), progress_(&progress()) {
  progress_id_ = progress_->add_group(axes_, backend_->ranks());
}

int Group::rank() const { return backend_ ? backend_->rank() : 0; }
int Group::size() const { return backend_ ? backend_->size() : 1; }

const std::vector<int>& Group::ranks() const {
  static const std::vector<int> none;
  return backend_ ? backend_->ranks() : none;
}

template <typename Start>
Work Group::run(std::string_view operation, std::string_view what, std::int64_t bytes, int peer,
                const Start& start) const {
  const at::NoGradGuard no_grad;
  const CommTimer timer(*progress_);
  const TraceRange range([&] { return fmt::format("{} {} ({})", operation, what, axes_); });
  const CollectiveTicket ticket = progress_->begin(progress_id_, what, peer);
  const auto call =
      std::make_shared<const Call>(Call{operation, std::string(what), axes_, bytes, progress_, ticket});
  const auto work =
      std::make_shared<Work>(translate(*backend_, *call, [&] { return start(*backend_, *call); }));
  if (!work->pending()) {
    progress_->end(ticket);
    return {};
  }
  return Work([backend = backend_, page = progress_, ticket, call, work] {
    const CommTimer waiting(*page);
    const TraceRange waits(
        [&] { return fmt::format("wait {} {} ({})", call->operation, call->what, call->axes); });
    page->wait(ticket, call->what);
    translate(*backend, *call, [&] { work->wait(); });
    if (!call->backend_ends_ticket) page->end(ticket);
  });
}

Work Group::all_reduce(at::Tensor tensor, std::string_view what, Reduce op) const {
  if (size() == 1) return {};
  check_contiguous("all_reduce", what, tensor);
  return run("all_reduce", what, bytes(tensor), -1,
             [&](Backend& backend, const Call& call) { return backend.all_reduce(tensor, op, call); });
}

Work Group::all_gather(at::Tensor out, at::Tensor in, std::string_view what) const {
  check_sharding("all_gather", what, out, in, size());
  if (size() == 1) return copy_single(out, in), Work();
  return run("all_gather", what, bytes(out), -1,
             [&](Backend& backend, const Call& call) { return backend.all_gather(out, in, call); });
}

Work Group::reduce_scatter(at::Tensor out, at::Tensor in, std::string_view what) const {
  check_sharding("reduce_scatter", what, in, out, size());
  if (size() == 1) return copy_single(out, in), Work();
  return run("reduce_scatter", what, bytes(in), -1,
             [&](Backend& backend, const Call& call) { return backend.reduce_scatter(out, in, call); });
}

Work Group::broadcast(at::Tensor tensor, int root, std::string_view what) const {
  COL_CHECK(root >= 0 && root < size(), "broadcast \"{}\": root must be a member; got {} of {}", what, root,
            size());
  if (size() == 1) return {};
  check_contiguous("broadcast", what, tensor);
  return run("broadcast", what, bytes(tensor), -1,
             [&](Backend& backend, const Call& call) { return backend.broadcast(tensor, root, call); });
}

Work Group::all_to_all(at::Tensor out, at::Tensor in, const Rows& rows, std::string_view what) const {
  check_rows(what, "received", out, rows.received, size());
  check_rows(what, "sent", in, rows.sent, size());
  COL_CHECK(
      out.sizes().slice(1) == in.sizes().slice(1) && out.dtype() == in.dtype() && out.device() == in.device(),
      "all_to_all \"{}\": `out` and `in` must have equal row shape, dtype and device; got {} {} and {} {}",
      what, out.sizes(), c10::toString(out.scalar_type()), in.sizes(), c10::toString(in.scalar_type()));
  if (size() == 1) return copy_single(out, in), Work();
  return run("all_to_all", what, bytes(in), -1,
             [&](Backend& backend, const Call& call) { return backend.all_to_all(out, in, rows, call); });
}

Work Group::all_to_all(at::Tensor out, at::Tensor in, std::string_view what) const {
  COL_CHECK(in.dim() > 0 && in.size(0) % size() == 0,
            "all_to_all \"{}\": dimension 0 must be divisible by {} members; got shape {}", what, size(),
            in.sizes());
  const std::vector<std::int64_t> even(static_cast<std::size_t>(size()), in.size(0) / size());
  return all_to_all(std::move(out), std::move(in), {even, even}, what);
}

Work Group::send(at::Tensor tensor, int to, int tag, std::string_view what) const {
  COL_CHECK(to >= 0 && to < size() && to != rank(),
            "send \"{}\": the receiver must be another member; got {} of {}, from {}", what, to, size(),
            rank());
  check_contiguous("send", what, tensor);
  return run("send", what, bytes(tensor), ranks()[static_cast<std::size_t>(to)],
             [&](Backend& backend, const Call& call) { return backend.send(tensor, to, tag, call); });
}

Work Group::recv(at::Tensor tensor, int from, int tag, std::string_view what) const {
  COL_CHECK(from >= 0 && from < size() && from != rank(),
            "recv \"{}\": the sender must be another member; got {} of {}, at {}", what, from, size(),
            rank());
  check_contiguous("recv", what, tensor);
  return run("recv", what, bytes(tensor), ranks()[static_cast<std::size_t>(from)],
             [&](Backend& backend, const Call& call) { return backend.recv(tensor, from, tag, call); });
}

void Group::barrier(std::string_view what) const {
  if (size() == 1) return;
  run("barrier", what, 0, -1, [](Backend& backend, const Call& call) {
    return Work([&] { backend.barrier(call); });
  }).wait();
}

std::vector<std::string> Group::all_gather_text(const std::string& text, std::string_view what) const {
  if (size() == 1) return {text};
  const auto on = at::TensorOptions().device(backend_->device());
  const auto length = static_cast<std::int64_t>(text.size());
  at::Tensor lengths = at::zeros({size()}, on.dtype(at::kLong));
  all_gather(lengths, at::full({1}, length, on.dtype(at::kLong)), what).wait();
  lengths = lengths.cpu();
  const std::int64_t longest = lengths.max().item<std::int64_t>();
  at::Tensor padded = at::zeros({longest}, at::kByte);
  std::copy(text.begin(), text.end(), padded.data_ptr<std::uint8_t>());
  at::Tensor all = at::zeros({size() * longest}, on.dtype(at::kByte));
  all_gather(all, padded.to(backend_->device()), what).wait();
  all = all.cpu();
  std::vector<std::string> texts;
  for (int r = 0; r < size(); ++r) {
    const auto* first = reinterpret_cast<const char*>(all.data_ptr<std::uint8_t>()) + r * longest;
    texts.emplace_back(first, static_cast<std::size_t>(lengths[r].item<std::int64_t>()));
  }
  return texts;
}

}  // namespace colonnade::comm
