// See generation_config.h. A table of keys decides which are applied, ignored as irrelevant, or reported.
#include "colonnade/inference/generation_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "colonnade/base/error.h"
#include "colonnade/checkpoint/hugging_face.h"

namespace colonnade::inference {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kFile = "generation_config.json";
constexpr std::int64_t kDefaultTopK = 50;  // Transformers' default with do_sample

std::string shortened(const json& value) {
  constexpr std::size_t kMost = 60;
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() > kMost) text = text.substr(0, kMost) + "...";
  return text;
}

[[noreturn]] void reject(const std::string& path, std::string_view key, std::string_view rule,
                         const json& value) {
  throw DataError(fmt::format("{}: {} {}; got {}; correct the file", path, key, rule, shortened(value)));
}

bool is_unset(const json& object, const char* key) {
  return !object.contains(key) || object.at(key).is_null();
}

/// A number from `low` to `high`; nothing if the key is missing or null.
std::optional<double> number(const json& object, const char* key, const std::string& path, double low,
                             double high) {
  if (is_unset(object, key)) return std::nullopt;
  const json& value = object.at(key);
  const bool fits = value.is_number() && std::isfinite(value.get<double>()) && value.get<double>() >= low &&
                    value.get<double>() <= high;
  if (!fits) {
    const std::string range =
        std::isfinite(high) ? fmt::format("{:g} to {:g}", low, high) : fmt::format("{:g} or more", low);
    reject(path, key, fmt::format("must be a number, {}", range), value);
  }
  return value.get<double>();
}

std::optional<std::int64_t> integer(const json& object, const char* key, const std::string& path,
                                    double low) {
  const auto value = number(object, key, path, low, 0x1.0p53);
  if (!value) return std::nullopt;
  if (*value != std::floor(*value)) reject(path, key, "must be an integer", object.at(key));
  return static_cast<std::int64_t>(*value);
}

/// A token id; -1 for a negative one, which means none in older files.
std::int32_t token_id(const json& value, const char* key, const std::string& path) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (!value.is_number_integer() || value.get<double>() > static_cast<double>(kMost))
    reject(path, key, "must be a token id or a list of token ids", value);
  return value.get<std::int64_t>() < 0 ? -1 : value.get<std::int32_t>();
}

/// eos_token_id: one id or a list of ids; nothing if unset.
std::optional<std::vector<std::int32_t>> eos_ids_of(const json& object, const std::string& path) {
  constexpr const char* kKey = "eos_token_id";
  if (!object.is_object() || is_unset(object, kKey)) return std::nullopt;
  const json& value = object.at(kKey);
  std::vector<std::int32_t> eos_ids;
  for (const json& one : value.is_array() ? value : json::array({value}))
    if (const std::int32_t id = token_id(one, kKey, path); id >= 0) eos_ids.push_back(id);
  return eos_ids;
}

enum class Effect : std::uint8_t { kApplied, kNone, kText, kSampledText };

/// A key of GenerationConfig. Keys that affect the text have no effect if null, empty or `neutral`.
struct Key {
  std::string_view name;
  Effect effect;
  double neutral = 0;
};

