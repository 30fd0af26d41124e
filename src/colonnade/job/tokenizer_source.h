// The tokenizer that a checkpoint or a Hugging Face folder brings along, for a run that names none.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "colonnade/checkpoint/load.h"
#include "colonnade/config/run.h"
#include "colonnade/tokenizers/tokenizer.h"

namespace colonnade::job {

/// Whether a setting that chooses a tokenizer was given.
bool names_tokenizer(const config::Run& run);

/// Sets the tokenizer of `run` to the one that the settings of a native checkpoint keep, or to the files of a
/// Hugging Face folder (tokenizers::tokenizer_in), and adds a line about it to the notes. Does nothing for a
/// run that names or has a tokenizer, for mock data, which need none, for a source without one, and with
/// --no-use-tokenizer-model-from-checkpoint-args. With --use-checkpoint-args a named one is replaced.
void adopt_tokenizer(config::Run& run, const checkpoint::Source& source);

/// The ids of a prompt (tokenizers::encode_prompt). `tokenizer` is that of `run` or, where it has none, a
/// NullTokenizer: then throws ConfigError, with the flags that name a tokenizer, for text other than ids.
std::vector<std::int32_t> prompt_ids(const config::Run& run, const tokenizers::Tokenizer& tokenizer,
                                     const std::string& text);

/// Where `run` has the tokenizer that the settings in `state` name, also by its own config.yaml, and files of
/// it are gone or give other ids now: puts the copies in `step_folder` in their place, by the
/// "tokenizer_files" of `state`, and adds a line about it to the notes. Another tokenizer stays, and with
/// --no-use-tokenizer-model-from-checkpoint-args every one.
void use_copies(config::Run& run, const nlohmann::json& state, const std::filesystem::path& step_folder);

}  // namespace colonnade::job
