// JSON lines and rows of Parquet to indexed data sets: what `colonnade preprocess` does.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "colonnade/tokenizers/tokenizer.h"

namespace colonnade::preprocess {

struct PreprocessOptions {
  std::vector<std::filesystem::path>
      inputs;                 ///< JSON lines, plain, gzip or zstd, or Parquet; one after the other
  std::string output_prefix;  ///< PREFIX_<key>_document.bin and .idx are written
  std::vector<std::string> json_keys{"text"};
  bool append_eod = false;  ///< the tokenizer's end of document behind each document that has tokens
  int workers = 1;          ///< threads; the bytes do not depend on it
  std::int64_t chunk_bytes = 1 << 20;     ///< text a thread takes at a time; longer lines are taken whole
  std::int64_t longest_line = 1LL << 24;  ///< bytes; a longer one cannot be used
  bool skip_bad_lines = false;            ///< lines that cannot be used are counted and left out
  std::int64_t partitions = 1;            ///< data sets PREFIX_<i>_<key>_document, then all of them in one
  bool keep_sequential = false;           ///< a partition has lines that follow each other, else in turn
  std::filesystem::path punkt_model;  ///< folder; texts become sentences, PREFIX_<key>_sentence is written
  bool keep_newlines = false;         ///< sentences keep the white space behind them
  std::string tokenizer_identity;     ///< a run of another one does not go on from this one
  double resume_seconds = 10;         ///< between two points that a killed run goes on from
};

struct PreprocessProgress {
  std::int64_t documents = 0;
  std::int64_t tokens = 0;
  std::int64_t text_bytes = 0;   ///< unpacked
  std::int64_t skipped = 0;      ///< lines
  std::int64_t file_bytes = 0;   ///< of all inputs, as they lie on disk
  std::int64_t total_bytes = 0;  ///< what file_bytes ends with
};

/// What a caller hears on the way, in the order of the input; empty functions hear nothing.
struct PreprocessEvents {
  std::function<void(const PreprocessProgress&)> progress;  ///< at the start and after each chunk
  std::function<void(const std::string&)> skipped;          ///< "FILE line N: why", "FILE row N: why"
  std::function<void(const std::string&)> note;             ///< that it goes on, or begins anew
  std::function<bool()> stop;  ///< true: keep what there is and throw StopRequested
};

/// A document is one line: an object whose `json_keys` are strings (one sequence, or one of each sentence),
/// or lists of strings (one sequence each); or one row, whose columns are such. Texts without tokens give no
/// sequence; a document without tokens stays as an empty one, as in Megatron. Empty lines are passed over.
/// Memory: a few chunks per worker and at most 48 MB of text or one line, and of Parquet pages of at most 384
/// MiB, whatever the input's size.
///
/// What is written goes to temporary files, and PREFIX.resume says every few seconds how far they are whole.
/// The same call goes on from there after a kill, and ends with the bytes of an undisturbed run; with other
/// options or changed inputs it begins anew.
///
/// Throws DataError that names the file and line of the first line that cannot be used (unless they are
/// skipped), or when the inputs hold no token under a key; then no output file is left. Throws Error when the
/// system cannot read an input; then the same call goes on. Throws ConfigError for options that contradict,
/// and for more partitions than this process may have files open: its limit is raised as far as it may be.
PreprocessProgress preprocess(const PreprocessOptions& options, const tokenizers::Tokenizer& tokenizer,
                              const PreprocessEvents& events = {});

/// Documents a second of each number of workers on the first `documents` of the inputs; nothing is written.
std::vector<double> measure_preprocess(PreprocessOptions options, const tokenizers::Tokenizer& tokenizer,
                                       const std::vector<std::int64_t>& workers, std::int64_t documents);

}  // namespace colonnade::preprocess
