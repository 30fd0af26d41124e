// Offline runs of Weights & Biases, written without its package and uploaded by `wandb sync FOLDER`.
// Format: LevelDB's log (github.com/google/leveldb/blob/main/doc/log_format.md) of `Record` protocol buffers
// (github.com/wandb/wandb: wandb/proto/wandb_internal.proto, wandb/sdk/internal/datastore.py).
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "colonnade/config/run.h"
#include "colonnade/record/append_file.h"
#include "colonnade/record/run_folder.h"
#include "colonnade/record/scalars.h"

namespace colonnade::record {

/// The 7 bytes at the beginning of a file: ":W&B", 0xbee1, version 0.
std::string wandb_header();

/// `data` as log records from byte `offset` of a file on, in blocks of 32768 bytes that the file header is
/// part of: CRC-32 of type and data, length (uint16), type (full, first, middle, last), data. Records do not
/// cross blocks; fewer than 7 bytes at the end of a block are zeros.
std::string wandb_frames(std::string_view data, std::uint64_t offset);

/// Facts of a run besides its settings.
struct WandbRun {
  std::string id;                ///< 8 letters and digits
  std::string name;              ///< shown in the project
  std::filesystem::path folder;  ///< .../wandb/offline-run-20261121_130408-<id>
  bool resumed = false;
};

/// Run of the run folder, with its name. A new run gets a new id, stored in RUN/wandb_id.txt, which a resumed
/// run keeps: the newest folder of an id then holds the complete run.
WandbRun make_wandb_run(const config::Run& run, const RunFolder& folder, bool resumed);

/// The file run-<id>.wandb of an offline run. Each record is written at once, so that a killed run can be
/// uploaded up to its last step.
class WandbFile {
 public:
  /// Creates the folder, and the file with the records of header and run: project, entity, name, host, and
  /// all settings as config. Throws Error when the file cannot be written.
  WandbFile(const WandbRun& run, const config::Run& settings);

  /// One history record: the scalars by tag, with "_step", "_timestamp" and "_runtime". `updates_summary`:
  /// also a summary record with these values.
  void row(std::int64_t step, const std::vector<Scalar>& scalars, bool updates_summary = true);
  /// The last record: exit code and run time.
  void finish(int exit_code);

  [[nodiscard]] const std::filesystem::path& path() const { return file_.path(); }

 private:
  /// Appends a record whose field `kind` is filled by `fill`.
  template <typename Fill>
  void write(std::uint32_t kind, const Fill& fill);
  [[nodiscard]] double runtime_s() const;

  AppendFile file_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::int64_t records_ = 0;
};

}  // namespace colonnade::record
