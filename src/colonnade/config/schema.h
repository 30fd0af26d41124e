// The one table of settings: every flag is declared once, with its type, default, help and the field
// of config::Run behind it. Command line, YAML, help, reference page and dump are made from it.
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

/// What becomes of a flag of Megatron's.
enum class Class : unsigned char {
  kImplemented,  ///< read into a field of config::Run
  kAlways,       ///< true here whatever is asked; accepted and said once
  kRefused,      ///< not part of this version; an error unless it asks for Megatron's own default
};

enum class Kind : unsigned char { kSwitch, kInteger, kNumber, kText, kChoice, kList };
std::string_view name(Kind kind);  ///< "integer", "number", ...

/// Where a flag that is always so says less than its help, or nothing: what it does then.
struct Idle {
  bool (*is_so)(const Run&);
  std::string what;
};

/// One setting. `key` is its YAML key and Megatron's destination name.
struct Setting {
  std::string key;
  std::string flag;                  ///< canonical spelling, e.g. "--num-layers"
  std::vector<std::string> aliases;  ///< further spellings that mean the same
  std::vector<std::string>
      off_aliases;  ///< further spellings that switch it off, e.g. "--disable-bias-linear"
  std::string group;
  Class cls = Class::kImplemented;
  Kind kind = Kind::kSwitch;
  bool nullable = false;                       ///< may be unset: `key: null` in YAML
  std::vector<std::string> choices;            ///< of kChoice; of kAlways: the values accepted, empty: any
  std::map<std::string, std::string> missing;  ///< values that Megatron has, and the feature that lacks here
  std::optional<double> min, max;              ///< inclusive range of numbers
  std::string unit;
  std::string help;              ///< what it does; why it is always so; why it is refused
  std::string way_out;           ///< of kRefused
  std::string megatron_default;  ///< where it differs from ours, and of kRefused
  std::string shorthand_key;     ///< `--swiglu` is shorthand for shorthand_key = shorthand_word
  std::string shorthand_word;
  std::vector<Idle> idle;  ///< of kAlways: the first that is so replaces `help` in the run's note
  bool common = false;     ///< shown by the short --help
  bool own = false;        ///< not one of Megatron's flags
  bool no_effect = false;  ///< of kAlways: changes no result either way, so that switching it off is no news

  /// Writes the words into the run; returns "" or the rule they break ("must be an integer").
  std::string (*set)(Run&, const Words&) = nullptr;
  /// The value as words; nothing when unset. Null for shorthands, which no dump holds.
  std::optional<Words> (*get)(const Run&) = nullptr;

  /// The flag that switches a kSwitch off: its first off alias, else "--no-..." .
  [[nodiscard]] std::string off_flag() const;
  /// The default as text: "128", "true", "unset".
  [[nodiscard]] std::string default_text() const;
};

/// What a spelling means: the setting, and whether it switches it off.
struct Match {
  const Setting* setting = nullptr;
  bool off = false;
};

/// Every setting, in the order of the help. Built once, never changed.
const std::vector<Setting>& schema();

/// The setting of a flag or YAML key in any spelling (leading dashes dropped, '-' and '_' equal).
std::optional<Match> find(std::string_view spelling);

/// The setting with this key. Throws Error when there is none.
const Setting& setting(std::string_view key);

/// Sets one field by key from words, checking range and choices. Returns "" or the broken rule.
std::string assign(Run& run, const Setting& setting, const Words& words);

/// The value as text, words joined by a space; "unset" when it has none.
std::string text_of(const Run& run, const Setting& setting);

}  // namespace colonnade::config
