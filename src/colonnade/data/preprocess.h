// JSON lines to indexed data sets: what `colonnade preprocess` does.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "colonnade/data/tokenizer.h"

namespace colonnade::data {

struct PreprocessOptions {
  std::vector<std::filesystem::path> inputs;  ///< .jsonl files, plain, gzip or zstd, one after the other
  std::string output_prefix;                  ///< PREFIX_<key>_document.bin and .idx are written
  std::vector<std::string> json_keys{"text"};
  bool append_eod = false;  ///< the tokenizer's end of document behind each document that has tokens
  int workers = 1;          ///< threads; the bytes do not depend on it
  std::int64_t chunk_bytes = 1 << 20;  ///< text a thread takes at a time; longer lines are taken whole
};

struct PreprocessProgress {
  std::int64_t documents = 0;
  std::int64_t tokens = 0;
  std::int64_t text_bytes = 0;  ///< unpacked
};

/// A document is one line: an object whose `json_keys` are strings (one sequence), or lists of strings (one
/// sequence each). Texts without tokens give no sequence; a document without tokens stays as an empty one, as
/// in Megatron. Empty lines are passed over. Memory: a few chunks per worker, whatever the input's size.
/// `report` is called after each chunk, in order. Throws DataError that names the file and line of the
/// first line that cannot be used, or when the inputs hold no token under a key; then no output file is left.
PreprocessProgress preprocess(const PreprocessOptions& options, const Tokenizer& tokenizer,
                              const std::function<void(const PreprocessProgress&)>& report = {});

/// All texts of the inputs, for training a tokenizer: of .jsonl files (also .jsonl.gz, .jsonl.zst) the
/// strings under `json_key`, of other files each line. Throws DataError as preprocess.
std::vector<std::string> read_texts(const std::vector<std::filesystem::path>& inputs,
                                    const std::string& json_key);

}  // namespace colonnade::data
