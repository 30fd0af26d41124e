// generation_config.json: which tokens end a text, and how the next one is chosen unless flags say it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "colonnade/inference/sampling.h"

namespace colonnade::inference {

/// Sampling values that a user or a file may give; an empty one is decided by somebody else.
struct SamplingValues {
  std::optional<double> temperature;
  std::optional<std::int64_t> top_k;
  std::optional<double> top_p;
  std::optional<double> repetition_penalty;

  /// Whether one of the values that only sampling reads is given.
  [[nodiscard]] bool ask_for_sampling() const { return temperature || top_k || top_p; }
};

/// What the folder of a model says of generation, read as Transformers reads it.
struct GenerationConfig {
  std::string path;                               ///< the file that `ends` come from
  std::optional<std::vector<std::int32_t>> ends;  ///< eos_token_id, each one an end; nothing: none is named
  std::int32_t bos = -1;                          ///< bos_token_id of generation_config.json; -1: none
  bool do_sample = false;
  SamplingValues values;
  std::optional<std::int64_t> max_new_tokens;
  std::optional<std::int64_t> max_length;  ///< with the prompt; max_new_tokens wins
  /// Keys that change the text in Transformers and do nothing here, as "<path>: <key>: ...; got <value>;
  /// ...". Those that only sampling reads are left out of a greedy configuration.
  std::vector<std::string> not_applied;
};

/// Reads `folder`/generation_config.json or, without that file, its keys of sampling, length and ends in
/// `hf_config` (config.json, and what it does not have of its text_config; null: there is none). Without the
/// key eos_token_id in the file (Transformers has no end then) the ends are those of `hf_config`. Throws
/// DataError for a file that is no JSON object and for a value of the wrong type or range.
GenerationConfig read_generation_config(const std::filesystem::path& folder, const nlohmann::json& hf_config);

/// The sampling of a text: `given` wins over `config`, as Transformers combines them. Greedy unless `config`
/// has do_sample or a sampling value is given. Values that neither has are temperature 1 and top_p 1, and
/// top_k 50 with do_sample, as in Transformers, else all tokens.
Sampling sampling_of(const GenerationConfig& config, const SamplingValues& given, std::uint64_t seed);

/// How many tokens to make after a prompt of `prompt` tokens where no flag says it: max_new_tokens, else
/// max_length less the prompt, else `otherwise`. Throws ConfigError where max_length leaves no room.
std::int64_t new_tokens_of(const GenerationConfig& config, std::int64_t prompt, std::int64_t otherwise);

}  // namespace colonnade::inference
