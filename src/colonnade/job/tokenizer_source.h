// The tokenizer of a checkpoint or a Hugging Face folder, for a run that names none.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "colonnade/checkpoint/load.h"
#include "colonnade/config/run.h"
#include "colonnade/tokenizers/tokenizer.h"

namespace colonnade::job {

/// Whether any setting that chooses a tokenizer was given.
bool names_tokenizer(const config::Run& run);

/// Sets the tokenizer of `run` to the one in the settings of a native checkpoint, or to the files of a
/// Hugging Face folder (tokenizers::detect_tokenizer), and adds a line about it to the notes. Has no effect
/// for a run that names or has a tokenizer, for mock data, which need none, for a source without one, and
/// with
/// --no-use-tokenizer-model-from-checkpoint-args. With --use-checkpoint-args it replaces a named one.
void adopt_tokenizer(config::Run& run, const checkpoint::CheckpointReader& source);

/// Token ids of a prompt (tokenizers::encode_prompt). `tokenizer` is that of `run` or, without one, a
/// NullTokenizer; then text other than ids throws ConfigError with the flags that name a tokenizer.
std::vector<std::int32_t> prompt_ids(const config::Run& run, const tokenizers::Tokenizer& tokenizer,
                                     const std::string& text);

/// Replaces missing or changed tokenizer files by their copies in `step_folder` (the "tokenizer_files" of
/// `state`), and adds a line about it to the notes. Applies where `run` has the tokenizer of the settings in
/// `state`, also from its own config.yaml; no effect for another tokenizer, and with
/// --no-use-tokenizer-model-from-checkpoint-args.
void use_tokenizer_copies(config::Run& run, const nlohmann::json& state,
                          const std::filesystem::path& step_folder);

}  // namespace colonnade::job
