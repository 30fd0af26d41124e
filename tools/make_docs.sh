#!/usr/bin/env bash
# Writes the generated pages of docs/reference: settings.md from the schema, rules.md from the table of
# rules, verbs.md from the executable.
#
#   tools/make_docs.sh BUILD     BUILD holds the executable `colonnade`
set -euo pipefail
cd "$(dirname "$0")/.."
colonnade=$1/colonnade

# Help is wrapped for a terminal and goes into the page as it is, up to the settings of a run; what depends on the
# machine is put in words.
# shellcheck disable=SC2016  # the backticks are Markdown's
verbs_page() {
  printf '# Verbs\n\nMade by `tools/make_docs.sh` from `colonnade help`; do not edit. Settings of a run: [settings.md](settings.md).\n'
  local verb sub
  "$colonnade" help | awk '/^  [a-z]/ {print $1}' | while read -r verb; do
    section '##' "$verb"
    for sub in $(sub_verbs "$verb"); do
      [ "$("$colonnade" help "$verb")" = "$("$colonnade" help "$verb" "$sub")" ] || section '###' "$verb" "$sub"
    done
  done
}

# The words that completion offers after a verb, but for those of help and completion, which take no flags.
sub_verbs() {
  case "$1" in help | completion) return ;; esac
  "$colonnade" completion bash | sed -n "s|^    $1/) plain=(\(.*\)) ;;\$|\1|p"
}

section() {
  local level=$1
  shift
  printf '\n%s %s\n\n```\n' "$level" "$*"
  "$colonnade" help "$@" | sed -E -e "/^run:$/,\$d" -e "s/^(  --workers N .*\[)[0-9]+;/\1number of cores;/"
  printf '```\n'
}

"$colonnade" help --markdown >docs/reference/settings.md
"$colonnade" help --rules >docs/reference/rules.md
verbs_page >docs/reference/verbs.md
git --no-pager diff --stat -- docs/reference
echo "docs: docs/reference is up to date"
