// See preprocess_output.h.
#include "colonnade/preprocess/preprocess_output.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"

namespace colonnade::preprocess {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

json to_json(const PreprocessPoint& point) {
  json sets = json::array();
  for (const data::WrittenCounts& set : point.sets)
    sets.push_back({set.sequences, set.documents, set.tokens});
  const PreprocessProgress& done = point.progress;
  return {{"input", point.input},
          {"byte", point.position.byte},
          {"line", point.position.line},
          {"lines", point.lines},
          {"progress", {done.documents, done.tokens, done.text_bytes, done.skipped, done.file_bytes}},
          {"sets", sets},
          {"complete", point.complete}};
}

PreprocessPoint from_json(const json& line) {
  PreprocessPoint point;
  point.input = line.at("input");
  point.position = {line.at("byte"), line.at("line")};
  point.lines = line.at("lines");
  const json& done = line.at("progress");
  point.progress = {done.at(0), done.at(1), done.at(2), done.at(3), done.at(4), 0};
  for (const json& set : line.at("sets")) point.sets.push_back({set.at(0), set.at(1), set.at(2)});
  point.complete = line.at("complete");
  return point;
}

}  // namespace

PreprocessJournal::PreprocessJournal(const std::string& output_prefix, std::string settings)
    : path_(output_prefix + ".resume"), settings_(std::move(settings)) {
  std::error_code ignored;  // open reports a missing folder
  if (path_.has_parent_path()) fs::create_directories(path_.parent_path(), ignored);
  fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd_ < 0) throw_not_writable();
  if (::flock(fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(fd_);
    throw ConfigError(fmt::format(
        "--output-prefix: only one process may write a data set; got {}, which another one writes; wait for it or "
        "choose another prefix",
        output_prefix));
  }
}

PreprocessJournal::~PreprocessJournal() { ::close(fd_); }

void PreprocessJournal::throw_not_writable() const {
  throw ConfigError(fmt::format(
      "--output-prefix: its folder must be writable and have free space; got {} for {}; choose another "
      "folder or free space",
      std::strerror(errno), path_.string()));
}

std::optional<PreprocessPoint> PreprocessJournal::begin() {
  const std::string text = read_file(path_);
  std::optional<PreprocessPoint> point;
  std::size_t complete = text.find('\n') + 1;  // end of the last complete line; npos + 1 is 0
  const bool same = complete > 0 && text.compare(0, complete - 1, settings_) == 0;
  replaced_ = complete > 0 && !same;
  for (std::size_t end = 0; same && (end = text.find('\n', complete)) != std::string::npos;
       complete = end + 1) {
    const json line = json::parse(text.substr(complete, end - complete), nullptr, false);
    if (line.is_discarded()) break;
    point = from_json(line);
  }
  if (::ftruncate(fd_, same ? static_cast<off_t>(complete) : 0) != 0 || ::lseek(fd_, 0, SEEK_END) < 0)
    throw_not_writable();
  if (!same) append(settings_);
  has_point_ = point.has_value();
  return point;
}

void PreprocessJournal::append(const std::string& line) {
  const std::string text = line + "\n";
  if (::write(fd_, text.data(), text.size()) != static_cast<ssize_t>(text.size()) || ::fsync(fd_) != 0)
    throw_not_writable();
}

void PreprocessJournal::add(const PreprocessPoint& point) {
  append(to_json(point).dump());
  has_point_ = true;
}

void PreprocessJournal::remove() {
  std::error_code ignored;
  fs::remove(path_, ignored);
  has_point_ = false;
}

void raise_open_file_limit(const PreprocessOptions& options) {
  constexpr rlim_t kOthers = 32;  // inputs, the journal, an index, files that are already open
  const auto sets = static_cast<rlim_t>(options.partitions) * options.json_keys.size();
  const rlim_t needed = 3 * sets + kOthers;
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return;
  limit.rlim_cur = limit.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= needed) return;
  throw ConfigError(fmt::format(
      "--partitions: each partition needs 3 open files per key; got {} partitions and {} keys, which need {} files, "
      "and a limit of {} (ulimit -Hn); set fewer partitions or raise the limit",
      options.partitions, options.json_keys.size(), needed, limit.rlim_max));
}

