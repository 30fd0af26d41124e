#!/usr/bin/env bash
# clang-tidy with the rules of .clang-tidy, warnings as errors, two files at a time: every source of the
# areas without LibTorch; of the others (a quarter of a minute each) those changed since main's merge
# base, or on main itself in the last TIDY_COMMITS commits (10 by default).
#
#   tools/check_tidy.sh [BUILD]     BUILD: a configured build folder, build/release by default
#   TIDY_SINCE=COMMIT               changed since this commit instead
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/release}
[ -f "$build/compile_commands.json" ] || { echo "tidy: $build must be configured; run \`cmake --preset release\`" >&2; exit 1; }

base=${TIDY_SINCE:-$(git merge-base HEAD origin/main 2>/dev/null || true)}
if [ -z "$base" ] || [ "$base" = "$(git rev-parse HEAD)" ]; then
  base=$(git rev-list -n "${TIDY_COMMITS:-10}" HEAD | tail -n 1)
fi
mapfile -t changed < <({ git diff --name-only --diff-filter=AMR "$base"; git ls-files --others --exclude-standard; } | grep '\.cpp$' | sort -u)
listed=$(python3 tools/tidy_database.py "$build" "$build/tidy" "${changed[@]}")
mapfile -t files <<<"$listed"
echo "tidy: ${#files[@]} files"
printf '%s\0' "${files[@]}" | xargs -0 -r -n 1 -P "${TIDY_JOBS:-2}" clang-tidy-14 -p "$build/tidy" --quiet
echo "tidy: no warnings"
