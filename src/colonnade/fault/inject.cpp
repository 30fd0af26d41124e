// See inject.h.
#include "colonnade/fault/inject.h"

#include <fmt/ranges.h>
#include <signal.h>
#include <string.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <sstream>
#include <thread>
#include <vector>

#include "colonnade/base/edit_distance.h"
#include "colonnade/base/error.h"
#include "colonnade/base/log.h"
#include "colonnade/base/progress.h"

namespace colonnade::fault {
namespace {

template <typename T>
bool read_number(const std::string& text, T& number) {
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  return status == std::errc() && end == text.data() + text.size() && number >= 0;
}

template <typename T>
bool read_number(const std::string& text, std::optional<T>& number) {
  return read_number(text, number.emplace());
}

/// Number of signal "KILL", "TERM", ...; 0 if unknown.
int signal_of(const std::string& name) {
  for (int number = 1; number < NSIG; ++number) {
    const char* const known = ::sigabbrev_np(number);
    if (known != nullptr && name == known) return number;
  }
  return 0;
}

bool is_point(std::string_view name) { return std::ranges::count(kPoints, name) != 0; }

std::string unknown_point(const std::string& name) {
  const std::vector<std::string> points(std::begin(kPoints), std::end(kPoints));
  const std::string near = nearest_word(name, points);
  return fmt::format("at={} is not an injection point{}", name,
                     near.empty() ? "" : fmt::format("; did you mean {}?", near));
}

/// Sets one field of the plan. Returns the error in the word, or "".
std::string set_field(Plan& plan, const std::string& name, const std::string& value) {
  bool valid = true;
  if (name == "at") {
    plan.at = value;
    return is_point(value) ? "" : unknown_point(value);
  }
  if (name == "rank")
    valid = read_number(value, plan.rank);
  else if (name == "step")
    valid = read_number(value, plan.step);
  else if (name == "restart")
    valid = read_number(value, plan.restart);
  else if (name == "signal")
    valid = (plan.signal = signal_of(value)) != 0;
  else if (name == "sleep")
    valid = read_number(value, plan.sleep_s);
  else if (name == "throw")
    valid = plan.throws = value == "1";
  else
    return fmt::format("'{}' is none of at, rank, step, restart, signal, sleep, throw", name);
  return valid ? "" : fmt::format("{}={} has an invalid value", name, value);
}

std::optional<Plan> plan_of_process() {
  const char* const text = std::getenv("COLONNADE_FAULT");
  if (text == nullptr || *text == '\0') return std::nullopt;
  return parse(text);
}

int restart_of_process() {
  const char* const text = std::getenv("COLONNADE_RESTART_COUNT");
  int restart = 0;
  return text != nullptr && read_number(std::string(text), restart) ? restart : 0;
}

void trigger(const Plan& plan, std::string_view name) {
  static std::atomic<bool> done{false};  // once per process, in the first thread to arrive
  if (done.exchange(true)) return;
  log::warning("COLONNADE_FAULT: at {}", name);
  if (plan.sleep_s > 0) std::this_thread::sleep_for(std::chrono::duration<double>(plan.sleep_s));
  if (plan.signal != 0) {
    ::kill(::getpid(), plan.signal);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // another thread handles it: StopSignals
  }
  if (plan.throws) throw Error(fmt::format("COLONNADE_FAULT requests an error; reached {}; unset it", name));
}

}  // namespace

Plan parse(const std::string& text) {
  Plan plan;
  std::vector<std::string> errors;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const std::size_t equals = std::min(word.find('='), word.size());
    std::string error =
        set_field(plan, word.substr(0, equals), word.substr(std::min(equals + 1, word.size())));
    if (!error.empty()) errors.push_back(std::move(error));
  }
  if (plan.at.empty()) errors.emplace_back("at=POINT is missing");
  if (!errors.empty())
    throw ConfigError(fmt::format(
        "COLONNADE_FAULT must be words like 'rank=2 step=4 at=optimizer signal=KILL'; got '{}': {}; "
        "fix it, or unset it for a run without faults",
        text, fmt::join(errors, ", ")));
  if (plan.signal == 0 && plan.sleep_s == 0 && !plan.throws) plan.signal = SIGKILL;
  return plan;
}

bool applies(const Plan& plan, std::string_view name, int rank, std::int64_t step, int restart) {
  return plan.at == name && plan.rank.value_or(rank) == rank && plan.step.value_or(step) == step &&
         plan.restart.value_or(restart) == restart;
}

void point(std::string_view name) {
  static const std::optional<Plan> plan = plan_of_process();
  if (!plan || plan->at != name) return;
  static const int restart = restart_of_process();
  const ProgressSnapshot now = progress().read();
  if (applies(*plan, name, now.rank, now.step, restart)) trigger(*plan, name);
}

}  // namespace colonnade::fault
