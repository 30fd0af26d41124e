// Completion scripts: verbs, then sub-verbs, then the verb's flags, choices or files. All three shells find
// the verb and sub-verb in the words before the cursor; "VERB/SUB" selects the completions.
#include "colonnade/config/completion.h"

#include <algorithm>

#include "colonnade/base/error.h"
#include "colonnade/config/access.h"

namespace colonnade::config {

namespace {

/// Flags of settings offered to a command of this use, with their help: canonical flags and off flags.
std::vector<VerbFlag> settings(Use use) {
  std::vector<VerbFlag> out{{"--help", "", "the most used settings"}, {"--help-all", "", "all settings"}};
  for (const Setting& s : schema()) {
    if (s.cls == Class::kUnsupported || !reads(use, s)) continue;
    out.push_back({s.flag, s.kind == Kind::kSwitch ? "" : "VALUE",
                   s.shorthand_key.empty() ? s.help : "short for " + s.shorthand_word});
    if (s.kind == Kind::kSwitch && s.off_flag() != s.flag && s.cls == Class::kImplemented)
      out.push_back({s.off_flag(), "", "turns " + s.flag + " off"});
  }
  return out;
}

/// Allowed values of a setting; empty if it is not a choice.
Words choices(const Setting& s) {
  if (s.cls == Class::kUnsupported || s.kind == Kind::kSwitch) return {};
  Words words = s.choices;
  std::erase(words, "");
  return words;
}

std::string flag_words(const std::vector<VerbFlag>& extras) {
  Words flags;
  for (const VerbFlag& extra : extras) flags.push_back(extra.flag);
  return fmt::format("{}", fmt::join(flags, " "));
}

/// The verbs, or the sub-verbs of `verb`, in order.
std::string names(const std::vector<VerbCompletion>& offers, const std::string& verb) {
  Words words;
  for (const VerbCompletion& offer : offers) {
    const std::string& word = verb.empty() ? offer.verb : offer.sub;
    const bool wanted = verb.empty() || offer.verb == verb;
    if (wanted && !word.empty() && std::find(words.begin(), words.end(), word) == words.end())
      words.push_back(word);
  }
  return fmt::format("{}", fmt::join(words, " "));
}

std::string key_of(const VerbCompletion& offer) {
  return offer.verb + "/" + (offer.sub.empty() ? "*" : offer.sub);
}

/// Completions after a verb's own flags. `all` is the script variable with all settings; a verb that reads
/// only some of them lists them explicitly.
std::string setting_completions(const VerbCompletion& offer, const char* all,
                                std::string (*written)(const std::vector<VerbFlag>&)) {
  if (!offer.settings) return "--help";
  return *offer.settings == Use::kTrain ? all : written(settings(*offer.settings));
}

/// Shared by bash and zsh: `plain` words or `flags` by "VERB/SUB", choices by the preceding flag.
/// `offer_words` is the shell command that offers the words in place of {}.
std::string cases(const std::vector<VerbCompletion>& offers, const std::string& offer_words) {
  std::string out = "  case \"$verb/$sub\" in\n";
  out += fmt::format("    /) plain=({}) ;;\n", names(offers, ""));
  std::string before;
  for (const VerbCompletion& offer : offers) {
    if (!offer.sub.empty() && offer.verb != before)
      out += fmt::format("    {}/) plain=({}) ;;\n", offer.verb, names(offers, offer.verb));
    before = offer.verb;
    out += fmt::format("    {}) flags=({} {}){} ;;\n", key_of(offer), flag_words(offer.flags),
                       setting_completions(offer, "${settings[@]}", flag_words),
                       offer.settings ? "; of_run=1" : "");
  }
  out += "  esac\n  if [[ -n $of_run ]]; then\n    case \"$before\" in\n";
  for (const Setting& s : schema()) {
    if (!choices(s).empty())
      out += fmt::format("      {}) {}; return ;;\n", s.flag,
                         fmt::format(fmt::runtime(offer_words), fmt::join(choices(s), " ")));
  }
  return out + "    esac\n  fi\n";
}

std::string bash(const std::vector<VerbCompletion>& offers) {
  return fmt::format(R"(# bash completion of colonnade; use: source <(colonnade completion bash)
_colonnade() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" verb="" sub="" of_run="" at
  local -a plain=() flags=() settings=({})
  for ((at = 1; at < COMP_CWORD; at++)); do
    case "${{COMP_WORDS[at]}}" in
      --) if [[ $verb == launch ]]; then verb=""; sub=""; fi ;;
      -*) ;;
      *) if [[ -z $verb ]]; then verb="${{COMP_WORDS[at]}}"; elif [[ -z $sub ]]; then sub="${{COMP_WORDS[at]}}"; fi ;;
    esac
  done
{}  if [[ ${{#plain[@]}} -gt 0 && $word != -* ]]; then COMPREPLY=($(compgen -W "${{plain[*]}}" -- "$word")); return; fi
  if [[ $word == -* ]]; then COMPREPLY=($(compgen -W "${{flags[*]}}" -- "$word")); else COMPREPLY=($(compgen -f -- "$word")); fi
}}
complete -o filenames -F _colonnade colonnade
)",
                     flag_words(settings(Use::kTrain)),
                     cases(offers, "COMPREPLY=($(compgen -W \"{}\" -- \"$word\"))"));
}

