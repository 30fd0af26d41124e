#!/usr/bin/env bash
# Runs every fuzz target for some seconds, with seeds from tests/vectors or COLONNADE_VECTORS: tools/fuzz.sh BUILD SECONDS.
# Findings are in BUILD/findings; each run continues from the corpus in BUILD/corpus.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1 seconds=$2

seeds=$build/seeds
rm -rf "$seeds"
mkdir -p "$seeds"/{indexed_dataset,text_file,json_lines,chat_template,tokenizer_json,pickle,distributed_folder,safetensors,tar_shard,image_file}
.venv/bin/python tools/fuzz_seeds.py "${COLONNADE_VECTORS:-tests/vectors}" "$seeds"

failed=()
for target in "$build"/tests/fuzz/fuzz_*; do
  [ -x "$target" ] && [ ! -d "$target" ] || continue
  name=${target##*/fuzz_}
  mkdir -p "$build/corpus/$name" "$build/findings"
  log=$build/$name.log
  printf 'fuzz: %s for %s s: ' "$name" "$seconds"
  if "$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=65536 -print_final_stats=1 \
      -artifact_prefix="$build/findings/$name-" "$build/corpus/$name" "$seeds/$name" >"$log" 2>&1; then
    sed -n 's/^stat::number_of_executed_units: *//p' "$log" | sed 's/$/ inputs, nothing found/'
  else
    failed+=("$name")
    echo "FOUND"
    tail -n 30 "$log"
  fi
done
rm -rf /dev/shm/colonnade_fuzz_* /tmp/colonnade_fuzz_*
[ ${#failed[@]} = 0 ] || { echo "fuzz: found by ${failed[*]}; inputs in $build/findings" >&2; exit 1; }
