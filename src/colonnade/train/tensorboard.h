// TensorBoard event files, written without TensorFlow: scalars and text.
// Format: TFRecord frames (length, masked CRC-32C) around `Event` protocol buffers
// (tensorflow/core/util/event.proto).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "colonnade/config/training.h"
#include "colonnade/train/append_file.h"
#include "colonnade/train/metrics.h"
#include "colonnade/train/timers.h"

namespace colonnade::train {

/// CRC-32C (Castagnoli, reflected polynomial 0x82f63b78) of `bytes`.
std::uint32_t crc32c(std::string_view bytes);

/// One event file in a folder. Each event reaches the file at once.
class EventFile {
 public:
  /// Makes the folder and events.out.tfevents.<seconds>.<host>.<pid>.0 in it. A run that continues
  /// gives the step it loaded: TensorBoard then drops what earlier files hold of later steps. Throws
  /// Error when the file cannot be written.
  EventFile(const std::filesystem::path& folder, std::int64_t loaded_step);

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
/// with the settings' switches "num-zeros", "iteration-time" (seconds), "<phase>-time" (seconds) and
/// "mem-max-allocated-bytes". "skipped-iterations" is 1 for a skipped step.
void write_step(EventFile& file, const StepRecord& record, const PhaseTimes& phases, std::int64_t batch_size,
                const config::Logging& settings);

/// "lm loss validation" and "... vs samples"; with the settings' switch also "... ppl".
void write_eval(EventFile& file, const EvalRecord& record, const config::Logging& settings);

}  // namespace colonnade::train
