// generation_config.json: end-of-sequence tokens, sampling and length defaults of `generate`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "colonnade/inference/sampling.h"

namespace colonnade::inference {

/// Sampling values of flags or of a file; unset ones have defaults elsewhere.
struct SamplingValues {
  std::optional<double> temperature;
  std::optional<std::int64_t> top_k;
  std::optional<double> top_p;
  std::optional<double> repetition_penalty;

  /// Whether a value that only sampling reads is set.
  [[nodiscard]] bool requests_sampling() const { return temperature || top_k || top_p; }
};

/// Generation settings of a checkpoint, read as Transformers does.
struct GenerationConfig {
  std::string path;                                  ///< file of `eos_ids`
  std::optional<std::vector<std::int32_t>> eos_ids;  ///< eos_token_id; nothing: none given
  std::int32_t bos = -1;                             ///< bos_token_id of generation_config.json; -1: none
  bool do_sample = false;
  SamplingValues values;
  std::optional<std::int64_t> max_new_tokens;
  std::optional<std::int64_t> max_length;  ///< with the prompt; max_new_tokens wins
  /// Warnings "<path>: <key> ...; got <value>; ..." about keys that change the text in Transformers but not
  /// here; keys that only sampling reads are omitted for greedy configurations.
  std::vector<std::string> not_applied;
};

/// Reads `folder`/generation_config.json or, without that file, the same keys of `hf_config` (config.json,
/// then its text_config; null: none). If the file lacks eos_token_id (Transformers has no end then), it comes
/// from `hf_config`. Throws DataError if the file is no JSON object or a value has a wrong type or range.
GenerationConfig read_generation_config(const std::filesystem::path& folder, const nlohmann::json& hf_config);

/// Sampling settings; `given` takes precedence over `config`, as in Transformers. Greedy unless `config` has
/// do_sample or a sampling value is given. Defaults: temperature 1, top_p 1, and top_k 50 with do_sample, as
/// in Transformers, else all tokens.
Sampling sampling_of(const GenerationConfig& config, const SamplingValues& given, std::uint64_t seed);

/// Number of tokens to generate after `prompt` tokens without --max-new-tokens: max_new_tokens, else
/// max_length minus the prompt, else `fallback`. Throws ConfigError if max_length is not longer than the
/// prompt.
std::int64_t new_tokens_of(const GenerationConfig& config, std::int64_t prompt, std::int64_t fallback);

}  // namespace colonnade::inference
