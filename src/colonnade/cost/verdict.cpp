// See verdict.h.
#include "colonnade/cost/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "colonnade/config/batch_schedule.h"
#include "colonnade/cost/describe.h"
#include "colonnade/cost/memory.h"
#include "colonnade/cost/model_cost.h"

namespace colonnade::cost {
namespace {

struct TimeUnit {
  double seconds;
  double end;  ///< in seconds; longer durations use the next unit
  const char* name;
};
constexpr std::array<TimeUnit, 5> kTimeUnits{
    {{1e-3, 1, "ms"}, {1, 600, "s"}, {60, 2 * 3600.0, "min"}, {3600, 48 * 3600.0, "h"}, {86400, 0, "days"}}};

/// At least three digits, without trailing zeros: "216", "62.5", "74".
std::string three_digits(double value, int more = 0) {
  const int digits = (value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2) + more;
  std::string text = fmt::format("{:.{}f}", value, digits);
  if (text.find('.') == std::string::npos) return text;
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

/// Integer with thousands separators: "6,098".
std::string with_commas(double value) {
  const std::string digits = fmt::format("{:.0f}", value);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

/// Hours with three digits or more: "6,098", "38.1", "0.0423".
std::string hours_text(double hours) {
  return hours >= 99.95 ? with_commas(hours) : fmt::format("{:.3g}", hours);
}

}  // namespace

std::string duration_text(double seconds) {
  std::size_t i = 0;
  while (i + 1 < kTimeUnits.size() && std::abs(seconds) >= kTimeUnits[i].end) ++i;
  const double value = seconds / kTimeUnits[i].seconds;
  return fmt::format("{:.{}f} {}", value, std::abs(value) < 9.995 ? 2 : 1, kTimeUnits[i].name);
}

Fit fit_of(const config::Run& run, const Hardware& hardware) {
  return {static_cast<double>(max_peak_bytes(run, plan_memory(run))), hardware.usable_bytes()};
}

Fit fit_of(const ModelCost& model, const Hardware& hardware) {
  return {static_cast<double>(max_peak_bytes(model.run(), plan_memory(model))), hardware.usable_bytes()};
}

std::string fit_text(const Fit& fit) {
  const char* const verdict = fit.fits() ? "fits" : "does not fit";
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  if (fit.needed < kGiB || fit.usable < kGiB)
    return fmt::format("{}: {} of {}", verdict, bytes_text(fit.needed), bytes_text(fit.usable));
  const double needed = fit.needed / kGiB, usable = fit.usable / kGiB;
  int more = 0;  // extra digits until the two numbers differ
  while (!fit.fits() && more < 6 && three_digits(needed, more) == three_digits(usable, more)) ++more;
  return fmt::format("{}: {} of {} GiB", verdict, three_digits(needed, more), three_digits(usable, more));
}

std::optional<RunTime> run_time(const config::Run& run, double step_seconds) {
  const config::Training& t = run.training;
  if (t.skip_train || (!t.train_iters && !t.train_samples)) return std::nullopt;
  const config::BatchSchedule schedule =
      t.global_batch_size < 1 ? config::BatchSchedule(1) : config::batch_schedule(t);
  const std::int64_t steps = t.train_iters ? *t.train_iters : schedule.steps_within(0, *t.train_samples);
  if (steps < 1) return std::nullopt;
  const double final_steps =
      static_cast<double>(schedule.samples_after(0, steps)) / static_cast<double>(schedule.final_size());
  return RunTime{steps, run.parallel.world_size, final_steps * step_seconds};
}

std::string run_time_text(const RunTime& time) {
  std::string duration = duration_text(time.seconds);
  if (!duration.ends_with("days")) duration += fmt::format(" ({:.2g} days)", time.days());
  return fmt::format(
      "run of {} step{}: {}, {} GPU-hours on {} GPU{}, without evaluations, checkpoints and restarts",
      with_commas(static_cast<double>(time.steps)), time.steps == 1 ? "" : "s", duration,
      hours_text(time.gpu_hours()), time.devices, time.devices == 1 ? "" : "s");
}

}  // namespace colonnade::cost
