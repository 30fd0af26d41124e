// See metrics.h.
#include "colonnade/record/metrics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/base/log.h"

namespace colonnade::record {
namespace {

namespace fs = std::filesystem;
using json = nlohmann::ordered_json;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

double number_or_nan(const json& value) { return value.is_null() ? kNan : value.get<double>(); }

template <typename T>
std::optional<T> value_or_empty(const json& value) {
  return value.is_null() ? std::nullopt : std::optional(value.get<T>());
}

constexpr std::string_view kBatchSize = "global_batch_size";
constexpr std::array<std::string_view, 16> kStepKeys{
    "iteration", "consumed_samples",  "consumed_tokens",   "lm_loss",
    "grad_norm", "learning_rate",     "loss_scale",        "num_zeros",
    "skipped",   "step_ms",           "tokens_per_second", "tflops_per_device",
    "mfu",       "peak_memory_bytes", "peak_memory_rank",  kBatchSize};

constexpr std::string_view kByLayer = "_by_layer";

LayerLosses to_layer_losses(const std::string& key, const json& values) {
  const bool named = key.ends_with(kByLayer);
  LayerLosses losses{key.substr(0, key.size() - (named ? kByLayer.size() : 0)), {}};
  for (const auto& [layer, value] : values.items())
    losses.second[std::atoll(layer.c_str())] = number_or_nan(value);
  return losses;
}

/// {"0": 1.02, "1": 1.01}
json by_layer(const std::map<std::int64_t, double>& losses) {
  json values = json::object();
  for (const auto& [layer, loss] : losses) values[std::to_string(layer)] = loss;
  return values;
}

StepRecord to_step(const json& line) {
  StepRecord record{.iteration = line.at("iteration").get<std::int64_t>(),
                    .consumed_samples = line.at("consumed_samples").get<std::int64_t>(),
                    .consumed_tokens = line.at("consumed_tokens").get<std::int64_t>(),
                    .lm_loss = number_or_nan(line.at("lm_loss")),
                    .grad_norm = number_or_nan(line.at("grad_norm")),
                    .learning_rate = number_or_nan(line.at("learning_rate")),
                    .loss_scale = number_or_nan(line.at("loss_scale")),
                    .num_zeros = value_or_empty<std::int64_t>(line.at("num_zeros")),
                    .skipped = line.at("skipped").get<bool>(),
                    .step_ms = number_or_nan(line.at("step_ms")),
                    .tokens_per_second = number_or_nan(line.at("tokens_per_second")),
                    .tflops_per_device = number_or_nan(line.at("tflops_per_device")),
                    .mfu = value_or_empty<double>(line.at("mfu")),
                    .peak_memory_bytes = line.at("peak_memory_bytes").get<std::uint64_t>(),
                    .peak_memory_rank = line.at("peak_memory_rank").get<int>()};
  if (line.contains(kBatchSize)) record.global_batch_size = line[kBatchSize].get<std::int64_t>();
  for (const auto& [key, value] : line.items()) {
    if (std::find(kStepKeys.begin(), kStepKeys.end(), key) != kStepKeys.end()) continue;
    if (key.starts_with(kRankPrefix))
      record.rank_values.emplace_back(key, value.get<std::vector<double>>());
    else if (value.is_object())
      record.layer_losses.push_back(to_layer_losses(key, value));
    else if (value.is_array() && !value.empty() && value.front().is_array())
      record.layer_counts.emplace_back(key, value.get<std::vector<std::vector<std::int64_t>>>());
    else if (value.is_array())
      record.layer_metrics.emplace_back(key, value.get<std::vector<double>>());
    else
      record.extra_losses.emplace_back(key, number_or_nan(value));
  }
  return record;
}

EvalRecord to_eval(const json& line) {
  EvalRecord record{.iteration = line.at("iteration").get<std::int64_t>(),
                    .consumed_samples = line.at("consumed_samples").get<std::int64_t>(),
                    .set = line.at("set").get<std::string>(),
                    .loss = number_or_nan(line.at("loss")),
                    .seconds = number_or_nan(line.at("seconds"))};
  if (line.contains("sop_loss")) record.sop_loss = number_or_nan(line.at("sop_loss"));
  return record;
}

/// The non-empty lines of a text.
std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (end > 0) lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::string read_if_present(const fs::path& path) {
  return fs::exists(path) ? read_file(path) : std::string();
}

/// Calls visit(text, object) for each line of a file, a JSON object with an iteration; damaged lines at the
/// end are skipped. `visit` may throw json::exception to mark a line as damaged.
template <typename Visit>
void for_each_line(const fs::path& path, std::string_view text, Visit visit) {
  std::size_t number = 0, damaged = 0;
  for (const std::string_view line : split_lines(text)) {
    ++number;
    try {
      const json object = json::parse(line);
      object.at("iteration").get<std::int64_t>();
      visit(line, object);
    } catch (const json::exception&) {
      if (damaged == 0) damaged = number;
      continue;
    }
    if (damaged != 0)
      throw DataError(
          fmt::format("{}:{}: each line must be a record in JSON; got something else; fix or move the file",
                      path.string(), damaged));
  }
}

template <typename Record>
std::vector<Record> read_records(const fs::path& path, Record (*convert)(const json&)) {
  std::vector<Record> records;
  const std::string text = read_if_present(path);
  for_each_line(path, text,
                [&](std::string_view, const json& object) { records.push_back(convert(object)); });
  return records;
}

}  // namespace

double EvalRecord::perplexity() const { return std::exp(std::min(20.0, loss)); }

std::string to_json_line(const StepRecord& r) {
  json line = {{"iteration", r.iteration},
               {"consumed_samples", r.consumed_samples},
               {"consumed_tokens", r.consumed_tokens},
               {"lm_loss", r.lm_loss},
               {"grad_norm", r.grad_norm},
               {"learning_rate", r.learning_rate},
               {"loss_scale", r.loss_scale},
               {"num_zeros", r.num_zeros ? json(*r.num_zeros) : json()},
               {"skipped", r.skipped},
               {"step_ms", r.step_ms},
               {"tokens_per_second", r.tokens_per_second},
               {"tflops_per_device", r.tflops_per_device},
               {"mfu", r.mfu ? json(*r.mfu) : json()},
               {"peak_memory_bytes", r.peak_memory_bytes},
               {"peak_memory_rank", r.peak_memory_rank}};
  if (r.global_batch_size) line[kBatchSize] = *r.global_batch_size;
  for (const auto& [name, value] : r.extra_losses) line[name] = value;
  for (const auto& [name, layers] : r.layer_metrics) line[name] = layers;
  for (const auto& [name, layers] : r.layer_counts) line[name] = layers;
  for (const auto& [name, values] : r.rank_values) line[name] = values;
  for (const auto& [name, losses] : r.layer_losses)
    line[fmt::format("{}{}", name, kByLayer)] = by_layer(losses);
  return line.dump();
}

std::string to_json_line(const EvalRecord& r) {
  json line = {{"iteration", r.iteration}, {"consumed_samples", r.consumed_samples}, {"set", r.set},
               {"loss", r.loss},           {"perplexity", r.perplexity()},           {"seconds", r.seconds}};
  if (r.sop_loss) line["sop_loss"] = *r.sop_loss;
  return line.dump();
}

std::vector<StepRecord> read_steps(const fs::path& path) { return read_records<StepRecord>(path, to_step); }
std::vector<EvalRecord> read_evals(const fs::path& path) { return read_records<EvalRecord>(path, to_eval); }

std::optional<StepRecord> last_step(const fs::path& path) {
  constexpr std::uintmax_t kTail = std::uintmax_t{1}
                                   << 22;  // a line has a few hundred bytes, or some numbers per layer
  std::error_code absent;
  const auto size = fs::file_size(path, absent);
  if (absent) return std::nullopt;
  std::string tail(std::min(size, kTail), '\0');
  std::ifstream file(path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(size - tail.size()));
  file.read(tail.data(), static_cast<std::streamsize>(tail.size()));
  const std::vector<std::string_view> lines = split_lines(tail);
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    try {
      return to_step(json::parse(*line));
    } catch (const json::exception&) {
      continue;  // truncated
    }
  }
  return std::nullopt;
}

MetricsFile::MetricsFile(const fs::path& path, std::int64_t loaded_step) {
  if (loaded_step == 0) back_up_existing(path);
  const std::string text = read_if_present(path);
  std::string kept;
  for_each_line(path, text, [&](std::string_view line, const json& object) {
    if (object["iteration"].get<std::int64_t>() <= loaded_step) kept.append(line).push_back('\n');
  });
  if (kept != text) write_file_atomically(path, kept);
  file_.emplace(path);
}

}  // namespace colonnade::record
