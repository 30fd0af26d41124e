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
/// The four bytes that a TFRecord frame keeps of it: rotated by 15, plus 0xa282ead8, little-endian.
std::string masked_crc(std::string_view bytes);

/// Curves over samples instead of steps have this at the end of their tags.
inline constexpr std::string_view kVersusSamples = " vs samples";

/// Where a run goes on: after this many steps and samples; zeros are a new run.
struct Loaded {
  std::int64_t step = 0;
  std::int64_t samples = 0;
};

/// Takes out of the event files in `folder` what is later than `loaded`: text and curves over steps by
/// step, "... vs samples" by samples. A file is replaced in one rename. (A SessionLog event, the
/// format's own way, knows one step for all tags and would take the curves over samples whole.)
void cut_events(const std::filesystem::path& folder, const Loaded& loaded);

/// One event file in a folder. Each event reaches the file at once.
class EventFile {
 public:
  /// Makes the folder and events.out.tfevents.<seconds>.<host>.<pid>.0 in it. For a run that continues
  /// earlier files are cut first. Throws Error when a file cannot be written.
  EventFile(const std::filesystem::path& folder, const Loaded& loaded);

  void scalar(std::string_view tag, double value, std::int64_t step);
  /// Shown as Markdown under "Text".
  void text(std::string_view tag, std::string_view value, std::int64_t step);

  [[nodiscard]] const std::filesystem::path& path() const { return file_.path(); }

 private:
  void write_record(const std::string& event);

  AppendFile file_;
};

/// A step under Megatron's tags: "lm loss", "learning-rate", "grad-norm", "loss-scale", "batch-size",
/// each also as "... vs samples"; "throughput" (TFLOP/s per device); further losses under their names;
/// with the settings' switches "num-zeros", "iteration-time" (seconds), write_time of the phases of a step
/// and "mem-max-allocated-bytes". "skipped-iterations" is 1 for a skipped step.
void write_step(EventFile& file, const StepRecord& record, const PhaseTimes& phases, std::int64_t batch_size,
                const config::Logging& settings);

/// "<phase>-time" in seconds, where the settings ask for it.
void write_time(EventFile& file, Phase phase, double seconds, std::int64_t step,
                const config::Logging& settings);

/// "lm loss validation" and "... vs samples"; with the settings' switch also "... ppl".
void write_eval(EventFile& file, const EvalRecord& record, const config::Logging& settings);

}  // namespace colonnade::record
