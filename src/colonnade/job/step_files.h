// Small files of a step folder: tokenizer, chat template and generation_config.json, so that AutoTokenizer
// and a resumed run can open the folder without the run's original files.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "colonnade/checkpoint/load.h"
#include "colonnade/config/run.h"
#include "colonnade/tokenizers/tokenizer.h"

namespace colonnade::job {

struct StepFiles {
  std::map<std::string, std::string> files;  ///< contents by name
  /// "tokenizer_files" of the state: the copied file of each setting, "." for the folder itself.
  nlohmann::json copies = nlohmann::json::object();
  /// bos_token_id and eos_token_id of the source's config.json, where its tokenizer is also the run's.
  nlohmann::json config_ids = nlohmann::json::object();
};

/// Files that the checkpoints of a run carry, read now. First the run's tokenizer files under the names that
/// Transformers expects, with the chat template of --sft. Then the tokenizer files and generation_config.json
/// of `source` (the folder with the weights; null: none), where it has the same tokenizer or the run has no
/// tokenizer file. A missing tokenizer_config.json is written where AutoTokenizer needs one, and for a GPT a
/// missing generation_config.json with the end of text. Holds the files in memory. Throws DataError for a
/// file that cannot be read.
StepFiles step_files(const config::Run& run, const tokenizers::Tokenizer* tokenizer,
                     const checkpoint::CheckpointReader* source);

}  // namespace colonnade::job
