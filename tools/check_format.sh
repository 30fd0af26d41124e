#!/usr/bin/env bash
# Checks that all C++ and CUDA sources are as clang-format 14 writes them; `--apply` rewrites them;
# paths limit it to those.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=(--dry-run --Werror)
if [ "${1:-}" = --apply ]; then mode=(-i); shift; fi
list() {
  if [ $# -gt 0 ]; then printf '%s\0' "$@"
  else find src apps tests examples benchmarks -name vectors -prune -o -type f \
         \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print0 2>/dev/null
  fi
}
list "$@" | xargs -0 -r -n 16 -P "$(nproc)" clang-format-14 "${mode[@]}"
echo "format: $(list "$@" | tr -cd '\0' | wc -c) files are formatted"
