// What preprocessing writes: the data sets of all keys and partitions, and the journal that lets a killed run
// go on.
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
#include "colonnade/preprocess/chunk_encoder.h"
#include "colonnade/preprocess/preprocess.h"

namespace colonnade::preprocess {

/// How far a run is: everything before is on the disk.
struct PreprocessPoint {
  std::size_t input = 0;          ///< which of the inputs is read
  corpus::LinePosition position;  ///< where in it
  std::int64_t lines = 0;         ///< that are not blank, of all inputs
  PreprocessProgress progress;
  std::vector<data::WrittenCounts> sets;
  bool complete = false;  ///< all input was read
};

/// PREFIX.resume: the settings in its first line, a point in each further one. What a kill cut off at its end
/// is not read.
class PreprocessJournal {
 public:
  /// Takes hold of the file. Throws ConfigError when another process has it or it cannot be written.
  PreprocessJournal(const std::string& output_prefix, std::string settings);
  ~PreprocessJournal();
  PreprocessJournal(const PreprocessJournal&) = delete;
  PreprocessJournal& operator=(const PreprocessJournal&) = delete;

  /// The last point of a run with the same settings; without one the file is begun anew.
  std::optional<PreprocessPoint> begin();
  /// Whether begin() found a run of other settings.
  [[nodiscard]] bool replaced() const { return replaced_; }
  /// On the disk when it returns.
  void add(const PreprocessPoint& point);
  /// Whether there is a point to go on from.
  [[nodiscard]] bool has_point() const { return has_point_; }
  /// The run is over: the file goes.
  void remove();

 private:
  void append(const std::string& line);
  [[noreturn]] void refuse() const;

  std::filesystem::path path_;
  std::string settings_;
  int fd_ = -1;
  bool replaced_ = false, has_point_ = false;
};

/// Raises how many files this process may have open, where partitions need more. Throws ConfigError that
/// names --partitions and the limit when that is too few.
void allow_open_files(const PreprocessOptions& options);

/// The data sets PREFIX_<key>_<level>; with partitions each of them as PREFIX_<i>_<key>_<level> first.
class PreprocessOutput {
 public:
  /// `lines` of all inputs are needed where partitions are sequential. `from`: where a killed run was.
  PreprocessOutput(const PreprocessOptions& options, data::TokenType type, std::int64_t lines,
                   const PreprocessPoint* from);

  /// `first_line` of the chunk, among all lines of the inputs that are not blank.
  void add(const EncodedChunk& chunk, std::int64_t first_line);
  std::vector<data::WrittenCounts> sync();
  /// Whether temporary files outlive an error.
  void keep_parts(bool keep);
  /// Throws DataError when a key has no tokens.
  void require_tokens(std::int64_t documents) const;
  /// Gives all files their names and puts partitions together. Throws StopRequested when `stop` says so on
  /// the way; it can be done once more then.
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
  std::vector<std::unique_ptr<data::IndexedDatasetBuilder>> builders_;  // of all keys, partition by partition
};

}  // namespace colonnade::preprocess