constexpr Key kKeys[] = {
    {"eos_token_id", Effect::kApplied},
    {"bos_token_id", Effect::kApplied},
    {"do_sample", Effect::kApplied},
    {"temperature", Effect::kApplied},
    {"top_k", Effect::kApplied},
    {"top_p", Effect::kApplied},
    {"repetition_penalty", Effect::kApplied},
    {"max_new_tokens", Effect::kApplied},
    {"max_length", Effect::kApplied},
    // Irrelevant without batching, padding, beams, an encoder or a draft model.
    {"pad_token_id", Effect::kNone},
    {"decoder_start_token_id", Effect::kNone},
    {"encoder_no_repeat_ngram_size", Effect::kNone},
    {"early_stopping", Effect::kNone},
    {"length_penalty", Effect::kNone},
    {"diversity_penalty", Effect::kNone},
    {"num_beam_groups", Effect::kNone},
    {"renormalize_logits", Effect::kNone},
    {"remove_invalid_values", Effect::kNone},
    {"use_cache", Effect::kNone},
    {"cache_implementation", Effect::kNone},
    {"cache_config", Effect::kNone},
    {"max_cache_len", Effect::kNone},
    {"output_attentions", Effect::kNone},
    {"output_hidden_states", Effect::kNone},
    {"output_scores", Effect::kNone},
    {"output_logits", Effect::kNone},
    {"return_dict_in_generate", Effect::kNone},
    {"use_mtp", Effect::kNone},
    {"is_assistant", Effect::kNone},
    {"num_assistant_tokens", Effect::kNone},
    {"num_assistant_tokens_schedule", Effect::kNone},
    {"assistant_confidence_threshold", Effect::kNone},
    {"prompt_lookup_num_tokens", Effect::kNone},
    {"max_matching_ngram_size", Effect::kNone},
    {"assistant_early_exit", Effect::kNone},
    {"assistant_lookbehind", Effect::kNone},
    {"target_lookbehind", Effect::kNone},
    {"speculation_type", Effect::kNone},
    {"compile_config", Effect::kNone},
    {"disable_compile", Effect::kNone},
    {"continuous_batching_config", Effect::kNone},
    {"transformers_version", Effect::kNone},
    {"trust_remote_code", Effect::kNone},
    {"_from_model_config", Effect::kNone},
    {"_commit_hash", Effect::kNone},
    {"min_length", Effect::kText, 0},
    {"min_new_tokens", Effect::kText, 0},
    {"max_time", Effect::kText, 0},
    {"stop_strings", Effect::kText},
    {"num_beams", Effect::kText, 1},
    {"num_return_sequences", Effect::kText, 1},
    {"penalty_alpha", Effect::kText, 0},
    {"dola_layers", Effect::kText},
    {"encoder_repetition_penalty", Effect::kText, 1},
    {"no_repeat_ngram_size", Effect::kText, 0},
    {"bad_words_ids", Effect::kText},
    {"force_words_ids", Effect::kText},
    {"constraints", Effect::kText},
    {"forced_bos_token_id", Effect::kText, -1},
    {"forced_eos_token_id", Effect::kText, -1},
    {"forced_decoder_ids", Effect::kText},
    {"exponential_decay_length_penalty", Effect::kText},
    {"suppress_tokens", Effect::kText},
    {"begin_suppress_tokens", Effect::kText},
    {"sequence_bias", Effect::kText},
    {"token_healing", Effect::kText},
    {"guidance_scale", Effect::kText, 1},
    {"watermarking_config", Effect::kText},
    {"assistant_ensemble_weight", Effect::kText, 0},
    {"min_p", Effect::kSampledText, 0},
    {"top_h", Effect::kSampledText, 1},
    {"typical_p", Effect::kSampledText, 1},
    {"epsilon_cutoff", Effect::kSampledText, 0},
    {"eta_cutoff", Effect::kSampledText, 0},
};

/// Generation keys of config.json or else its text_config, which Transformers uses for folders older than
/// generation_config.json; null is unset. bos_token_id is excluded: our runs write the tokenizer's, which
/// need not begin their documents.
json keys_of_model(const json& hf_config) {
  json found = json::object();
  for (const json& object :
       {hf_config, hf_config.is_object() ? hf_config.value("text_config", json()) : json()})
    for (const Key& key : kKeys)
      if (const std::string name(key.name);
          object.is_object() && name != "bos_token_id" && !is_unset(object, name.c_str()))
        found.emplace(name, object.at(name));  // the outer object takes precedence
  return found;
}

bool is_neutral(const json& value, double neutral) {
  if (value.is_number()) return value.get<double>() == neutral;
  if (value.is_boolean()) return !value.get<bool>();
  return value.is_null() || value.empty();
}

std::vector<std::string> not_applied_of(const json& file, bool do_sample, const std::string& path) {
  std::vector<std::string> found;
  for (const auto& [name, value] : file.items()) {
    const auto* key = std::ranges::find(kKeys, name, &Key::name);
    const bool known = key != std::end(kKeys);
    if (known && (key->effect == Effect::kApplied || key->effect == Effect::kNone)) continue;
    if (known && key->effect == Effect::kSampledText && !do_sample) continue;
    if (is_neutral(value, known ? key->neutral : 0)) continue;
    found.push_back(fmt::format("{}: {} {}; got {}; the text may differ from that of Transformers", path,
                                name, known ? "is not applied" : "is unknown and not applied",
                                shortened(value)));
  }
  return found;
}

