// Small files of a step folder: its tokenizer, chat template and generation_config.json, so that
// AutoTokenizer and a later run open the folder without those that the run has read.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "colonnade/checkpoint/load.h"
#include "colonnade/config/run.h"
#include "colonnade/tokenizers/tokenizer.h"

namespace colonnade::job {

struct StepFiles {
  std::map<std::string, std::string> files;  ///< bytes by name
  /// "tokenizer_files" of the state: by key of a setting the file that is its copy, "." for the folder.
  nlohmann::json copies = nlohmann::json::object();
  /// bos_token_id and eos_token_id of the source's config.json, where its tokenizer is that of the run.
  nlohmann::json config_ids = nlohmann::json::object();
};

/// The files that the checkpoints of a run carry, read now: the run's tokenizer files under the names that
/// Transformers looks for, with the chat template of --sft; then, where `source` (the folder that weights
/// come from; null: none) has the same tokenizer or the run has no file of one, those of the source and its
/// generation_config.json. Where a file is missing that AutoTokenizer needs: a tokenizer_config.json. For a
/// gpt without a generation_config.json: one with the end of text. Memory: the bytes of the files. Throws
/// DataError for a file that cannot be read.
StepFiles step_files(const config::Run& run, const tokenizers::Tokenizer* tokenizer,
                     const checkpoint::Source* source);

}  // namespace colonnade::job
