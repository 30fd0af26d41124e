// Command line and YAML to config::Run. All faults are found in one pass and reported together.
//
//   config::Run run = config::parse(arguments);   // what follows `pretrain`
//   config::fill(run, values_of(config_json), "llama/config.json");
//   run.parallel.world_size = place.world_size;
//   config::derive(run);
//   rules::require(run);                            // rules between settings
#pragma once

#include <map>
#include <string>
#include <vector>

#include "colonnade/config/schema.h"
#include "colonnade/config/use.h"

namespace colonnade::config {

/// A flag of one verb that is no setting of the run, e.g. `generate --prompt TEXT`.
struct Extra {
  std::string flag;  ///< "--prompt"; '_' and '-' are equal
  int values = 1;    ///< words it takes: 0, 1, or -1 for all up to the next flag
  std::string help;
};

/// The flags of `extras`.
std::vector<std::string> flags_of(const std::vector<Extra>& extras);

/// What was read, and all that is wrong with it.
struct Parsed {
  Run run;
  std::map<std::string, Words> extras;  ///< by flag, those that were given
  std::vector<std::string> faults;      ///< "<thing>: <rule>; got <values>; <way out>"; empty: all is well
  bool cut_short = false;  ///< a YAML file cannot be read, or there is no such family: do not judge the rest
};

/// Whether `key` was given on the command line, not by a file.
bool typed(const Run& run, const std::string& key);

/// What messages call a given setting: a switch that was switched off on the command line has the flag that
/// does so, whose values are the other way round.
struct AsGiven {
  AsGiven(const Run& run, const Setting& setting);
  /// The setting's value `text` as one of `flag`.
  [[nodiscard]] std::string value(const std::string& text) const;

  std::string flag;
  bool turned = false;
};

/// Reads `[family] --flag value ... --config run.yaml`. The command line wins over YAML, a later
/// flag over an earlier one. `--no-x` switches x off; '_' and '-' are equal; `--x=value` works too. A
/// shorthand that is switched off (`--no-bf16`) takes its word back where a lower level says it.
/// An unknown flag is compared with `extras` and with what `use` reads. Never throws for what the user typed.
Parsed parse_all(const std::vector<std::string>& arguments, const std::vector<Extra>& extras = {},
                 Use use = Use::kTrain);

/// As parse_all. Throws ConfigError with all faults.
Run parse(const std::vector<std::string>& arguments);

/// Throws ConfigError when there are faults: one message with every one on its own line.
void require_none(const std::vector<std::string>& faults);

/// Sets by key; the value as it would be typed, words of a list separated by a space, "unset" for
/// none where the setting may be unset. Throws ConfigError when
/// it breaks the setting's type or range.
void set(Run& run, std::string_view key, std::string_view value);

/// Fills the settings that were not given, and those of checkpoint_wins, from a checkpoint's or a Hugging
/// Face folder's values. Keys are those of the schema. Throws ConfigError naming both sides of every other
/// contradiction between a given setting and `values`.
void fill(Run& run, const std::map<std::string, std::string>& values, const std::string& source);

/// Whether the value of a checkpoint or folder replaces a given one of the setting `key`: with
/// --use-checkpoint-args, for what Megatron replaces. The sizes num_layers, hidden_size, ffn_hidden_size,
/// num_attention_heads, kv_channels, max_position_embeddings and seq_length, and settings that Megatron does
/// not read from a checkpoint, must agree with it. Source: Megatron's training/checkpointing.py
/// (load_args_from_checkpoint).
bool checkpoint_wins(const Run& run, std::string_view key);

/// Sets `key` to the value of a checkpoint, in the place of a given one: the setting is not given any more,
/// and a value that differs is a line in the notes. Throws as set.
void overrule(Run& run, std::string_view key, const std::string& value, const std::string& source);

/// Settings outside their own range or choices, as "<thing>: <rule>; got <value>; <way out>". Empty
/// after parse; runs made by hand can have some.
struct RangeFault {
  std::string key, rule, got;
};
std::vector<RangeFault> out_of_range(const Run& run);

}  // namespace colonnade::config
