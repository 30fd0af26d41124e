// The layout of a run folder: where everything lies that a run leaves behind.
#pragma once

#include <ctime>
#include <filesystem>
#include <string>

namespace colonnade::train {

/// RUN/config.yaml        all settings; as it is it begins the run, or goes on after its newest checkpoint
/// RUN/metrics.jsonl      one line per step; metrics.jsonl.1, ...: of earlier runs that saved nothing here
/// RUN/validation.jsonl   one line per evaluation; validation.jsonl.1, ... as above
/// RUN/ledger.jsonl       one line per start of the program that trains: what decides its samples
/// RUN/sessions.json      layout, times and memory of each start of the program for this run
/// RUN/tensorboard/       event files
/// RUN/report.html        curves, layout, pipeline picture; opens without a network
/// RUN/checkpoints/       step_00000100/ ..., latest
struct RunFolder {
  std::filesystem::path root;

  [[nodiscard]] std::filesystem::path config() const { return root / "config.yaml"; }
  [[nodiscard]] std::filesystem::path metrics() const { return root / "metrics.jsonl"; }
  [[nodiscard]] std::filesystem::path validation() const { return root / "validation.jsonl"; }
  [[nodiscard]] std::filesystem::path ledger() const { return root / "ledger.jsonl"; }
  [[nodiscard]] std::filesystem::path sessions() const { return root / "sessions.json"; }
  [[nodiscard]] std::filesystem::path tensorboard() const { return root / "tensorboard"; }
  [[nodiscard]] std::filesystem::path report() const { return root / "report.html"; }
  [[nodiscard]] std::filesystem::path checkpoints() const { return root / "checkpoints"; }
};

/// Now on this machine's clock, as strftime writes `format`.
std::string local_time(const char* format);
/// Another time on it.
std::string local_time(const char* format, std::time_t when);

/// `save`, or runs/<local time> (2026-11-21_13-04-08, with -2, -3, ... when it is taken) for "".
/// Nothing is made. Rank 0 chooses and tells the others.
RunFolder choose_run_folder(const std::string& save);

/// Makes the folder and its checkpoints/ and finds out that it can be written. Throws ConfigError with
/// the system's reason.
void make_run_folder(const RunFolder& folder);

}  // namespace colonnade::train
