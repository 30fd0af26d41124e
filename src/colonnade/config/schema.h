// The table of settings: every flag is declared once, with its type, default, help and field of config::Run.
// Command line, YAML, help, reference page and dump are generated from it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "colonnade/config/run.h"

namespace colonnade::config {

/// A value as typed: one word, or several for lists.
using Words = std::vector<std::string>;

/// Support class of a Megatron flag.
enum class Class : unsigned char {
  kImplemented,  ///< read into a field of config::Run
  kNoOp,         ///< accepted for compatibility, without effect; noted once
  kUnsupported,  ///< not supported; an error unless it has Megatron's default
};

enum class Kind : unsigned char { kSwitch, kInteger, kNumber, kText, kChoice, kList };
std::string_view name(Kind kind);  ///< "integer", "number", ...

/// Note about a no-op flag that replaces its help for runs where `applies` holds.
struct ConditionalNote {
  bool (*applies)(const Run&);
  std::string text;
};

/// One setting. `key` is its YAML key and Megatron's destination name.
struct Setting {
  std::string key;
  std::string flag;                      ///< canonical spelling, e.g. "--num-layers"
  std::vector<std::string> aliases;      ///< alternative spellings
  std::vector<std::string> off_aliases;  ///< spellings that turn it off, e.g. "--disable-bias-linear"
  std::string group;
  Class cls = Class::kImplemented;
  Kind kind = Kind::kSwitch;
  bool nullable = false;             ///< may be unset: `key: null` in YAML
  std::vector<std::string> choices;  ///< of kChoice; of no-op flags: accepted values, empty: any
  std::map<std::string, std::string> unsupported_values;  ///< value of Megatron's: unsupported feature
  std::optional<double> min, max;                         ///< inclusive range of numbers
  std::string unit;
  std::string help;  ///< effect of the setting; of no-op flags the behavior here; of unsupported ones the
                     ///< missing feature
  std::string fix;   ///< fix clause of kUnsupported
  std::string megatron_default;  ///< if it differs from ours, and of kUnsupported
  std::string shorthand_key;     ///< `--swiglu` is shorthand for shorthand_key = shorthand_word
  std::string shorthand_word;
  std::vector<ConditionalNote>
      conditional_notes;        ///< of kNoOp: the first that applies replaces `help` in the note
  bool defines_model = false;   ///< of a group that describes the model, which its checkpoints carry
  bool training_only = false;   ///< of no effect on other commands; never part of a model's description
  bool common = false;          ///< shown by the short --help
  bool colonnade_only = false;  ///< not a Megatron flag
  bool no_effect = false;       ///< of kNoOp: changes no result either way, so turning it off needs no note

  /// Parses the words into the run; returns "" or the violated rule ("must be an integer").
  std::string (*set)(Run&, const Words&) = nullptr;
  /// The value as words; empty if unset. Null for shorthands, which are not dumped.
  std::optional<Words> (*get)(const Run&) = nullptr;

  /// Flag that turns a kSwitch off: its first off alias, else "--no-...".
  [[nodiscard]] std::string off_flag() const;
  /// The default as text: "128", "true", "unset".
  [[nodiscard]] std::string default_text() const;
};

/// Result of a lookup: the setting, and whether the spelling turns it off.
struct Match {
  const Setting* setting = nullptr;
  bool off = false;
};

/// All settings, in the order of the help. Built once, immutable.
const std::vector<Setting>& schema();

/// The setting of a flag or YAML key in any spelling (leading dashes dropped, '-' and '_' equal).
std::optional<Match> find(std::string_view spelling);

/// The setting with this key. Throws Error if there is none.
const Setting& setting(std::string_view key);

/// The rule of range and choices that the words violate as the setting's value in `run`; "" if none.
std::string violated_rule(const Run& run, const Setting& setting, const Words& words);

/// Sets one field from words that violate no rule. Returns "" or the violated rule.
std::string assign(Run& run, const Setting& setting, const Words& words);

/// The value as text, words joined by spaces; "unset" if it has none.
std::string text_of(const Run& run, const Setting& setting);

}  // namespace colonnade::config
