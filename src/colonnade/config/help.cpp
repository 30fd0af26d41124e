// Help by group, in short, full and per-flag form, and the reference page.
#include "colonnade/config/help.h"

#include "colonnade/base/error.h"
#include "colonnade/config/access.h"
#include "colonnade/config/given.h"

namespace colonnade::config {

namespace {

constexpr std::size_t kMaxChoicesWidth = 80;  // maximum width of choices printed after a flag
constexpr const char* kNamePlaceholder = "NAME";

std::string joined_choices(const Setting& s, const char* between) {
  Words words = s.choices;
  std::erase(words, "");
  return fmt::format("{}", fmt::join(words, between));
}

std::string value_name(const Setting& s) {
  switch (s.kind) {
    case Kind::kSwitch:
      return "";
    case Kind::kInteger:
      return "N";
    case Kind::kNumber:
      return "X";
    case Kind::kList:
      return "WORD ...";
    case Kind::kChoice:
      break;
    case Kind::kText:
      return "TEXT";
  }
  const std::string names = joined_choices(s, "|");
  return names.size() > kMaxChoicesWidth ? kNamePlaceholder : names;
}

std::string range(const Setting& s) {
  if (!s.min && !s.max) return "";
  if (!s.max) return fmt::format("at least {}", *s.min);
  return fmt::format("{} to {}", *s.min, *s.max);
}

std::string help_text(const Setting& s) {
  return s.shorthand_key.empty()
             ? s.help
             : fmt::format("short for {} {}", setting(s.shorthand_key).flag, s.shorthand_word);
}

/// Help text with the choices, if they are too long to print after the flag.
std::string help_with_choices(const Setting& s) {
  const bool many = s.kind == Kind::kChoice && value_name(s) == kNamePlaceholder;
  return many ? fmt::format("{}: {}", help_text(s), joined_choices(s, ", ")) : help_text(s);
}

/// Default for display; empty if it carries no information.
std::string default_note(const Setting& s) {
  const std::string text = s.default_text();
  const bool is_trivial =
      text.empty() || text == "0" || text == "unset" || (s.kind == Kind::kSwitch && text == "false");
  if (!s.shorthand_key.empty() || is_trivial || s.get == nullptr) return "";
  return s.kind == Kind::kSwitch ? "on; disable with " + s.off_flag() : text;
}

HelpRow help_row(const Setting& s) {
  const std::string note = default_note(s);
  return {s.flag, value_name(s), help_text(s), note.empty() ? Words{} : Words{note}};
}

/// Commands that read a setting, except `plan`.
Words readers(const Setting& s) {
  Words verbs{"pretrain"};
  if (reads(Use::kEvaluateData, s)) verbs.emplace_back("evaluate");
  if (reads(Use::kGenerate, s)) verbs.emplace_back("generate");
  if (reads(Use::kInspect, s)) verbs.emplace_back("data inspect");
  return verbs;
}

std::string in_cell(std::string text) {
  for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, "\\");
  return text;
}

std::string spellings(const Setting& s) {
  Words words = s.aliases;
  if (s.kind == Kind::kSwitch && (s.off_aliases.empty() || s.off_aliases[0] != s.flag))
    words.push_back(s.off_flag());
  return words.empty() ? "" : fmt::format(" (`{}`)", fmt::join(words, "`, `"));
}

std::string row(const Setting& s) {
  std::string type(name(s.kind));
  if (s.kind == Kind::kChoice) type = value_name(s);
  if (!s.unit.empty()) type += ", " + s.unit;
  if (!range(s).empty()) type += ", " + range(s);
  std::string text = help_with_choices(s);
  if (!s.megatron_default.empty()) text += fmt::format("; Megatron's default is {}", s.megatron_default);
  if (s.colonnade_only) text += "; not a Megatron flag";
  const std::string shown = s.shorthand_key.empty() ? s.default_text() : "";
  return fmt::format("| `{}`{} | `{}` | {} | {} | {} |\n", s.flag, spellings(s), s.key, in_cell(type),
                     shown.empty() ? "" : "`" + in_cell(shown) + "`", in_cell(text));
}

std::string implemented_tables() {
  std::string out, group;
  for (const Setting& s : schema()) {
    if (s.cls != Class::kImplemented) continue;
    if (s.group != group) {
      out += fmt::format(
          "\n### {}\n\n| flag | YAML key | type | default | meaning |\n|---|---|---|---|---|\n", s.group);
    }
    group = s.group;
    out += row(s);
  }
  return out;
}

std::string no_op_table() {
  std::string out = "\n| flag | accepted values | behavior |\n|---|---|---|\n";
  for (const Setting& s : schema()) {
    if (s.cls != Class::kNoOp) continue;
    out += fmt::format("| `{}` | {} | {} |\n", s.flag,
                       s.choices.empty() ? "any" : fmt::format("{}", fmt::join(s.choices, ", ")), s.help);
  }
  return out;
}

std::string unsupported_lists() {
  std::string out, group;
  for (const Setting& s : schema()) {
    if (s.cls != Class::kUnsupported) continue;
    if (s.group != group) out += fmt::format("\n- **{}**: {}.\n", s.group, s.fix);
    group = s.group;
    out += fmt::format("  `{}`\n", s.flag);
  }
  return out;
}

}  // namespace

