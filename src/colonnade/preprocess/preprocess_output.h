// Output of preprocessing: the data sets of all keys and partitions, and the journal from which a killed run
// resumes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "colonnade/corpus/text_reader.h"
#include "colonnade/data/indexed/indexed_dataset.h"
#include "colonnade/preprocess/chunk_tokenizer.h"
#include "colonnade/preprocess/preprocess.h"

namespace colonnade::preprocess {

/// A resume point: all output before it is on disk.
struct PreprocessPoint {
  std::size_t input = 0;          ///< index of the current input
  corpus::LinePosition position;  ///< position in that input
  std::int64_t lines = 0;         ///< non-blank lines of all inputs so far
  PreprocessProgress progress;
  std::vector<data::WrittenCounts> sets;
  bool complete = false;  ///< all input is processed
};

/// PREFIX.resume: settings in the first line, then one resume point per line. A truncated last line is
/// ignored.
class PreprocessJournal {
 public:
  /// Locks the file. Throws ConfigError if another process holds it or it is not writable.
  PreprocessJournal(const std::string& output_prefix, std::string settings);
  ~PreprocessJournal();
  PreprocessJournal(const PreprocessJournal&) = delete;
  PreprocessJournal& operator=(const PreprocessJournal&) = delete;

  /// The last point of a run with the same settings; without one the journal is cleared.
  std::optional<PreprocessPoint> begin();
  /// Whether begin() found a run of other settings.
  [[nodiscard]] bool replaced() const { return replaced_; }
  /// Appends a point; it is on disk when this returns.
  void add(const PreprocessPoint& point);
  /// Whether there is a point to resume from.
  [[nodiscard]] bool has_point() const { return has_point_; }
  /// Deletes the file at the end of the run.
  void remove();

 private:
  void append(const std::string& line);
  [[noreturn]] void throw_not_writable() const;

  std::filesystem::path path_;
  std::string settings_;
  int fd_ = -1;
  bool replaced_ = false, has_point_ = false;
};

/// Raises this process's limit of open files if the partitions need more. Throws ConfigError with
/// --partitions and the limit if it is still too low.
void raise_open_file_limit(const PreprocessOptions& options);

/// The data sets PREFIX_<key>_<level>, written as PREFIX_<i>_<key>_<level> first if there are partitions.
class PreprocessOutput {
 public:
  /// `lines` (of all inputs) are needed for sequential partitions. `from` is the resume point of a killed run
  /// or null.
  PreprocessOutput(const PreprocessOptions& options, data::TokenType type, std::int64_t lines,
                   const PreprocessPoint* from);

  /// Adds a chunk; `first_line` is its first line among all non-blank lines of the inputs.
  void add(const EncodedChunk& chunk, std::int64_t first_line);
  std::vector<data::WrittenCounts> sync();
  /// Whether temporary files survive an error.
  void keep_part_files(bool keep);
  /// Throws DataError if a key has no tokens.
  void require_tokens(std::int64_t documents) const;
  /// Renames all files to their final names and merges partitions. Throws StopRequested if `stop` returns
  /// true in between; it can be repeated then.
  void finish(const std::function<bool()>& stop);

 private:
  [[nodiscard]] std::string prefix_of(std::size_t key, std::int64_t partition) const;
  [[nodiscard]] std::size_t partition_of(std::int64_t line) const;
  [[nodiscard]] data::IndexedDatasetBuilder& builder(std::size_t partition, std::size_t key) const {
    return *builders_[partition * options_.json_keys.size() + key];
  }

  const PreprocessOptions& options_;
  data::TokenType type_;
  std::int64_t lines_per_partition_ = 1;
  std::vector<std::unique_ptr<data::IndexedDatasetBuilder>> builders_;  // [partition][key]
};

}  // namespace colonnade::preprocess
