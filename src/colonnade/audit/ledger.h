// RUN/ledger.jsonl: the facts that decide which samples a run reads, one line per training session. Together
// with metrics.jsonl it gives the samples that were used (audit.h).
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "colonnade/config/run.h"
#include "colonnade/data/batches.h"
#include "colonnade/job/resume_policy.h"
#include "colonnade/record/run_folder.h"
#include "colonnade/record/tensorboard.h"

namespace colonnade::audit {

/// Recorded state of a data file.
struct DataFile {
  std::string path;
  std::uint64_t bytes = 0;
  std::int64_t changed_ns = 0;  ///< modification time since 1970
  std::string xxh3_128;         ///< for a .bin: of 64 blocks of 4 KiB spread over it, both ends included
  std::vector<std::string> sets = {};  ///< set_path of its datasets; empty: unknown
  friend bool operator==(const DataFile&, const DataFile&) = default;
};

/// One training session. The keys in the file are these names.
struct LedgerLine {
  std::string began;           ///< local time, "2026-11-21 13:04:08"
  std::int64_t began_s = 0;    ///< the same, since 1970
  record::ResumePoint loaded;  ///< "step", "samples": progress that it resumes from
  /// "saved": the loaded checkpoint's own progress, where --override-ckpt-iteration differs.
  std::optional<record::ResumePoint> saved = std::nullopt;
  std::string from;  ///< absolute folder of the checkpoint that it started from; "": none
  bool own = true;   ///< that folder is in this run's folder; else it is of another run
  std::optional<record::ResumePoint>
      reached;  ///< "reached": progress in the folder before this session; work after `loaded` is lost
  std::map<std::string, std::string> settings;  ///< all of them, with absolute paths
  nlohmann::json data;                          ///< job::data_state: tokens and epochs of each dataset
  nlohmann::json tokenizer;                     ///< job::tokenizer_state
  std::vector<DataFile> files;                  ///< of all datasets

  /// Progress of the earlier sessions that is in the weights.
  [[nodiscard]] record::ResumePoint retained() const { return saved.value_or(loaded); }
};

/// Canonical path of a dataset's prefix, file or folder: absolute, without `.`, `..` and a trailing `/`.
std::string set_path(const std::string& name);

/// Whether a session started too late to have made a checkpoint: after the time of its manifest, or at its
/// step or later. `checkpoint`: its folder; when that no longer exists, only the step counts.
bool started_after(const LedgerLine& session, const std::string& checkpoint, std::int64_t step);

/// Current states of a run's data files. The checksum of a file is taken from `last` where size and time are
/// equal and the time is well before `last`; other files are read. Throws DataError.
std::vector<DataFile> data_files(const config::Run& run, const data::Splits& splits,
                                 const std::optional<LedgerLine>& last);
/// Current state of one file. Throws DataError.
DataFile file_now(const std::string& path);

/// Appends a line, before metrics.jsonl is truncated after line.loaded;
/// `reached` is read from there. For a new run (loaded.step 0) an existing
/// ledger is renamed to ledger.jsonl.1 (.2, ...). A torn last line is
/// removed. Throws Error: then the session must not start, because its
/// samples would be counted for the previous one.
void add_to_ledger(const record::RunFolder& folder, LedgerLine line);

/// add_to_ledger for a session that starts now; `line` has the other fields.
/// On a resume a warning names each dataset that changed (changed_data.h)
/// since the session that made the checkpoint: the last one of the
/// checkpoint's run that started before its step. `tokens`: changes since
/// the checkpoint. Throws Error; ConfigError for a folder that cannot be
/// written, DataError for data that cannot be read.
void write_session(const record::RunFolder& folder, const config::Run& run, const data::Splits& splits,
                   LedgerLine line, const std::vector<job::ChangedTokens>& tokens = {});

/// All lines in order. A torn last line is left out. Throws DataError for a
/// missing file, for one without lines, and for a damaged line, with its
/// number.
std::vector<LedgerLine> read_ledger(const record::RunFolder& folder);

}  // namespace colonnade::audit
