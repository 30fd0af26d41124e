// See tensorboard.h.
#include "colonnade/record/tensorboard.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <protozero/pbf_writer.hpp>

#include "colonnade/base/error.h"
#include "colonnade/record/run_folder.h"

namespace colonnade::record {
namespace {

namespace fs = std::filesystem;
using protozero::pbf_writer;

// Field numbers of Event, Summary.Value and TensorProto.
enum Event : protozero::pbf_tag_type { kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5 };
enum Value : protozero::pbf_tag_type { kTag = 1, kSimpleValue = 2, kTensor = 8, kMetadata = 9 };
enum Tensor : protozero::pbf_tag_type { kDtype = 1, kShape = 2, kStringVal = 8 };
constexpr int kDtypeString = 7;

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

void write_scalars(EventFile& file, const std::vector<Scalar>& scalars, std::int64_t step,
                   std::int64_t samples) {
  for (const Scalar& scalar : scalars) {
    file.scalar(scalar.tag, scalar.value, step);
    if (scalar.versus_samples) file.scalar(scalar.tag + std::string(kVersusSamples), scalar.value, samples);
  }
}

}  // namespace

void write_step(EventFile& file, const StepRecord& r, const PhaseTimes& phases, std::int64_t batch_size,
                const config::Logging& settings) {
  write_scalars(file, step_scalars(r, phases, batch_size, settings), r.iteration, r.consumed_samples);
}

void write_time(EventFile& file, Phase phase, double seconds, std::int64_t step,
                const config::Logging& settings) {
  if (settings.log_timers_to_tensorboard) file.scalar(time_tag(phase), seconds, step);
}

void write_eval(EventFile& file, const EvalRecord& r, const config::Logging& settings) {
  write_scalars(file, eval_scalars(r, settings), r.iteration, r.consumed_samples);
}

}  // namespace colonnade::record
