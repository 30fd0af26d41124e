// See flights.h.
#include "colonnade/comm/flights.h"

#include <fmt/format.h>

#include <algorithm>

#include "colonnade/base/error.h"
#include "colonnade/base/log.h"

namespace colonnade::comm {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kPause = std::chrono::milliseconds(20);

/// Whether `flight` is over; its failure goes to `failure`.
bool landed(const Flight& flight, std::string& failure) {
  try {
    return flight.over();
  } catch (const std::exception& error) {
    failure = fmt::format("{}: {}", flight.text, error.what());
    return false;
  }
}

}  // namespace

Flights::Flights(std::chrono::milliseconds timeout, std::function<void()> give_up,
                 std::chrono::milliseconds grace)
    : timeout_(timeout), give_up_(std::move(give_up)), grace_(grace), thread_([this] { watch(); }) {}

Flights::~Flights() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::shared_ptr<Flight> Flights::add(const Call& call, std::function<bool()> over) {
  check();
  auto flight = std::make_shared<Flight>();
  flight->text = fmt::format("{} \"{}\" on {}", call.operation, call.what, call.axes);
  flight->what = call.what;
  flight->page = call.page;
  flight->ticket = call.ticket;
  flight->over = std::move(over);
  call.ends_later = true;
  const std::lock_guard lock(mutex_);
  if (flights_.empty()) oldest_since_ = Clock::now();
  flights_.push_back(flight);
  changed_.notify_all();
  return flight;
}

void Flights::check() const {
  const std::lock_guard lock(mutex_);
  if (!lost_.empty()) throw CommError(lost_);
}

void Flights::watch() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    changed_.wait(lock, [&] { return ending_ || !flights_.empty(); });
    look();
    if (lost_.empty()) {
      changed_.wait_for(lock, kPause, [&] { return ending_; });
      continue;
    }
    log::error("{}", lost_);
    if (!changed_.wait_for(lock, grace_, [&] { return ending_; })) give_up_();
    return;
  }
}

/// Ends the tickets of what is over; loses the group when the oldest has failed or is too late.
void Flights::look() {
  std::string failure;
  const Flight* const oldest = flights_.empty() ? nullptr : flights_.front().get();
  std::erase_if(flights_, [&](const std::shared_ptr<Flight>& flight) {
    if (!failure.empty() || !landed(*flight, failure)) return false;
    if (flight->page != nullptr) flight->page->end(flight->ticket);
    return true;
  });
  if (!failure.empty()) return lose(failure);
  if (flights_.empty()) return;
  if (flights_.front().get() != oldest) oldest_since_ = Clock::now();
  show();
  if (Clock::now() - oldest_since_ > timeout_)
    lose(fmt::format("{}: it must be over within {:g} s; got it still under way", flights_.front()->text,
                     static_cast<double>(timeout_.count()) / 1000));
}

void Flights::show() const {
  const auto first =
      std::ranges::find_if(flights_, [](const auto& flight) { return flight->awaited.load(); });
  if (first == flights_.end() || (*first)->page == nullptr) return;
  Progress& page = *(*first)->page;
  if (!page.read().waiting) page.wait((*first)->ticket, (*first)->what);
}

void Flights::lose(const std::string& reason) {
  lost_ = reason + "; see the log of the rank that is missing there, then resume from the last checkpoint";
  for (const auto& flight : flights_)
    if (flight->page != nullptr) flight->page->set_note(lost_);
}

}  // namespace colonnade::comm
