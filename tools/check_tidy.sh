#!/usr/bin/env bash
# clang-tidy with the rules of .clang-tidy, warnings as errors, two files at a time: every source of the
# areas without LibTorch; of the others (a quarter of a minute each) those changed since main's merge
# base, or on main itself in the last TIDY_COMMITS commits (10 by default).
#
#   tools/check_tidy.sh [BUILD]     BUILD: a configured build folder, build/release by default
#   TIDY_SINCE=COMMIT               changed since this commit instead
#   TIDY_MINUTES=N                  begins no file after N minutes; what changed comes first
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/release}
[ -f "$build/compile_commands.json" ] || { echo "tidy: $build must be configured; run \`cmake --preset release\`" >&2; exit 1; }

base=${TIDY_SINCE:-$(git merge-base HEAD origin/main 2>/dev/null || true)}
if [ -z "$base" ] || [ "$base" = "$(git rev-parse HEAD)" ]; then
  base=$(git rev-list -n "${TIDY_COMMITS:-10}" HEAD | tail -n 1)
fi
mapfile -t changed < <({ git diff --name-only --diff-filter=AMR "$base"; git ls-files --others --exclude-standard; } | grep '\.cpp$' | sort -u)
rm -f "$build/tidy/late.txt"
listed=$(python3 tools/tidy_database.py "$build" "$build/tidy" "${changed[@]}")
mapfile -t files <<<"$listed"
echo "tidy: ${#files[@]} files, those with changes first"
export TIDY_BUILD=$build TIDY_END=$(($(date +%s) + ${TIDY_MINUTES:-1000} * 60))
printf '%s\0' "${files[@]}" | xargs -0 -r -n 1 -P "${TIDY_JOBS:-2}" bash -c '
  if [ "$(date +%s)" -ge "$TIDY_END" ]; then echo "$0" >>"$TIDY_BUILD/tidy/late.txt"; exit 0; fi
  exec clang-tidy-14 -p "$TIDY_BUILD/tidy" --quiet "$0"' 2> >(grep -v "warnings generated" >&2)
[ -e "$build/tidy/late.txt" ] || { echo "tidy: no warnings"; exit; }
echo "tidy: no warnings in $((${#files[@]} - $(wc -l <"$build/tidy/late.txt"))) files; TIDY_MINUTES=$TIDY_MINUTES ended before the others"
