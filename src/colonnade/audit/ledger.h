// RUN/ledger.jsonl: what decides which samples a run reads, one line for each start of the program that
// trains. With metrics.jsonl it says which samples were used (audit.h).
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "colonnade/config/run.h"
#include "colonnade/data/batches.h"
#include "colonnade/job/continued.h"
#include "colonnade/record/run_folder.h"
#include "colonnade/record/tensorboard.h"

namespace colonnade::audit {

/// A file that samples are read from, as it was.
struct DataFile {
  std::string path;
  std::uint64_t bytes = 0;
  std::int64_t changed_ns = 0;  ///< since 1970
  std::string xxh3_128;  ///< of a .bin: of 64 places of 4 KiB that are spread over it, both ends included
  std::vector<std::string> sets = {};  ///< set_path of the data sets that have it; empty: not known
  friend bool operator==(const DataFile&, const DataFile&) = default;
};

/// One start of the program. Written with these names as keys.
struct LedgerLine {
  std::string began;         ///< local time, "2026-11-21 13:04:08"
  std::int64_t began_s = 0;  ///< the same, since 1970
  record::Loaded loaded;     ///< "step", "samples": it goes on after these
  /// "saved": what the loaded checkpoint had come to, where --override-ckpt-iteration says another number.
  std::optional<record::Loaded> saved = std::nullopt;
  std::string from;  ///< folder of the checkpoint that it began with, absolute; "": none
  bool own = true;   ///< that folder lay in this run's; else another run made what it goes on from
  std::optional<record::Loaded>
      reached;  ///< "reached": how far the folder's run had come; what lies behind loaded is lost
  std::map<std::string, std::string> settings;  ///< all of them, with absolute paths
  nlohmann::json data;                          ///< job::data_state: tokens and passes of each data set
  nlohmann::json tokenizer;                     ///< job::tokenizer_state
  std::vector<DataFile> files;                  ///< of all data sets

  /// The step and samples of the sessions before up to which the weights hold them.
  [[nodiscard]] record::Loaded held() const { return saved.value_or(loaded); }
};

/// A data set however its prefix, file or folder is spelled: absolute, without `.`, `..` and a `/` at the
/// end.
std::string set_path(const std::string& name);

/// Whether a session began too late to have made a checkpoint that it did not begin with: behind the time of
/// its manifest, or at its step. `checkpoint`: its folder, which may be gone; then the step alone says it.
bool began_behind(const LedgerLine& session, const std::string& checkpoint, std::int64_t step);

/// The files of the data sets of a run, as they are now. Where `last` knows a file of equal size and time, of
/// a time well before it, its checksum is taken from there; the others are read. Throws DataError.
std::vector<DataFile> data_files(const config::Run& run, const data::Splits& splits,
                                 const std::optional<LedgerLine>& last);
/// One file as it is now. Throws DataError.
DataFile file_now(const std::string& path);

/// Adds a line, before metrics.jsonl is cut behind line.loaded; `reached` is read from there. A new run
/// (loaded.step 0) keeps what another one left as ledger.jsonl.1 (.2, ...). A line cut short by a crash is
/// left out. Throws Error: then the session must not begin, for its samples would count as the one before's.
void add_to_ledger(const record::RunFolder& folder, LedgerLine line);

/// add_to_ledger of a session that begins now; `line` says the rest. Where it goes on, a warning names each
/// data set that changed (changed_data.h) since the session that made the checkpoint: the last one in the
/// checkpoint's run that began before its step. `tokens`: since the checkpoint. Throws Error; ConfigError for
/// a folder that cannot be written, DataError for data that cannot be read.
void write_session(const record::RunFolder& folder, const config::Run& run, const data::Splits& splits,
                   LedgerLine line, const std::vector<job::ChangedTokens>& tokens = {});

/// The lines in their order. A last line that was cut short is left out. Throws DataError for a missing
/// file, for one without lines, and naming the line that is damaged.
std::vector<LedgerLine> read_ledger(const record::RunFolder& folder);

}  // namespace colonnade::audit
