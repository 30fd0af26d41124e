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
#include "colonnade/train/run_folder.h"
#include "colonnade/train/tensorboard.h"

namespace colonnade::train {

/// A file that samples are read from, as it was.
struct DataFile {
  std::string path;
  std::uint64_t bytes = 0;
  std::int64_t changed_ns = 0;  ///< since 1970
  std::string xxh3_128;         ///< of .idx and chat files; "" for .bin: these are not read as a whole
  friend bool operator==(const DataFile&, const DataFile&) = default;
};

/// One start of the program. Written with these names as keys.
struct LedgerLine {
  std::string began;  ///< local time, "2026-11-21 13:04:08"
  Loaded loaded;      ///< "step", "samples": it goes on after these
  std::string from;   ///< folder of the checkpoint that it began with; "": none
  std::optional<Loaded>
      reached;  ///< "reached": how far the folder's run had come; what lies behind loaded is lost
  std::map<std::string, std::string> settings;  ///< all of them, with absolute paths
  nlohmann::json data;                          ///< job::data_state: tokens and passes of each data set
  nlohmann::json tokenizer;                     ///< job::tokenizer_state
  std::vector<DataFile> files;                  ///< of all data sets
};

/// The files of the data sets of a run, as they are now. Reads .idx and chat files. Throws DataError.
std::vector<DataFile> data_files(const config::Run& run, const data::Splits& splits);
/// One file as it is now, with its checksum unless it is a .bin. Throws DataError.
DataFile file_now(const std::string& path);

/// Adds a line, before metrics.jsonl is cut behind line.loaded; `reached` is read from there. A new run
/// (loaded.step 0) keeps what another one left as ledger.jsonl.1 (.2, ...). A line cut short by a crash is
/// left out. Throws Error.
void add_to_ledger(const RunFolder& folder, LedgerLine line);

/// add_to_ledger of a session that begins now; `line` says the rest. What cannot be read or written is a
/// warning: what watches a run must not end it. Throws ConfigError for a folder that cannot be written.
void write_session(const RunFolder& folder, const config::Run& run, const data::Splits& splits,
                   LedgerLine line);

/// The lines in their order. A last line that was cut short is left out. Throws DataError for a missing
/// file, for one without lines, and naming the line that is damaged.
std::vector<LedgerLine> read_ledger(const RunFolder& folder);

}  // namespace colonnade::train
