// Setting values by key: single values, values of a checkpoint, range checks.
#include <algorithm>
#include <array>

#include "colonnade/base/error.h"
#include "colonnade/config/access.h"
#include "colonnade/config/parse.h"

namespace colonnade::config {

namespace {

Words split(std::string_view text, const Setting& s) {
  if (s.nullable && text == "unset") return {};
  if (s.kind != Kind::kList) return {std::string(text)};
  Words words;
  while (!text.empty()) {
    const std::size_t space = std::min(text.find(' '), text.size());
    if (space > 0) words.emplace_back(text.substr(0, space));
    text.remove_prefix(std::min(space + 1, text.size()));
  }
  return words;
}

/// The values with `model` first, because it sets defaults of others.
std::vector<std::pair<std::string, std::string>> model_first(
    const std::map<std::string, std::string>& values) {
  std::vector<std::pair<std::string, std::string>> all(values.begin(), values.end());
  std::stable_partition(all.begin(), all.end(), [](const auto& one) { return one.first == "model"; });
  return all;
}

}  // namespace

void set(Run& run, std::string_view key, std::string_view value) {
  const Setting& s = setting(key);
  const std::string violated = assign(run, s, split(value, s));
  if (!violated.empty())
    throw ConfigError(
        fmt::format("{} {}; got \"{}\"; see `colonnade help {}`", s.flag, violated, value, s.flag));
}

bool checkpoint_wins(const Run& run, std::string_view key) {
  constexpr std::array<std::string_view, 24> kReplaced{"num_query_groups",
                                                       "position_embedding_type",
                                                       "rotary_base",
                                                       "rotary_percent",
                                                       "rotary_interleaved",
                                                       "add_bias_linear",
                                                       "add_qkv_bias",
                                                       "activation",
                                                       "untie_embeddings_and_output_weights",
                                                       "layernorm_zero_centered_gamma",
                                                       "normalization",
                                                       "apply_query_key_layer_scaling",
                                                       "attention_dropout",
                                                       "hidden_dropout",
                                                       "mtp_num_layers",
                                                       "num_experts",
                                                       "moe_layer_freq",
                                                       "moe_ffn_hidden_size",
                                                       "moe_router_topk",
                                                       "moe_router_pre_softmax",
                                                       "moe_shared_expert_intermediate_size",
                                                       "moe_router_score_function",
                                                       "moe_router_enable_expert_bias",
                                                       "moe_router_topk_scaling_factor"};
  return run.checkpoint.use_checkpoint_args && std::ranges::find(kReplaced, key) != kReplaced.end();
}

void override_from_checkpoint(Run& run, std::string_view key, const std::string& value,
                              const std::string& source) {
  const Setting& s = setting(key);
  const auto given = run.given.find(s.key);
  if (given == run.given.end() || run.invalid_keys.contains(s.key)) return set(run, key, value);
  const GivenSpelling is(run, s);
  const std::string was = text_of(run, s), from = given->second;
  set(run, key, value);
  run.given.erase(given);
  const std::string now = text_of(run, s);
  if (now == was) return;
  const auto shown = [&is](const std::string& text) { return text.empty() ? "none" : is.value(text); };
  run.notes.push_back(fmt::format("{}: --use-checkpoint-args takes {} from {}; got {} from {}", is.flag,
                                  shown(now), source, shown(was), from));
}

void fill(Run& run, const std::map<std::string, std::string>& values, const std::string& source) {
  std::vector<std::string> faults;
  for (const auto& [key, value] : model_first(values)) {
    const Setting& s = setting(key);
    if (s.set == nullptr) continue;  // follows from other settings
    Run other = run;
    const std::string violated = assign(other, s, split(value, s));
    const auto given = run.given.find(key);
    if (!violated.empty()) {
      faults.push_back(fmt::format("{} {}; got \"{}\" in {}; fix that file", s.key, violated, value, source));
    } else if (given == run.given.end() || run.invalid_keys.contains(key)) {
      run = std::move(other);
    } else if (checkpoint_wins(run, key)) {
      override_from_checkpoint(run, key, value, source);
    } else if (text_of(run, s) != text_of(other, s)) {
      const GivenSpelling is(run, s);
      const std::string there = is.value(text_of(other, s));
      const std::string fix = s.key == "model" ? fmt::format("write {} instead", there)  // no flag
                                               : fmt::format("remove {}", is.flag);
      faults.push_back(fmt::format("{} must agree with {}; got {} from {} and {} there; {}",
                                   s.key == "model" ? s.key : is.flag, source, is.value(text_of(run, s)),
                                   given->second, there, fix));
      run.invalid_keys.insert(key);
    }
  }
  require_none(faults);
}

std::vector<RangeFault> out_of_range(const Run& run) {
  std::vector<RangeFault> found;
  for (const Setting& s : schema()) {
    if (s.set == nullptr || s.get == nullptr) continue;
    const auto words = s.get(run);
    if (!words) continue;
    const std::string violated = violated_rule(run, s, *words);
    if (!violated.empty()) found.push_back({s.key, violated, text_of(run, s)});
  }
  return found;
}

}  // namespace colonnade::config
