// See step_line.h.
#include "colonnade/record/step_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace colonnade::record {
namespace {

constexpr std::string_view kBold = "\x1b[1m";
constexpr std::string_view kYellow = "\x1b[33m";
constexpr std::string_view kCyan = "\x1b[36m";

std::string painted(std::string text, std::string_view style, bool color) {
  return color ? fmt::format("{}{}\x1b[0m", style, text) : text;
}

int digits(std::int64_t value) { return static_cast<int>(std::to_string(value).size()); }

/// Three significant digits with an SI letter, as number and letter.
std::pair<double, std::string_view> scaled(double value) {
  constexpr std::array<std::string_view, 5> kLetters{"", "k", "M", "G", "T"};
  std::size_t letter = 0;
  while (std::abs(value) >= 999.5 && letter + 1 < kLetters.size()) {
    value /= 1000;
    ++letter;
  }
  return {value, kLetters[letter]};
}

std::string three_digits(double value) {
  const double size = std::abs(value);
  const int decimals = size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f}", value, decimals);
}

}  // namespace

std::string short_number(double value) {
  const auto [number, letter] = scaled(value);
  return fmt::format("{}{}", three_digits(number), letter);
}

std::string short_bytes(std::uint64_t bytes) {
  const auto [number, letter] = scaled(static_cast<double>(bytes));
  return fmt::format("{} {}B", three_digits(number), letter);
}

std::string short_time(double seconds) {
  const auto total = static_cast<std::int64_t>(std::llround(seconds));
  const std::int64_t hours = total / 3600;
  if (hours >= 100) return fmt::format("{} d {} h", hours / 24, hours % 24);
  return fmt::format("{}:{:02}:{:02}", hours, total / 60 % 60, total % 60);
}

std::string step_line(const StepRecord& r, const StepLineOptions& options) {
  const bool color = options.color;
  std::string line = fmt::format(" step {:>{}}/{}", r.iteration, std::max(4, digits(options.last_iteration)),
                                 options.last_iteration);
  line += " | " + painted(fmt::format("loss {:7.4f}", r.lm_loss), kBold, color);
  line += fmt::format(" | grad norm {:7.3f} | lr {:.2e}", r.grad_norm, r.learning_rate);
  if (options.show_loss_scale) line += fmt::format(" | scale {:>6}", short_number(r.loss_scale));
  line += fmt::format(" | {:>6} tok/s | {:>8.1f} ms | {:>6} TFLOP/s", short_number(r.tokens_per_second),
                      r.step_ms, three_digits(r.tflops_per_device));
  if (r.mfu) line += fmt::format(" ({:4.1f}%)", *r.mfu * 100);
  line += fmt::format(" | mem {:>8} (rank {})", short_bytes(r.peak_memory_bytes), r.peak_memory_rank);
  line += fmt::format(" | left {:>8}", options.seconds_left ? short_time(*options.seconds_left) : "-");
  if (r.global_batch_size) line += fmt::format(" | batch {}", *r.global_batch_size);
  for (const auto& [name, value] : r.extra_losses) line += fmt::format(" | {} {:.4f}", name, value);
  for (const LayerMetric& metric : r.layer_metrics)
    if (is_on_step_line(metric)) line += fmt::format(" | {} {:.2f}", metric.first, worst_layer(metric));
  if (r.num_zeros) line += fmt::format(" | zeros {}", *r.num_zeros);
  if (r.skipped) line += " | " + painted("skipped", kYellow, color);
  return line;
}

std::string eval_line(const EvalRecord& r, bool color) {
  const std::string order = r.sop_loss ? fmt::format(" | sop_loss {:.4f}", *r.sop_loss) : "";
  const std::string text = fmt::format(" {} at step {} | loss {:.4f} | perplexity {:.5g}{} | {:.1f} s", r.set,
                                       r.iteration, r.loss, r.perplexity(), order, r.seconds);
  return painted(text, kCyan, color);
}

void print_flushed(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

bool stdout_has_color() { return ::isatty(STDOUT_FILENO) == 1 && std::getenv("NO_COLOR") == nullptr; }

}  // namespace colonnade::record
