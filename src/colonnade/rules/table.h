// Rows of the rule table, grouped by topic. Private to rules/.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "colonnade/config/schema.h"
#include "colonnade/rules/rules.h"

namespace colonnade::rules {

/// Violation of a rule, the parts of its message: "<thing> <rule>; got <got>; <fix>". `rule` continues
/// `thing` as a verb phrase: "must be at least --seq-length", "requires --bf16".
struct Finding {
  std::string thing, rule, got;
  std::vector<Edit> edits;
  std::string fix;         ///< empty: derived from the edits
  bool missing = false;    ///< a required setting was not given; nothing else is wrong
  bool of_data = false;    ///< with `missing`: only needed to read data, which a plan does not
  bool of_device = false;  ///< about the device of this machine, which a plan does not use

  /// Appends one more setting that breaks the rule: its value and the value that fixes it. A switch that is
  /// off is named by its negative flag.
  void add(const config::Setting& s, const std::string& given, const std::string& fixed) {
    const char* comma = edits.empty() ? "" : ", ";
    const bool off = s.kind == config::Kind::kSwitch && given == "false";
    thing += comma + (off ? s.off_flag() : s.flag);
    got += comma + (off ? "true" : given);
    edits.push_back({s.key, fixed});
  }
  /// Appends the setting `key` if `given`.
  void add_if(const config::Run& run, bool given, const char* key, const char* fixed) {
    if (!given) return;
    const config::Setting& s = config::setting(key);
    add(s, config::text_of(run, s), fixed);
  }
};

struct Rule {
  const char* id;
  bool training;  ///< applies to training only
  std::optional<Finding> (*check)(const config::Run&);
  const char* example;  ///< settings that break this rule only, on top of its group's valid run
  const char* why;      ///< reason for the rule; empty if the message says it
  /// Keys that the check reads besides those of its edits, separated by spaces. The rule is skipped if the
  /// value of any of them could not be parsed.
  const char* inputs = "";
};

/// Rules of one file, and settings that break none of them: "key=value; key=value".
struct RuleGroup {
  const char* title;
  std::span<const Rule> rules;
  const char* valid_settings = "";  ///< on top of kValidRun
};

/// Run that breaks no rule: tp 2 x pp 2 x dp 2.
inline constexpr const char* kValidRun =
    "num_layers=8; hidden_size=64; num_attention_heads=8; vocab_size=100; max_position_embeddings=32; "
    "seq_length=32; micro_batch_size=2; global_batch_size=16; train_iters=100; lr=0.001; mock_data=true; "
    "tensor_model_parallel_size=2; pipeline_model_parallel_size=2; world_size=8";

/// Whether `s`, which has no effect without the setting `other`, was given a non-default value. False if a
/// config file sets `s` and the command line disabled `other`.
bool is_given_without_effect(const config::Run& run, const config::Setting& s, const char* other);

/// Whether the batch size changes during the run, or should according to settings that break a rule.
bool has_batch_schedule(const config::Run& run);
/// Micro-batch size x data-parallel size; 0 if the ranks do not form whole replicas.
std::int64_t samples_per_microbatch(const config::Run& run);
/// Edits after which every size of the batch-size schedule is a multiple of `multiple`.
std::vector<Edit> scheduled_multiples(const config::Run& run, std::int64_t multiple);

/// Default fix for the flags of a finding.
inline const char* removal(const Finding& found) {
  return found.edits.size() > 1 ? "remove the flags" : "remove the flag";
}

/// Features that BERT and T5 do not support: those of causal decoder-only models and of their packed samples.
Finding causal_only_features(const config::Run& run);

/// Settings that Megatron scripts often pass without effect.
struct NoEffectCase {
  std::array<const char*, 8> keys;
  const char* reason;
  bool (*applies)(const config::Run&);
};

/// Cases of the MoE settings, and a note on a setting that only serves benchmarks; empty without it.
std::span<const NoEffectCase> routing_no_effect_cases();
std::string routing_note(const config::Run& run);

/// All rules, in the order in which they are checked.
std::span<const RuleGroup> rule_groups();

std::span<const Rule> shape_rules();
std::span<const Rule> norm_rules();
std::span<const Rule> batch_rules();
std::span<const Rule> moe_rules();
std::span<const Rule> expert_weight_rules();
std::span<const Rule> latent_rules();
std::span<const Rule> t5_rules();
std::span<const Rule> bert_rules();
std::span<const Rule> context_rules();
std::span<const Rule> hybrid_rules();
std::span<const Rule> hybrid_routing_rules();  ///< part of hybrid_rules
std::span<const Rule> pipeline_rules();
std::span<const Rule> recompute_rules();
std::span<const Rule> sharding_rules();
std::span<const Rule> schedule_rules();
std::span<const Rule> optimizer_rules();
std::span<const Rule> data_rules();
std::span<const Rule> validation_rules();
std::span<const Rule> profiling_rules();
std::span<const Rule> effect_rules();

inline std::string text(std::int64_t value) { return fmt::format("{}", value); }
inline std::string text(double value) { return fmt::format("{}", value); }
inline std::int64_t round_up(std::int64_t value, std::int64_t step) {
  return (value + step - 1) / step * step;
}

}  // namespace colonnade::rules
