// Barriers and mail among threads, with the names of those who are missing.
#include "colonnade/comm/thread_world.h"

#include <c10/core/ScalarType.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "colonnade/base/error.h"

namespace colonnade::comm {
namespace {

/// " (last started "layer 1 / sum" on tp)", from the rank's page.
std::string last_seen(const Progress& page) {
  const ProgressSnapshot now = page.read();
  if (!now.last) return {};
  return fmt::format(" (last started \"{}\" on {})", now.last->what, now.last->axes);
}

}  // namespace

Hub::Hub(ThreadWorld& world, std::vector<int> ranks)
    : world_(world), ranks_(std::move(ranks)), posts_(ranks_.size()), here_(ranks_.size()) {}

void Hub::give_up(const std::string& reason) {
  if (broken_.empty()) broken_ = reason;
  changed_.notify_all();
  throw CommError(reason);
}

template <typename Ready, typename Missing>
void Hub::wait(std::unique_lock<std::mutex>& lock, const Ready& ready, const Missing& missing) {
  const auto deadline = std::chrono::steady_clock::now() + world_.timeout_;
  while (!ready()) {
    if (!broken_.empty()) throw CommError(broken_);
    for (const int rank : missing()) {
      const std::string& why = world_.left_[static_cast<std::size_t>(rank)];
      if (!why.empty()) give_up(fmt::format("rank {} {}", rank, why));
    }
    if (changed_.wait_until(lock, deadline) == std::cv_status::timeout && !ready()) {
      std::vector<std::string> names;
      for (const int rank : missing())
        names.push_back(fmt::format("rank {}{}", rank, last_seen(world_.page(rank))));
      give_up(fmt::format("{} did not come within {} ms", fmt::join(names, ", "), world_.timeout_.count()));
    }
  }
}

void Hub::barrier(std::unique_lock<std::mutex>& lock, int me) {
  if (!broken_.empty()) throw CommError(broken_);  // who gave up has left its post, which lay on its stack
  here_[static_cast<std::size_t>(me)] = true;
  if (++arrived_ == size()) {
    arrived_ = 0;
    here_.assign(ranks_.size(), false);
    ++meetings_;
    changed_.notify_all();
    return;
  }
  const std::uint64_t meeting = meetings_;
  wait(
      lock, [&] { return meetings_ != meeting; },
      [&] {
        std::vector<int> missing;
        for (std::size_t i = 0; i < ranks_.size(); ++i) {
          if (!here_[i]) missing.push_back(ranks_[i]);
        }
        return missing;
      });
}

void Hub::meet(int me, const Post& post) {
  std::unique_lock lock(world_.mutex_);
  posts_[static_cast<std::size_t>(me)] = &post;
  barrier(lock, me);
  for (int r = 0; r < size(); ++r) {
    const Post& other = this->post(r);
    if (other.operation == post.operation && other.type == post.type && other.count == post.count) continue;
    const auto text = [](const Post& p) {
      return fmt::format("{} \"{}\" of {} {} elements", p.operation, p.what, p.count, c10::toString(p.type));
    };
    const std::string reason = fmt::format(
        "collective: all members must call the same one with equal shapes; got {} on rank {} and {} on "
        "rank {}; make the ranks take the same path",
        text(post), ranks_[static_cast<std::size_t>(me)], text(other), ranks_[static_cast<std::size_t>(r)]);
    // Nobody may return from here before all have compared: the posts live on their stacks.
    barrier(lock, me);
    throw Error(reason);
  }
}

void Hub::depart(int me) {
  std::unique_lock lock(world_.mutex_);
  barrier(lock, me);
}

void Hub::put(int from, int to, int tag, at::Tensor letter) {
  const std::unique_lock lock(world_.mutex_);
  Box& box = mail_[{from, to, tag}];
  box.letters.emplace(box.sent++, std::move(letter));
  changed_.notify_all();
}

std::uint64_t Hub::expect(int from, int to, int tag) {
  const std::unique_lock lock(world_.mutex_);
  return mail_[{from, to, tag}].expected++;
}

at::Tensor Hub::take(int from, int to, int tag, std::uint64_t number) {
  std::unique_lock lock(world_.mutex_);
  Box& box = mail_[{from, to, tag}];
  wait(
      lock, [&] { return box.letters.count(number) > 0; },
      [&] { return std::vector<int>{ranks_[static_cast<std::size_t>(from)]}; });
  return std::move(box.letters.extract(number).mapped());
}

ThreadWorld::ThreadWorld(int size, std::chrono::milliseconds timeout)
    : timeout_(timeout), left_(static_cast<std::size_t>(size)) {
  for (int r = 0; r < size; ++r) {
    pages_.push_back(std::make_unique<Progress>());
    pages_.back()->set_rank(r, size);
  }
}

std::shared_ptr<Hub> ThreadWorld::hub(const std::string& name, const std::vector<int>& ranks) {
  const std::unique_lock lock(mutex_);
  auto& hub = hubs_[name];
  if (!hub) hub = std::make_shared<Hub>(*this, ranks);
  COL_CHECK(hub->ranks_ == ranks, "group {}: all members must name the same ranks; got {} and {}", name,
            fmt::join(hub->ranks_, ","), fmt::join(ranks, ","));
  return hub;
}

void ThreadWorld::leave(int rank, std::exception_ptr error, const std::string& message) {
  const std::unique_lock lock(mutex_);
  left_[static_cast<std::size_t>(rank)] = error ? "failed: " + message : "has ended";
  if (error && !first_error_) first_error_ = error;
  for (const auto& [name, hub] : hubs_) hub->changed_.notify_all();
}

}  // namespace colonnade::comm
