// Parses the command line and YAML into config::Run. All errors are collected in one pass and reported
// together.
//
//   config::Run run = config::parse(arguments);   // arguments after `pretrain`
//   config::fill(run, values_of(config_json), "llama/config.json");
//   run.parallel.world_size = environment.world_size;
//   config::derive(run);
//   rules::require(run);                            // rules between settings
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "colonnade/config/schema.h"
#include "colonnade/config/use.h"

namespace colonnade::config {

/// A flag of one verb that is not a setting of the run, e.g. `generate --prompt TEXT`.
struct VerbFlag {
  std::string flag;   ///< "--prompt"; '_' and '-' are equivalent
  std::string value;  ///< placeholders of its values: "TEXT", "N M" for two; "": a switch
  std::string help;

  /// Number of values.
  [[nodiscard]] int values() const {
    return value.empty() ? 0 : 1 + static_cast<int>(std::count(value.begin(), value.end(), ' '));
  }
};

/// The flags of `extras`.
std::vector<std::string> flags_of(const std::vector<VerbFlag>& extras);

/// Parsed settings and all errors in them.
struct Parsed {
  Run run;
  std::map<std::string, Words> extras;  ///< given verb flags
  std::vector<std::string> faults;      ///< "<thing> <rule>; got <values>; <fix>"; empty: valid
  bool is_incomplete = false;           ///< unreadable YAML file or unknown model: skip other checks
};

/// Whether `key` was given on the command line rather than in a file.
bool is_from_command_line(const Run& run, const std::string& key);

/// Spelling of a given setting in messages: a switch that was turned off on the command line is named by its
/// off flag, with inverted values.
struct GivenSpelling {
  GivenSpelling(const Run& run, const Setting& setting);
  /// The setting's value `text` expressed as a value of `flag`.
  [[nodiscard]] std::string value(const std::string& text) const;

  std::string flag;
  bool inverted = false;
};

/// Parses `[model] --flag value ... --config run.yaml`. The command line takes precedence over YAML, a later
/// flag over an earlier one. `--no-x` turns x off; '_' and '-' are equivalent; `--x=value` is accepted. A
/// negated shorthand (`--no-bf16`) cancels its value where a lower level sets it. Unknown flags are compared
/// with `extras` and the settings read by `use`. Never throws for user input.
Parsed parse_all(const std::vector<std::string>& arguments, const std::vector<VerbFlag>& extras = {},
                 Use use = Use::kTrain);

/// As parse_all, but throws ConfigError with all errors.
Run parse(const std::vector<std::string>& arguments);

/// Throws one ConfigError that lists all `faults`, one per line; no-op if there are none.
void require_none(const std::vector<std::string>& faults);

/// Sets a value by key, as typed on the command line: list items separated by spaces, "unset" to unset a
/// nullable setting. Throws ConfigError if it violates the setting's type or range.
void set(Run& run, std::string_view key, std::string_view value);

/// Fills settings that were not given, and those of checkpoint_wins, from the values of a checkpoint or
/// Hugging Face folder, by schema key. Throws ConfigError that lists every other conflict between a given
/// setting and `values`.
void fill(Run& run, const std::map<std::string, std::string>& values, const std::string& source);

/// Whether a checkpoint's value replaces the given value of `key`: with --use-checkpoint-args, for the
/// settings that Megatron replaces. The sizes num_layers, hidden_size, ffn_hidden_size, num_attention_heads,
/// kv_channels, max_position_embeddings and seq_length, and settings that Megatron does not read from a
/// checkpoint, must agree with it. Source: Megatron's training/checkpointing.py (load_args_from_checkpoint).
bool checkpoint_wins(const Run& run, std::string_view key);

/// Replaces the given value of `key` by the checkpoint's: the setting no longer counts as given, and a
/// differing value adds a note. Throws as set().
void override_from_checkpoint(Run& run, std::string_view key, const std::string& value,
                              const std::string& source);

/// A setting outside its own range or choices.
struct RangeFault {
  std::string key, rule, got;
};
/// All settings out of range. Empty after parse; hand-made runs can have some.
std::vector<RangeFault> out_of_range(const Run& run);

}  // namespace colonnade::config
