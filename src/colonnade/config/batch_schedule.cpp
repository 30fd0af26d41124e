// See batch_schedule.h.
#include "colonnade/config/batch_schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>

namespace colonnade::config {

namespace {

using Sizes = std::vector<BatchSchedule::Size>;

/// Sizes, or the violated rule.
struct ParsedSizes {
  Sizes sizes;
  std::string fault;
};

/// A number with the suffix K, M, B or T, in either case; fractions are dropped, as in Megatron.
std::optional<std::int64_t> count_of(std::string_view text) {
  constexpr double kMost = 1e18;
  double unit = 1;
  constexpr std::string_view kSuffixes = "KMBT";
  if (!text.empty()) {
    const char last = text.back() >= 'a' ? static_cast<char>(text.back() - 'a' + 'A') : text.back();
    const std::size_t suffix = kSuffixes.find(last);
    if (suffix != std::string_view::npos) {
      unit = std::pow(1000.0, static_cast<double>(suffix + 1));
      text.remove_suffix(1);
    }
  }
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  value *= unit;
  if (value < 0 || value > kMost) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

std::vector<std::string> entries_of(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return c == ',' || c == '\t' || c == '\n'; }, ' ');
  std::vector<std::string> entries;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    if (end > at) entries.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return entries;
}

/// Violated rule of parsed sizes. As in Megatron, the number of micro-batches must not decrease.
std::string order_fault(const Sizes& sizes) {
  if (sizes.empty()) return "must have at least one entry TOKENS:SEQUENCES";
  if (sizes.front().from_samples != 0) return "must have an entry from 0 tokens";
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i].global_batch_size < 1) return "must have batch sizes above 0";
    if (i == 0) continue;
    if (sizes[i].from_samples == sizes[i - 1].from_samples)
      return fmt::format("must have different thresholds in samples (tokens / --seq-length), not {} twice",
                         sizes[i].from_samples);
    if (sizes[i].global_batch_size < sizes[i - 1].global_batch_size)
      return fmt::format("must not decrease the batch size, as from {} to {}", sizes[i - 1].global_batch_size,
                         sizes[i].global_batch_size);
  }
  return "";
}

ParsedSizes parse_step_schedule(const Training& t) {
  ParsedSizes parsed;
  for (const std::string& entry : entries_of(t.step_batch_size_schedule)) {
    const std::size_t colon = entry.find(':');
    const auto tokens = count_of(std::string_view(entry).substr(0, std::min(colon, entry.size())));
    const auto size =
        colon == std::string::npos ? std::nullopt : count_of(std::string_view(entry).substr(colon + 1));
    if (!tokens || !size) {
      parsed.fault = fmt::format("must have entries TOKENS:SEQUENCES, such as 250B:1536, unlike '{}'", entry);
      return parsed;
    }
    parsed.sizes.push_back({*tokens / std::max<std::int64_t>(t.seq_length, 1), *size});
  }
  std::ranges::stable_sort(parsed.sizes, {}, &BatchSchedule::Size::from_samples);
  parsed.fault = order_fault(parsed.sizes);
  return parsed;
}

/// Smallest number of consumed samples of which floor(consumed / per_increment) is `increments`.
std::int64_t ramp_threshold(std::int64_t increments, double per_increment) {
  const auto reached = [&](std::int64_t consumed) {
    return static_cast<std::int64_t>(static_cast<double>(consumed) / per_increment);
  };
  auto consumed = static_cast<std::int64_t>(static_cast<double>(increments) * per_increment);
  while (consumed > 0 && reached(consumed - 1) >= increments) --consumed;
  while (reached(consumed) < increments) ++consumed;
  return consumed;
}

ParsedSizes parse_rampup(const Training& t) {
  constexpr std::int64_t kMostIncrements = 100'000;
  ParsedSizes parsed;
  std::vector<std::int64_t> numbers;
  for (const std::string& word : t.rampup_batch_size) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error == std::errc{} && end == word.data() + word.size()) numbers.push_back(value);
  }
  if (numbers.size() != 3 || t.rampup_batch_size.size() != 3) {
    parsed.fault = "must be three integers START INCREMENT SAMPLES";
    return parsed;
  }
  const std::int64_t start = numbers[0], increment = numbers[1], samples = numbers[2];
  const std::int64_t difference = t.global_batch_size - start;
  if (start < 1 || increment < 1 || samples < 1)
    parsed.fault = "must have values above 0";
  else if (difference < 0 || difference % increment != 0)
    parsed.fault = fmt::format("must reach --global-batch-size {} in whole increments", t.global_batch_size);
  else if (difference / increment > kMostIncrements)
    parsed.fault = fmt::format("must have at most {} increments", kMostIncrements);
  if (!parsed.fault.empty()) return parsed;
  parsed.sizes.push_back({0, start});
  const std::int64_t count = difference / increment;
  const double per_increment =
      static_cast<double>(samples) / static_cast<double>(std::max<std::int64_t>(count, 1));
  for (std::int64_t i = 1; i <= count; ++i)
    parsed.sizes.push_back({std::min(ramp_threshold(i, per_increment), samples + 1), start + i * increment});
  return parsed;
}