json read_object(const fs::path& path) {
  json file = checkpoint::read_json(path);
  if (!file.is_object())
    throw DataError(
        fmt::format("{} must be a JSON object; got {}; copy it again", path.string(), shortened(file)));
  return file;
}

void read_keys(const json& file, GenerationConfig& config) {
  const std::string& path = config.path;
  constexpr double kAny = std::numeric_limits<double>::infinity();
  if (!is_unset(file, "do_sample")) {
    if (!file.at("do_sample").is_boolean())
      reject(path, "do_sample", "must be true or false", file.at("do_sample"));
    config.do_sample = file.at("do_sample").get<bool>();
  }
  config.eos_ids = eos_ids_of(file, path);
  if (!config.eos_ids && file.contains("eos_token_id")) config.eos_ids.emplace();  // null: no end
  if (!is_unset(file, "bos_token_id")) config.bos = token_id(file.at("bos_token_id"), "bos_token_id", path);
  config.values = {.temperature = number(file, "temperature", path, 0, kAny),
                   .top_k = integer(file, "top_k", path, 0),
                   .top_p = number(file, "top_p", path, 0, 1),
                   .repetition_penalty = number(file, "repetition_penalty", path, 0, kAny)};
  // 0 keeps the most probable token in Transformers but all tokens in our setting: use the smallest number.
  if (config.values.top_p == 0.0) config.values.top_p = std::numeric_limits<double>::min();
  if (config.values.repetition_penalty == 0.0)
    reject(path, "repetition_penalty", "must be above 0", file.at("repetition_penalty"));
  config.max_new_tokens = integer(file, "max_new_tokens", path, 1);
  config.max_length = integer(file, "max_length", path, 1);
  config.not_applied = not_applied_of(file, config.do_sample, path);
}

}  // namespace

GenerationConfig read_generation_config(const fs::path& folder, const json& hf_config) {
  GenerationConfig config;
  const fs::path file = folder / kFile;
  const json model_keys = keys_of_model(hf_config);
  std::error_code absent;
  if (fs::exists(file, absent)) {
    config.path = file.string();
    read_keys(read_object(file), config);
    if (config.eos_ids || !model_keys.contains("eos_token_id")) return config;
    config.path = (folder / "config.json").string();
    config.eos_ids = eos_ids_of(model_keys, config.path);
  } else if (!model_keys.empty()) {
    config.path = (folder / "config.json").string();
    read_keys(model_keys, config);
  }
  return config;
}

Sampling sampling_of(const GenerationConfig& config, const SamplingValues& given, std::uint64_t seed) {
  const SamplingValues& file = config.values;
  const bool sample = config.do_sample || given.requests_sampling();
  Sampling sampling{.temperature = 0.0, .seed = seed};
  if (sample) {
    sampling.temperature = file.temperature.value_or(1.0);
    sampling.top_k = file.top_k.value_or(config.do_sample ? kDefaultTopK : sampling.top_k);
    sampling.top_p = file.top_p.value_or(1.0);
  }
  sampling.temperature = given.temperature.value_or(sampling.temperature);
  sampling.top_k = given.top_k.value_or(sampling.top_k);
  sampling.top_p = given.top_p.value_or(sampling.top_p);
  sampling.repetition_penalty = given.repetition_penalty.value_or(file.repetition_penalty.value_or(1.0));
  return sampling;
}

std::int64_t new_tokens_of(const GenerationConfig& config, std::int64_t prompt, std::int64_t fallback) {
  if (config.max_new_tokens) return *config.max_new_tokens;
  if (!config.max_length) return fallback;
  if (*config.max_length <= prompt)
    throw ConfigError(fmt::format(
        "--max-new-tokens must be given if the prompt reaches the checkpoint's max_length; got max_length {} "
        "and a prompt of {} tokens; set --max-new-tokens N",
        *config.max_length, prompt));
  return *config.max_length - prompt;
}

}  // namespace colonnade::inference
