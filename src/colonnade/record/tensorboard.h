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
#include "colonnade/record/metrics.h"
#include "colonnade/record/phase_times.h"

namespace colonnade::record {

/// CRC-32C (Castagnoli, reflected polynomial 0x82f63b78) of `bytes`.
std::uint32_t crc32c(std::string_view bytes);
/// CRC in a TFRecord frame: rotated by 15, plus 0xa282ead8, as four little-endian bytes.
std::string masked_crc(std::string_view bytes);

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

/// Writes a step under Megatron's tags: "lm loss", "learning-rate", "grad-norm", "loss-scale", "batch-size",
/// each also as "... vs samples"; "throughput" (TFLOP/s per device); other losses under their names, those of
/// single layers under event_tag; where enabled "num-zeros", "iteration-time"
/// (seconds), write_time of the step's phases and "mem-max-allocated-bytes". "skipped-iterations" is 1 for a
/// skipped step.
void write_step(EventFile& file, const StepRecord& record, const PhaseTimes& phases, std::int64_t batch_size,
                const config::Logging& settings);

/// Writes "<phase>-time" in seconds, where enabled.
void write_time(EventFile& file, Phase phase, double seconds, std::int64_t step,
                const config::Logging& settings);

/// Writes "lm loss validation" and "... vs samples"; where enabled also "... ppl".
void write_eval(EventFile& file, const EvalRecord& record, const config::Logging& settings);

}  // namespace colonnade::record