PreprocessOutput::PreprocessOutput(const PreprocessOptions& options, data::TokenType type, std::int64_t lines,
                                   const PreprocessPoint* from)
    : options_(options), type_(type) {
  lines_per_partition_ = std::max<std::int64_t>((lines + options.partitions - 1) / options.partitions, 1);
  std::size_t next = 0;
  for (std::int64_t partition = 0; partition < options.partitions; ++partition) {
    for (std::size_t key = 0; key < options.json_keys.size(); ++key) {
      const std::string prefix = prefix_of(key, options.partitions == 1 ? -1 : partition);
      builders_.push_back(from == nullptr ? std::make_unique<data::IndexedDatasetBuilder>(prefix, type)
                                          : std::make_unique<data::IndexedDatasetBuilder>(
                                                prefix, type, from->sets.at(next++), from->complete));
    }
  }
}

/// Prefix of a partition, or of the merged data set for partition -1.
std::string PreprocessOutput::prefix_of(std::size_t key, std::int64_t partition) const {
  return fmt::format("{}_{}{}_{}", options_.output_prefix, partition < 0 ? "" : fmt::format("{}_", partition),
                     options_.json_keys[key], options_.punkt_model.empty() ? "document" : "sentence");
}

std::size_t PreprocessOutput::partition_of(std::int64_t line) const {
  return static_cast<std::size_t>(options_.keep_sequential
                                      ? std::min(line / lines_per_partition_, options_.partitions - 1)
                                      : line % options_.partitions);
}

void PreprocessOutput::add(const EncodedChunk& chunk, std::int64_t first_line) {
  for (std::size_t key = 0; key < chunk.keys.size(); ++key) {
    std::span<const std::int32_t> ids(chunk.keys[key].ids);
    std::span<const std::int32_t> lengths(chunk.keys[key].lengths);
    for (std::size_t i = 0; i < chunk.document_lines.size(); ++i) {
      const std::size_t sequences = chunk.keys[key].sequences[i];
      const std::span<const std::int32_t> own = lengths.first(sequences);
      std::size_t tokens = 0;
      for (const std::int32_t length : own) tokens += static_cast<std::size_t>(length);
      builder(partition_of(first_line + chunk.document_lines[i]), key).add_document(ids.first(tokens), own);
      ids = ids.subspan(tokens);
      lengths = lengths.subspan(sequences);
    }
  }
}

std::vector<data::WrittenCounts> PreprocessOutput::sync() {
  std::vector<data::WrittenCounts> written;
  for (const auto& each : builders_) written.push_back(each->sync());
  return written;
}

void PreprocessOutput::keep_part_files(bool keep) {
  for (const auto& each : builders_) each->keep_part_files(keep);
}

void PreprocessOutput::require_tokens(std::int64_t documents) const {
  for (std::size_t key = 0; key < options_.json_keys.size(); ++key) {
    std::int64_t tokens = 0;
    for (std::int64_t i = 0; i < options_.partitions; ++i)
      tokens += builder(static_cast<std::size_t>(i), key).num_tokens();
    if (tokens == 0)
      throw DataError(fmt::format(
          "{}: a data set must hold tokens; got {} documents without any under the key '{}'; check the files and the "
          "keys of their lines",
          options_.output_prefix, documents, options_.json_keys[key]));
  }
}

void PreprocessOutput::finish(const std::function<bool()>& stop) {
  const auto check_stop = [&stop] {
    if (stop && stop())
      throw StopRequested(
          "preprocess: stopped by a signal while partitions were merged; the same command resumes there");
  };
  for (const auto& each : builders_) each->finalize();
  if (options_.partitions == 1) return;
  for (std::size_t key = 0; key < options_.json_keys.size(); ++key) {
    data::IndexedDatasetBuilder merged(prefix_of(key, -1), type_);
    for (std::int64_t i = 0; i < options_.partitions; ++i)
      merged.add_index(data::IndexedDataset(prefix_of(key, i)), check_stop);
    merged.finalize();
  }
}

}  // namespace colonnade::preprocess