std::string zsh(const std::vector<VerbCompletion>& offers) {
  return fmt::format(R"(#compdef colonnade
# zsh completion of colonnade; use: source <(colonnade completion zsh)
_colonnade() {{
  local word="$words[CURRENT]" before="$words[CURRENT-1]" verb="" sub="" of_run="" at
  local -a plain flags settings=({})
  for ((at = 2; at < CURRENT; at++)); do
    case "$words[at]" in
      --) if [[ $verb == launch ]]; then verb=""; sub=""; fi ;;
      -*) ;;
      *) if [[ -z $verb ]]; then verb="$words[at]"; elif [[ -z $sub ]]; then sub="$words[at]"; fi ;;
    esac
  done
{}  if [[ $#plain -gt 0 && $word != -* ]]; then compadd -- $plain; return; fi
  if [[ $word == -* ]]; then compadd -- $flags; else _files; fi
}}
compdef _colonnade colonnade
)",
                     flag_words(settings(Use::kTrain)), cases(offers, "compadd -- {}"));
}

/// Flags and their help as words of fish: 'FLAG<tab>HELP' in single quotes.
std::string fish_words(const std::vector<VerbFlag>& extras) {
  std::string out;
  for (const VerbFlag& extra : extras) {
    std::string help;
    for (const char c : extra.help)
      help += c == '\'' || c == '\\' ? fmt::format("\\{}", c) : std::string(1, c);
    out += fmt::format(" '{}\t{}'", extra.flag, help);
  }
  return out;
}

std::string fish(const std::vector<VerbCompletion>& offers) {
  std::string by_verb = fmt::format("        case /\n            set plain {}\n", names(offers, ""));
  std::string before;
  for (const VerbCompletion& offer : offers) {
    if (!offer.sub.empty() && offer.verb != before)
      by_verb +=
          fmt::format("        case {}/\n            set plain {}\n", offer.verb, names(offers, offer.verb));
    before = offer.verb;
    by_verb += fmt::format("        case '{}'\n            set flags{} {}\n", key_of(offer),
                           fish_words(offer.flags), setting_completions(offer, "$settings", fish_words));
    if (offer.settings) by_verb += "            set of_run 1\n";
  }
  std::string by_flag;
  for (const Setting& s : schema()) {
    if (!choices(s).empty())
      by_flag +=
          fmt::format("            case {}\n                string join -- \\n {}\n                return\n",
                      s.flag, fmt::join(choices(s), " "));
  }
  return fmt::format(R"(# fish completion of colonnade; use: colonnade completion fish | source
function __colonnade_offers
    set -l words (commandline -opc)
    set -l before $words[-1]
    set -e words[1]
    set -l verb ''
    set -l sub ''
    set -l of_run ''
    set -l plain
    set -l flags
    set -l settings{}
    for word in $words
        switch $word
            case '--'
                if test "$verb" = launch
                    set verb ''
                    set sub ''
                end
            case '-*'
            case '*'
                if test -z "$verb"
                    set verb $word
                else if test -z "$sub"
                    set sub $word
                end
        end
    end
    switch "$verb/$sub"
{}    end
    if test -n "$of_run"
        switch "$before"
{}        end
    end
    string join -- \n $plain $flags
end
complete -c colonnade -n __fish_use_subcommand -f
complete -c colonnade -a '(__colonnade_offers)'
)",
                     fish_words(settings(Use::kTrain)), by_verb, by_flag);
}

}  // namespace

std::string completion(const std::string& shell, const std::vector<VerbCompletion>& offers) {
  if (shell == "bash") return bash(offers);
  if (shell == "zsh") return zsh(offers);
  if (shell == "fish") return fish(offers);
  throw ConfigError(
      fmt::format("completion: the shell must be bash, zsh or fish; got \"{}\"; choose one of them", shell));
}

}  // namespace colonnade::config
