// TensorBoard event files, written without TensorFlow: scalars and text.
// Format: TFRecord frames (length, masked CRC-32C) around `Event` protocol buffers
// (tensorflow/core/util/event.proto).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "colonnade/config/training.h"
#include "colonnade/record/append_file.h"
#include "colonnade/record/crc.h"
#include "colonnade/record/metrics.h"
#include "colonnade/record/phase_times.h"
#include "colonnade/record/scalars.h"

namespace colonnade::record {

/// Suffix of the tags of curves over samples instead of steps.
inline constexpr std::string_view kVersusSamples = " vs samples";

/// Point from which a run resumes: after this many steps and samples; zeros for a new run.
struct ResumePoint {
  std::int64_t step = 0;
  std::int64_t samples = 0;
};

/// Removes events after `loaded` from the event files in `folder`: text and curves over steps by step, "...
/// vs samples" by samples. A file is replaced in one rename. (A SessionLog event, the format's own way, has
/// one step for all tags and would remove all curves over samples.)
void truncate_events(const std::filesystem::path& folder, const ResumePoint& loaded);

/// One event file in a folder. Each event is written at once.
class EventFile {
 public:
  /// Creates the folder and events.out.tfevents.<seconds>.<host>.<pid>.0 in it. For a resumed run earlier
  /// files are truncated first. Throws Error when a file cannot be written.
  EventFile(const std::filesystem::path& folder, const ResumePoint& loaded);

  void scalar(std::string_view tag, double value, std::int64_t step);
  /// Shown as Markdown under "Text".
  void text(std::string_view tag, std::string_view value, std::int64_t step);

  [[nodiscard]] const std::filesystem::path& path() const { return file_.path(); }

 private:
  void write_record(const std::string& event);

  AppendFile file_;
};

/// Writes step_scalars, each also as "... vs samples" where that curve exists.
void write_step(EventFile& file, const StepRecord& record, const PhaseTimes& phases, std::int64_t batch_size,
                const config::Logging& settings);

/// Writes "<phase>-time" in seconds, where enabled.
void write_time(EventFile& file, Phase phase, double seconds, std::int64_t step,
                const config::Logging& settings);

/// Writes eval_scalars in the same way.
void write_eval(EventFile& file, const EvalRecord& record, const config::Logging& settings);

}  // namespace colonnade::record
