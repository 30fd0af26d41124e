// Barriers and messages between threads; errors name the missing ranks.
#include "colonnade/comm/thread_world.h"

#include <c10/core/ScalarType.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "colonnade/base/error.h"

namespace colonnade::comm {
namespace {

/// " (last started "layer 1 / sum" on tp)", from the rank's progress page.
std::string last_seen(const Progress& page) {
  const ProgressSnapshot now = page.read();
  if (!now.last) return {};
  return fmt::format(" (last started \"{}\" on {})", now.last->what, now.last->axes);
}

}  // namespace

Mailbox::Mailbox(ThreadWorld& world, std::vector<int> ranks)
    : world_(world), ranks_(std::move(ranks)), args_(ranks_.size()), arrived_members_(ranks_.size()) {}

void Mailbox::give_up(const std::string& reason) {
  if (abort_reason_.empty()) abort_reason_ = reason;
  changed_.notify_all();
  throw CommError(reason);
}

template <typename Ready, typename Missing>
void Mailbox::wait(std::unique_lock<std::mutex>& lock, const Ready& ready, const Missing& missing) {
  const auto deadline = std::chrono::steady_clock::now() + world_.timeout_;
  while (!ready()) {
    if (!abort_reason_.empty()) throw CommError(abort_reason_);
    for (const int rank : missing()) {
      const std::string& why = world_.finish_reasons_[static_cast<std::size_t>(rank)];
      if (!why.empty()) give_up(fmt::format("rank {} {}", rank, why));
    }
    if (changed_.wait_until(lock, deadline) == std::cv_status::timeout && !ready()) {
      std::vector<std::string> names;
      for (const int rank : missing())
        names.push_back(fmt::format("rank {}{}", rank, last_seen(world_.page(rank))));
      give_up(fmt::format("{} did not arrive within {} ms", fmt::join(names, ", "), world_.timeout_.count()));
    }
  }
}

void Mailbox::barrier(std::unique_lock<std::mutex>& lock, int me) {
  if (!abort_reason_.empty())
    throw CommError(abort_reason_);  // the args of the member that gave up were on its stack
  arrived_members_[static_cast<std::size_t>(me)] = true;
  if (++num_arrived_ == size()) {
    num_arrived_ = 0;
    arrived_members_.assign(ranks_.size(), false);
    ++generation_;
    changed_.notify_all();
    return;
  }
  const std::uint64_t generation = generation_;
  wait(
      lock, [&] { return generation_ != generation; },
      [&] {
        std::vector<int> missing;
        for (std::size_t i = 0; i < ranks_.size(); ++i) {
          if (!arrived_members_[i]) missing.push_back(ranks_[i]);
        }
        return missing;
      });
}

void Mailbox::begin_collective(int me, const CollectiveArgs& args) {
  std::unique_lock lock(world_.mutex_);
  args_[static_cast<std::size_t>(me)] = &args;
  barrier(lock, me);
  for (int r = 0; r < size(); ++r) {
    const CollectiveArgs& other = this->args(r);
    if (other.operation == args.operation && other.type == args.type && other.count == args.count) continue;
    const auto text = [](const CollectiveArgs& p) {
      return fmt::format("{} \"{}\" of {} {} elements", p.operation, p.what, p.count, c10::toString(p.type));
    };
    const std::string reason = fmt::format(
        "collectives must be equal in name and shape on all members; got {} on rank {} and {} on "
        "rank {}; make the ranks follow the same path",
        text(args), ranks_[static_cast<std::size_t>(me)], text(other), ranks_[static_cast<std::size_t>(r)]);
    // No member may return before all have compared: the args are on their stacks.
    barrier(lock, me);
    throw Error(reason);
  }
}

void Mailbox::end_collective(int me) {
  std::unique_lock lock(world_.mutex_);
  barrier(lock, me);
}

void Mailbox::send(int from, int to, int tag, at::Tensor message) {
  const std::unique_lock lock(world_.mutex_);
  Channel& channel = channels_[{from, to, tag}];
  channel.messages.emplace(channel.sent++, std::move(message));
  changed_.notify_all();
}

std::uint64_t Mailbox::reserve_receive(int from, int to, int tag) {
  const std::unique_lock lock(world_.mutex_);
  return channels_[{from, to, tag}].reserved++;
}

at::Tensor Mailbox::receive(int from, int to, int tag, std::uint64_t sequence) {
  std::unique_lock lock(world_.mutex_);
  Channel& channel = channels_[{from, to, tag}];
  wait(
      lock, [&] { return channel.messages.count(sequence) > 0; },
      [&] { return std::vector<int>{ranks_[static_cast<std::size_t>(from)]}; });
  return std::move(channel.messages.extract(sequence).mapped());
}

ThreadWorld::ThreadWorld(int size, std::chrono::milliseconds timeout)
    : timeout_(timeout), finish_reasons_(static_cast<std::size_t>(size)) {
  for (int r = 0; r < size; ++r) {
    pages_.push_back(std::make_unique<Progress>());
    pages_.back()->set_rank(r, size);
  }
}

std::shared_ptr<Mailbox> ThreadWorld::mailbox(const std::string& name, const std::vector<int>& ranks) {
  const std::unique_lock lock(mutex_);
  auto& mailbox = mailboxes_[name];
  if (!mailbox) mailbox = std::make_shared<Mailbox>(*this, ranks);
  COL_CHECK(mailbox->ranks_ == ranks, "group {} must have the same ranks on all members; got {} and {}", name,
            fmt::join(mailbox->ranks_, ","), fmt::join(ranks, ","));
  return mailbox;
}

void ThreadWorld::finish(int rank, std::exception_ptr error, const std::string& message) {
  const std::unique_lock lock(mutex_);
  finish_reasons_[static_cast<std::size_t>(rank)] = error ? "failed: " + message : "has ended";
  if (error && !first_error_) first_error_ = error;
  for (const auto& [name, mailbox] : mailboxes_) mailbox->changed_.notify_all();
}

}  // namespace colonnade::comm
