// Completion scripts: verbs first, then flags, then the words of a choice or a file.
#include "colonnade/config/completion.h"

#include "colonnade/base/error.h"
#include "colonnade/config/access.h"

namespace colonnade::config {

namespace {

/// Every spelling that is worth offering: canonical flags and those that switch off.
std::vector<std::string> flags() {
  std::vector<std::string> out{"--help", "--help-all"};
  for (const Setting& s : schema()) {
    if (s.cls == Class::kRefused) continue;
    out.push_back(s.flag);
    if (s.kind == Kind::kSwitch && s.off_flag() != s.flag && s.cls == Class::kImplemented)
      out.push_back(s.off_flag());
  }
  return out;
}

Words choices(const Setting& s) {
  Words words = s.choices;
  std::erase(words, "");
  return words;
}

std::string bash(const std::vector<std::string>& verbs) {
  std::string cases;
  for (const Setting& s : schema()) {
    if (s.cls == Class::kRefused || s.kind != Kind::kChoice) continue;
    cases += fmt::format("    {}) COMPREPLY=($(compgen -W \"{}\" -- \"$word\")); return ;;\n", s.flag,
                         fmt::join(choices(s), " "));
  }
  return fmt::format(R"(# bash completion of colonnade; use: source <(colonnade completion bash)
_colonnade() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}"
  if [[ $COMP_CWORD -eq 1 ]]; then COMPREPLY=($(compgen -W "{}" -- "$word")); return; fi
  case "$before" in
{}  esac
  if [[ $word == --* ]]; then COMPREPLY=($(compgen -W "{}" -- "$word")); else COMPREPLY=($(compgen -f -- "$word")); fi
}}
complete -o filenames -F _colonnade colonnade
)",
                     fmt::join(verbs, " "), cases, fmt::join(flags(), " "));
}

std::string zsh(const std::vector<std::string>& verbs) {
  std::string cases;
  for (const Setting& s : schema()) {
    if (s.cls == Class::kRefused || s.kind != Kind::kChoice) continue;
    cases += fmt::format("    {}) compadd -- {}; return ;;\n", s.flag, fmt::join(choices(s), " "));
  }
  return fmt::format(R"(#compdef colonnade
# zsh completion of colonnade; use: source <(colonnade completion zsh)
_colonnade() {{
  if (( CURRENT == 2 )); then compadd -- {}; return; fi
  case "$words[CURRENT-1]" in
{}  esac
  if [[ "$words[CURRENT]" == --* ]]; then compadd -- {}; else _files; fi
}}
compdef _colonnade colonnade
)",
                     fmt::join(verbs, " "), cases, fmt::join(flags(), " "));
}

/// Text inside single quotes of fish.
std::string quoted(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '\'' || c == '\\' ? fmt::format("\\{}", c) : std::string(1, c);
  return "'" + out + "'";
}

std::string fish(const std::vector<std::string>& verbs) {
  std::string out = "# fish completion of colonnade; use: colonnade completion fish | source\n";
  out += fmt::format("complete -c colonnade -n __fish_use_subcommand -f -a '{}'\n", fmt::join(verbs, " "));
  for (const Setting& s : schema()) {
    if (s.cls == Class::kRefused) continue;
    out += fmt::format("complete -c colonnade -l {}", s.flag.substr(2));
    if (s.kind == Kind::kChoice)
      out += fmt::format(" -x -a '{}'", fmt::join(choices(s), " "));
    else if (s.kind != Kind::kSwitch)
      out += " -r";
    out +=
        fmt::format(" -d {}\n", quoted(s.shorthand_key.empty() ? s.help : "short for " + s.shorthand_word));
  }
  return out;
}

}  // namespace

std::string completion(const std::string& shell, const std::vector<std::string>& verbs) {
  if (shell == "bash") return bash(verbs);
  if (shell == "zsh") return zsh(verbs);
  if (shell == "fish") return fish(verbs);
  throw ConfigError(
      fmt::format("completion: the shell must be bash, zsh or fish; got \"{}\"; name one of them", shell));
}

}  // namespace colonnade::config
