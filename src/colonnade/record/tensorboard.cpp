// See tensorboard.h.
#include "colonnade/record/tensorboard.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <protozero/pbf_writer.hpp>

#include "colonnade/base/error.h"

namespace colonnade::record {
namespace {

namespace fs = std::filesystem;
using protozero::pbf_writer;

// Field numbers of Event, Summary.Value and TensorProto.
enum Event : protozero::pbf_tag_type { kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5 };
enum Value : protozero::pbf_tag_type { kTag = 1, kSimpleValue = 2, kTensor = 8, kMetadata = 9 };
enum Tensor : protozero::pbf_tag_type { kDtype = 1, kShape = 2, kStringVal = 8 };
constexpr int kDtypeString = 7;

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = (c & 1) != 0 ? 0x82f63b78u ^ (c >> 1) : c >> 1;
    table[i] = c;
  }
  return table;
}
constexpr auto kTable = make_table();

std::string little_endian(std::uint64_t value, std::size_t bytes) {
  std::string text(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(value >> (8 * i));
  return text;
}

/// Serializes an event: the common fields, and the rest by `fill`.
template <typename Fill>
std::string make_event(std::int64_t step, Fill fill) {
  std::string bytes;
  pbf_writer event(bytes);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  event.add_double(kWallTime, std::chrono::duration<double>(now).count());
  event.add_int64(kStep, step);
  fill(event);
  return bytes;
}

template <typename Fill>
std::string make_summary(std::string_view tag, std::int64_t step, Fill fill) {
  return make_event(step, [&](pbf_writer& event) {
    pbf_writer summary(event, kSummary);
    pbf_writer value(summary, 1);
    value.add_string(kTag, tag.data(), tag.size());
    fill(value);
  });
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

/// Creates `folder` and truncates existing event files. Returns the path of a new one, named as TensorBoard
/// expects.
fs::path prepare_event_file(const fs::path& folder, const ResumePoint& loaded) {
  std::error_code reason;
  fs::create_directories(folder, reason);
  if (reason)
    throw Error(
        fmt::format("{}: the folder of event files must be writable; {}; choose another --tensorboard-dir",
                    folder.string(), reason.message()));
  if (loaded.step > 0) truncate_events(folder, loaded);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  return folder / fmt::format("events.out.tfevents.{}.{}.{}.0", seconds, host_name(), ::getpid());
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = ~0u;
  for (const char byte : bytes) crc = kTable[(crc ^ static_cast<unsigned char>(byte)) & 0xff] ^ (crc >> 8);
  return ~crc;
}

std::string masked_crc(std::string_view bytes) {
  return little_endian(std::rotr(crc32c(bytes), 15) + 0xa282ead8u, 4);
}

EventFile::EventFile(const fs::path& folder, const ResumePoint& loaded)
    : file_(prepare_event_file(folder, loaded)) {
  write_record(make_event(0, [](pbf_writer& event) { event.add_string(kFileVersion, "brain.Event:2"); }));
}

void EventFile::scalar(std::string_view tag, double value, std::int64_t step) {
  write_record(
      make_summary(tag, step, [&](pbf_writer& v) { v.add_float(kSimpleValue, static_cast<float>(value)); }));
}

void EventFile::text(std::string_view tag, std::string_view value, std::int64_t step) {
  write_record(make_summary(tag, step, [&](pbf_writer& v) {
    {
      pbf_writer metadata(v, kMetadata);
      pbf_writer plugin(metadata, 1);
      plugin.add_string(1, "text");
    }
    pbf_writer tensor(v, kTensor);
    tensor.add_enum(kDtype, kDtypeString);
    tensor.add_message(kShape, std::string());
    tensor.add_bytes(kStringVal, value.data(), value.size());
  }));
}

void EventFile::write_record(const std::string& event) {
  const std::string length = little_endian(event.size(), 8);
  file_.append(length + masked_crc(length) + event + masked_crc(event));
}

namespace {

std::string megatron_tag(const std::string& name) {
  if (name == "params_norm") return "params-norm";
  return name == "sop_loss" ? "sop loss" : name;
}

void over_steps_and_samples(EventFile& file, const std::string& tag, double value, const StepRecord& r) {
  file.scalar(tag, value, r.iteration);
  file.scalar(fmt::format("{}{}", tag, kVersusSamples), value, r.consumed_samples);
}

}  // namespace

void write_step(EventFile& file, const StepRecord& r, const PhaseTimes& phases, std::int64_t batch_size,
                const config::Logging& settings) {
  over_steps_and_samples(file, "lm loss", r.lm_loss, r);
  over_steps_and_samples(file, "learning-rate", r.learning_rate, r);
  over_steps_and_samples(file, "batch-size", static_cast<double>(batch_size), r);
  over_steps_and_samples(file, "grad-norm", r.grad_norm, r);
  over_steps_and_samples(file, "loss-scale", r.loss_scale, r);
  for (const auto& [name, value] : r.extra_losses) over_steps_and_samples(file, megatron_tag(name), value, r);
  for (const LayerMetric& metric : r.layer_metrics)
    file.scalar(event_tag(metric), worst_layer(metric), r.iteration);
  for (const LayerLosses& losses : r.layer_losses)
    for (const auto& [layer, loss] : losses.second) file.scalar(event_tag(losses, layer), loss, r.iteration);
  if (r.num_zeros) over_steps_and_samples(file, "num-zeros", static_cast<double>(*r.num_zeros), r);
  file.scalar("throughput", r.tflops_per_device, r.iteration);
  file.scalar("skipped-iterations", r.skipped ? 1 : 0, r.iteration);
  if (settings.log_memory_to_tensorboard)
    file.scalar("mem-max-allocated-bytes", static_cast<double>(r.peak_memory_bytes), r.iteration);
  if (!settings.log_timers_to_tensorboard) return;
  file.scalar("iteration-time", r.step_ms / 1e3, r.iteration);
  for (const Phase phase : kStepPhases) write_time(file, phase, phases[phase], r.iteration, settings);
}

void write_time(EventFile& file, Phase phase, double seconds, std::int64_t step,
                const config::Logging& settings) {
  if (settings.log_timers_to_tensorboard)
    file.scalar(fmt::format("{}-time", phase_name(phase)), seconds, step);
}

void write_eval(EventFile& file, const EvalRecord& r, const config::Logging& settings) {
  const std::string tag = "lm loss " + r.set;
  file.scalar(tag, r.loss, r.iteration);
  file.scalar(fmt::format("{}{}", tag, kVersusSamples), r.loss, r.consumed_samples);
  if (r.sop_loss) {
    const std::string order = fmt::format("{} {}", megatron_tag("sop_loss"), r.set);
    file.scalar(order, *r.sop_loss, r.iteration);
    file.scalar(fmt::format("{}{}", order, kVersusSamples), *r.sop_loss, r.consumed_samples);
  }
  if (!settings.log_validation_ppl_to_tensorboard) return;
  file.scalar(tag + " ppl", r.perplexity(), r.iteration);
  file.scalar(fmt::format("{} ppl{}", tag, kVersusSamples), r.perplexity(), r.consumed_samples);
}

}  // namespace colonnade::record
