// Preprocessing of JSON lines and Parquet rows into indexed data sets for `colonnade preprocess`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "colonnade/tokenizers/tokenizer.h"

namespace colonnade::preprocess {

struct PreprocessOptions {
  std::vector<std::filesystem::path> inputs;  ///< JSON lines, plain, gzip or zstd, or Parquet, in this order
  std::string output_prefix;                  ///< PREFIX_<key>_document.bin and .idx are written
  std::vector<std::string> json_keys{"text"};
  bool append_eod = false;             ///< appends the end of document to each non-empty document
  int workers = 1;                     ///< threads; the output does not depend on it
  std::int64_t chunk_bytes = 1 << 20;  ///< text per chunk of a thread; longer lines form a chunk of their own
  std::int64_t longest_line = 1LL << 24;  ///< maximum bytes of a usable line
  bool skip_bad_lines = false;            ///< counts and skips unusable lines
  std::int64_t partitions = 1;            ///< data sets PREFIX_<i>_<key>_document, merged at the end
  bool keep_sequential = false;           ///< partitions are consecutive ranges of lines, else round-robin
  std::filesystem::path punkt_model;  ///< folder; splits texts into sentences, writes PREFIX_<key>_sentence
  bool keep_newlines = false;         ///< sentences keep their trailing white space
  std::string tokenizer_identity;     ///< a run with another one does not resume from this one
  double resume_seconds = 10;         ///< interval of resume points
};

struct PreprocessProgress {
  std::int64_t documents = 0;
  std::int64_t tokens = 0;
  std::int64_t text_bytes = 0;   ///< uncompressed
  std::int64_t skipped = 0;      ///< skipped lines
  std::int64_t file_bytes = 0;   ///< read bytes of all inputs, as stored on disk
  std::int64_t total_bytes = 0;  ///< final value of file_bytes
};

/// Callbacks in input order; any of them may be empty.
struct PreprocessEvents {
  std::function<void(const PreprocessProgress&)> progress;  ///< at the start and after each chunk
  std::function<void(const std::string&)> skipped;          ///< "FILE line N: why", "FILE row N: why"
  std::function<void(const std::string&)> note;             ///< that the run resumes or starts over
  std::function<bool()> stop;  ///< if true, the run saves its state and throws StopRequested
};

/// A document is one line: an object whose `json_keys` are strings (one sequence, or one per sentence) or
/// lists of strings (one sequence each); or one row with such columns. Texts without tokens produce no
/// sequence; a document without tokens is stored as an empty one, as in Megatron. Blank lines are ignored.
/// Memory: a few chunks per worker and at most 48 MB of text or one line, and at most 384 MiB of Parquet
/// pages, whatever the input size.
///
/// Output goes to temporary files; PREFIX.resume records every few seconds how much of them is complete.
/// After a kill the same call resumes there and produces the same bytes as an uninterrupted run; with other
/// options or changed inputs it starts over.
///
/// Throws DataError with file and line of the first unusable line (unless they are skipped), or if the inputs
/// hold no token under a key; then no output file remains. Throws Error if the system cannot read an input;
/// the same call resumes afterwards. Throws ConfigError for contradicting options, and for more partitions
/// than this process may have open files, after raising its limit as far as permitted.
PreprocessProgress preprocess(const PreprocessOptions& options, const tokenizers::Tokenizer& tokenizer,
                              const PreprocessEvents& events = {});

/// Documents per second for each number of workers on the first `documents` of the inputs; writes nothing.
std::vector<double> measure_preprocess(PreprocessOptions options, const tokenizers::Tokenizer& tokenizer,
                                       const std::vector<std::int64_t>& workers, std::int64_t documents);

}  // namespace colonnade::preprocess
