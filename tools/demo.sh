#!/usr/bin/env bash
# `make demo`: real English text becomes tokens, four processes train a small Llama on them, stop, go on in another
# layout, and the result is judged and writes a paragraph. Fails unless the model has learnt more than word counts.
#
#   tools/demo.sh BUILD [FOLDER]     BUILD holds the executable `colonnade`; FOLDER (runs/demo) is created from scratch
set -euo pipefail
cd "$(dirname "$0")/.."
colonnade=$(realpath "$1/colonnade")
out=${2:-runs/demo}
ranks=4 half=120 total=240

command -v bible >/dev/null || { echo "demo: the text comes with the package bible-kjv; run \`tools/setup.sh demo\`" >&2; exit 1; }
# A folder that a demo did not make is left alone.
if [ -e "$out" ] && [ ! -e "$out/.demo" ]; then
  echo "demo: $out must be absent or made by a demo; got another folder; name one as the second argument" >&2
  exit 1
fi
rm -rf "$out"
mkdir -p "$out"
touch "$out/.demo"

began=$SECONDS
# Says what is to come, how long it may take on 2 cores, and how long the step before took.
step() { printf '\n=== %s  [%s; %d s so far]\n' "$1" "$2" $((SECONDS - began)); }
colonnade() { printf '$ colonnade %s\n' "$*" >&2; "$colonnade" "$@"; }

step "1. Text to tokens" "about 10 s"
tools/demo_text.py documents "$out/bible.jsonl"
colonnade tokenizer train --input "$out/bible.jsonl" --output-prefix "$out/bible" --vocab-size 4000
tokenizer=(--tokenizer-type SentencePieceTokenizer --tokenizer-model "$out/bible.model")
colonnade preprocess --input "$out/bible.jsonl" --output-prefix "$out/bible" "${tokenizer[@]}" --append-eod
entropy=$(tools/demo_text.py entropy "$out/bible_text_document")
echo "entropy of single tokens: $entropy nats. A model that knows only how often each token occurs has this loss."

data=(--data-path "$out/bible_text_document" --split "95,5,0")
run=(pretrain gpt --config recipes/demo.yaml "${tokenizer[@]}" "${data[@]}" --train-iters "$total"
     --save "$out/run" --save-interval 40 --eval-interval 40 --eval-iters 8)

step "2. Train on $ranks ranks: 2 share each layer and its sequence, 2 share the layers" "1 to 2 min"
colonnade launch --nproc-per-node "$ranks" -- "${run[@]}" --exit-interval "$half" \
  --tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2

step "3. Stopped at step $half. The same run goes on: 2 pipeline stages, 2 replicas, sharded optimizer" "1 to 2 min"
colonnade launch --nproc-per-node "$ranks" -- "${run[@]}" --load "$out/run" \
  --pipeline-model-parallel-size 2 --use-distributed-optimizer

step "4. What it has learnt" "about 20 s"
colonnade checkpoint verify "$out/run/checkpoints/$(cat "$out/run/checkpoints/latest")"
colonnade evaluate --load "$out/run" | tee "$out/evaluate.txt"
printf '\nA paragraph of it:\n'
colonnade generate --load "$out/run" --prompt "And it came to pass in those days, that" --max-new-tokens 110 \
  --temperature 0.7 --top-k 40 --seed 1

loss=$(sed -n 's/.*: loss \([0-9.]*\).*/\1/p' "$out/evaluate.txt")
printf '\n=== %d s. Validation loss %s; entropy of single tokens %s (nats per token).\n' $((SECONDS - began)) "$loss" "$entropy"
awk -v loss="$loss" -v entropy="$entropy" 'BEGIN { exit !(loss != "" && loss + 0.5 < entropy) }' ||
  { echo "demo: the validation loss must be at least 0.5 below the entropy; got '$loss' and $entropy; the training is broken" >&2; exit 1; }
echo "Open $(realpath "$out/run/report.html") in a browser: loss, speed and memory over time, layout, pipeline picture."