/// Steps of this size from `consumed` until `limit` is reached, rounded up.
std::int64_t steps_to(std::int64_t consumed, std::int64_t limit, std::int64_t size) {
  return (limit - consumed + size - 1) / size;
}

}  // namespace

BatchSchedule::BatchSchedule(const std::vector<Size>& sizes) {
  for (const Size& size : sizes) {
    if (!sizes_.empty() && sizes_.back().from_samples == size.from_samples) sizes_.pop_back();
    if (sizes_.empty() || sizes_.back().global_batch_size != size.global_batch_size) sizes_.push_back(size);
  }
}

std::size_t BatchSchedule::index_at(std::int64_t consumed) const {
  const auto next = std::ranges::upper_bound(sizes_, consumed, {}, &Size::from_samples);
  return next == sizes_.begin() ? 0 : static_cast<std::size_t>(next - sizes_.begin()) - 1;
}

std::int64_t BatchSchedule::batch_size_at(std::int64_t consumed) const {
  return sizes_[index_at(consumed)].global_batch_size;
}

std::int64_t BatchSchedule::samples_after(std::int64_t consumed, std::int64_t steps) const {
  while (steps > 0) {
    const std::size_t i = index_at(consumed);
    const std::int64_t size = sizes_[i].global_batch_size;
    const bool last = i + 1 == sizes_.size() || size < 1;
    const std::int64_t count =
        last ? steps : std::min(steps, steps_to(consumed, sizes_[i + 1].from_samples, size));
    consumed += count * size;
    steps -= count;
  }
  return consumed;
}

std::int64_t BatchSchedule::steps_within(std::int64_t consumed, std::int64_t end) const {
  std::int64_t steps = 0;
  for (;;) {
    const std::size_t i = index_at(consumed);
    const std::int64_t size = sizes_[i].global_batch_size;
    if (size < 1 || end - consumed < size) return steps;
    const std::int64_t fitting = (end - consumed) / size;
    const std::int64_t count = i + 1 == sizes_.size()
                                   ? fitting
                                   : std::min(fitting, steps_to(consumed, sizes_[i + 1].from_samples, size));
    consumed += count * size;
    steps += count;
  }
}

std::string BatchSchedule::text() const {
  constexpr std::size_t kMost = 4;
  std::string out = fmt::format("{}", sizes_.front().global_batch_size);
  if (sizes_.size() > kMost)
    return fmt::format("{} to {}, {} sizes up to {} samples", out, final_size(), sizes_.size(),
                       sizes_.back().from_samples);
  for (std::size_t i = 1; i < sizes_.size(); ++i)
    out += fmt::format(", {} from {} samples", sizes_[i].global_batch_size, sizes_[i].from_samples);
  return out;
}

BatchSchedule batch_schedule(const Training& t) {
  ParsedSizes parsed;
  if (!t.step_batch_size_schedule.empty())
    parsed = parse_step_schedule(t);
  else if (!t.rampup_batch_size.empty())
    parsed = parse_rampup(t);
  if (!parsed.fault.empty() || parsed.sizes.empty()) parsed.sizes = {{0, t.global_batch_size}};
  if (t.batch_multiple > 1)
    for (BatchSchedule::Size& size : parsed.sizes)
      size.global_batch_size -= size.global_batch_size % t.batch_multiple;
  return BatchSchedule(parsed.sizes);
}

std::int64_t final_batch_size(const Training& t) {
  const bool is_constant =
      t.step_batch_size_schedule.empty() && t.rampup_batch_size.empty() && t.batch_multiple == 0;
  return is_constant ? t.global_batch_size : batch_schedule(t).final_size();
}

std::int64_t final_size_of_step_schedule(const Training& t) {
  if (t.step_batch_size_schedule.empty()) return 0;
  const ParsedSizes parsed = parse_step_schedule(t);
  return parsed.fault.empty() ? parsed.sizes.back().global_batch_size : 0;
}

std::string step_schedule_fault(const Training& t) {
  return t.step_batch_size_schedule.empty() ? "" : parse_step_schedule(t).fault;
}

std::string rampup_fault(const Training& t) {
  return t.rampup_batch_size.empty() ? "" : parse_rampup(t).fault;
}

std::int64_t eval_batch_size(const Training& t) {
  return t.eval_global_batch_size ? *t.eval_global_batch_size : batch_schedule(t).final_size();
}

std::int64_t eval_micro_batch_size(const Training& t) {
  return t.eval_micro_batch_size.value_or(t.micro_batch_size);
}

bool has_eval_batch_size(const Training& t) { return t.eval_global_batch_size || t.eval_micro_batch_size; }

Training with_constant_batch_size(Training t, std::int64_t global_batch_size) {
  t.global_batch_size = global_batch_size;
  t.step_batch_size_schedule.clear();
  t.rampup_batch_size.clear();
  t.decrease_batch_size_if_needed = false;
  t.batch_multiple = 0;
  return t;
}

}  // namespace colonnade::config