std::vector<HelpSection> settings_help(Use use, bool all) {
  std::vector<HelpSection> sections;
  for (const Setting& s : schema()) {
    if (s.cls != Class::kImplemented || !(all || s.common) || !reads(use, s)) continue;
    if (sections.empty() || sections.back().title != s.group) sections.push_back({s.group, {}});
    sections.back().rows.push_back(help_row(s));
  }
  return sections;
}

HelpSection verb_flags_help(const std::vector<VerbFlag>& flags) {
  HelpSection section{"flags", {}};
  for (const VerbFlag& flag : flags) section.rows.push_back({flag.flag, flag.value, flag.help});
  return section;
}

std::string short_help() {
  return render({.usage = "colonnade pretrain gpt --flag value ... [--config run.yaml]",
                 .about =
                     "--help-all shows all settings, --help FLAG one. Flags are Megatron's; '_' and '-' are "
                     "equivalent, --no-x turns x off, and YAML uses the same keys.",
                 .sections = settings_help(Use::kTrain, /*all=*/false)});
}

std::string full_help() {
  return render({.usage = "",
                 .about = "All settings, with defaults in brackets.",
                 .sections = settings_help(Use::kTrain, /*all=*/true)});
}

std::string flag_help(const std::string& flag, const std::vector<VerbFlag>& extras, Use use) {
  const auto match = find(flag);
  if (!match) throw ConfigError(unknown(flag, flag, flags_of(extras), use));
  const Setting& s = *match->setting;
  std::string out = fmt::format("{}{}{}\n  {}\n", s.flag, s.kind == Kind::kSwitch ? "" : " ", value_name(s),
                                help_with_choices(s));
  const auto add = [&](std::string_view label, const std::string& text) {
    if (!text.empty()) out += fmt::format("  {}: {}\n", label, text);
  };
  if (s.cls == Class::kUnsupported) add("not supported", s.fix);
  if (s.cls == Class::kNoOp)
    add("class", s.no_effect ? "accepted without effect; noted once" : "always on here; noted once");
  add("group", s.group);
  if (s.cls == Class::kImplemented) add("read by", fmt::format("{}", fmt::join(readers(s), ", ")));
  add("YAML key", s.key);
  if (s.cls == Class::kImplemented) add("default", s.default_text());
  add("Megatron's default", s.megatron_default);
  add("unit", s.unit);
  add("range", range(s));
  if (s.kind == Kind::kSwitch) add("off", s.off_flag());
  add("also spelled", fmt::format("{}", fmt::join(s.aliases, ", ")));
  return out;
}

std::string markdown() {
  return "# Settings\n\n"
         "Generated by `colonnade help --markdown`; do not edit.\n\n"
         "Flags are Megatron's where Megatron has one. On the command line `-` and `_` are equivalent, "
         "`--flag=value` is accepted,\n"
         "the last occurrence of a flag counts, and `--no-x` turns x off. A YAML file (`--config run.yaml`) has "
         "the same names\n"
         "as flat keys; `<<` merges maps, which are defined under keys that start with `x-`. The command line "
         "takes precedence\n"
         "over YAML. Defaults are Megatron's unless stated otherwise.\n\n"
         "## Implemented\n" +
         implemented_tables() +
         "\n## Accepted without effect\n\nMegatron flags whose behavior is always on here, or which change no "
         "result. They are accepted and noted once.\n" +
         no_op_table() +
         "\n## Not supported\n\nMegatron flags that this version does not support. Each is an error with the "
         "fix given here, unless\n"
         "its value is Megatron's default.\n" +
         unsupported_lists();
}

std::optional<HelpRequest> help_request(const std::vector<std::string>& arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word == "--help-all") return HelpRequest{.all = true};
    if (word != "--help" && word != "-h") continue;
    return i + 1 < arguments.size() ? HelpRequest{.flag = arguments[i + 1]} : HelpRequest{};
  }
  return std::nullopt;
}

}  // namespace colonnade::config
