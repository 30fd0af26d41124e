// See device_op_watchdog.h.
#include "colonnade/comm/device_op_watchdog.h"

#include <fmt/format.h>

#include <algorithm>

#include "colonnade/base/error.h"
#include "colonnade/base/log.h"

namespace colonnade::comm {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kPollInterval = std::chrono::milliseconds(20);

/// Whether `op` has completed; a failure is written to `failure`.
bool is_done(const DeviceOp& op, std::string& failure) {
  try {
    return op.completed();
  } catch (const std::exception& error) {
    failure = fmt::format("{}: {}", op.text, error.what());
    return false;
  }
}

}  // namespace

DeviceOpWatchdog::DeviceOpWatchdog(std::chrono::milliseconds timeout, std::function<void()> on_lost,
                                   std::chrono::milliseconds grace)
    : timeout_(timeout), on_lost_(std::move(on_lost)), grace_(grace), thread_([this] { watch(); }) {}

DeviceOpWatchdog::~DeviceOpWatchdog() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::shared_ptr<DeviceOp> DeviceOpWatchdog::add(const Call& call, std::function<bool()> completed) {
  check();
  auto op = std::make_shared<DeviceOp>();
  op->text = fmt::format("{} \"{}\" on {}", call.operation, call.what, call.axes);
  op->what = call.what;
  op->page = call.page;
  op->ticket = call.ticket;
  op->completed = std::move(completed);
  call.backend_ends_ticket = true;
  const std::lock_guard lock(mutex_);
  if (ops_.empty()) oldest_since_ = Clock::now();
  ops_.push_back(op);
  changed_.notify_all();
  return op;
}

void DeviceOpWatchdog::check() const {
  const std::lock_guard lock(mutex_);
  if (!lost_.empty()) throw CommError(lost_);
}

void DeviceOpWatchdog::watch() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    changed_.wait(lock, [&] { return stopping_ || !ops_.empty(); });
    poll();
    if (lost_.empty()) {
      changed_.wait_for(lock, kPollInterval, [&] { return stopping_; });
      continue;
    }
    log::error("{}", lost_);
    if (!changed_.wait_for(lock, grace_, [&] { return stopping_; })) on_lost_();
    return;
  }
}

/// Ends the tickets of completed operations; marks the group as lost if one failed or the oldest timed out.
void DeviceOpWatchdog::poll() {
  std::string failure;
  const DeviceOp* const oldest = ops_.empty() ? nullptr : ops_.front().get();
  std::erase_if(ops_, [&](const std::shared_ptr<DeviceOp>& op) {
    if (!failure.empty() || !is_done(*op, failure)) return false;
    if (op->page != nullptr) op->page->end(op->ticket);
    return true;
  });
  if (!failure.empty()) return mark_lost(failure);
  if (ops_.empty()) return;
  if (ops_.front().get() != oldest) oldest_since_ = Clock::now();
  publish_wait();
  if (Clock::now() - oldest_since_ > timeout_)
    mark_lost(fmt::format("{}: operation must complete within {:g} s; it is still running",
                          ops_.front()->text, static_cast<double>(timeout_.count()) / 1000));
}

void DeviceOpWatchdog::publish_wait() const {
  const auto first = std::ranges::find_if(ops_, [](const auto& op) { return op->host_waited.load(); });
  if (first == ops_.end() || (*first)->page == nullptr) return;
  Progress& page = *(*first)->page;
  if (!page.read().waiting) page.wait((*first)->ticket, (*first)->what);
}

void DeviceOpWatchdog::mark_lost(const std::string& reason) {
  lost_ = reason + "; see the log of the missing rank, then resume from the last checkpoint";
  for (const auto& op : ops_)
    if (op->page != nullptr) op->page->set_note(lost_);
}

}  // namespace colonnade::comm
