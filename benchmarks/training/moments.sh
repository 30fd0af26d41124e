#!/usr/bin/env bash
# Loss with Adam's moments in bf16 against moments in fp32: 1,000 steps of a Llama-style model of 4 layers and hidden size
# 128 on the text of the demo, one rank. Prints the mean training loss of the last 50 steps and the validation loss of
# both, and their differences.
#
#   benchmarks/training/moments.sh BUILD [FLAG...]    FLAG: further flags of both runs, such as --bf16
set -euo pipefail
build=$(realpath "${1:?usage: benchmarks/training/moments.sh BUILD [FLAG...]}") flags=("${@:2}")
cd "$(dirname "$0")/../.."
command -v bible >/dev/null || { echo "moments.sh: the text comes with the package bible-kjv; run \`tools/setup.sh demo\`" >&2; exit 1; }
python=$PWD/.venv/bin/python steps=${STEPS:-1000}
export OMP_NUM_THREADS=${THREADS:-1} OMP_WAIT_POLICY=passive
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$work"' EXIT

# Runs a command and prints the last lines of its output if it fails.
quietly() {
  local log
  log=$(mktemp "$work/log.XXXXXX")
  "$@" >"$log" 2>&1 || { tail -n 5 "$log" >&2; return 1; }
}

tools/demo_text.py documents "$work/bible.jsonl" >/dev/null
quietly "$build/colonnade" tokenizer train --input "$work/bible.jsonl" --output-prefix "$work/bible" --vocab-size 2000
tokenizer=(--tokenizer-type SentencePieceTokenizer --tokenizer-model "$work/bible.model")
quietly "$build/colonnade" preprocess --input "$work/bible.jsonl" --output-prefix "$work/bible" "${tokenizer[@]}" --append-eod

# Trains in the folder $work/NAME with some flags.
train() {
  mkdir "$work/$1"
  cd "$work/$1"
  quietly "$build/colonnade" pretrain gpt "${tokenizer[@]}" --data-path "$work/bible_text_document" --split 95,5,0 \
    --num-layers 4 --hidden-size 128 --num-attention-heads 4 --ffn-hidden-size 384 --swiglu --normalization RMSNorm \
    --disable-bias-linear --position-embedding-type rope --untie-embeddings-and-output-weights --seq-length 64 \
    --max-position-embeddings 64 --vocab-size 2000 --micro-batch-size 8 --global-batch-size 8 --hidden-dropout 0 \
    --attention-dropout 0 --train-iters "$steps" --lr 2e-3 --min-lr 2e-4 --lr-decay-style cosine --lr-warmup-fraction 0.05 \
    --weight-decay 0.1 --adam-beta2 0.95 --clip-grad 1.0 --eval-interval "$steps" --eval-iters 40 "${flags[@]}" "${@:2}"
}

train fp32 & first=$!
train bf16 --use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16 & second=$!
wait "$first"
wait "$second"

"$python" - "$work" <<'PYTHON'
import json, pathlib, statistics, sys
def lines(name, file):
    return [json.loads(line) for path in (pathlib.Path(sys.argv[1]) / name).rglob(file) for line in open(path)]
found = {}
for name in ("fp32", "bf16"):
    losses = [line["lm_loss"] for line in lines(name, "metrics.jsonl")]
    found[name] = (statistics.mean(losses[-50:]), lines(name, "validation.jsonl")[-1]["loss"])
    print("{} moments: {} steps, loss {:.4f} at first, {:.4f} over the last 50, validation {:.4f}".format(name, len(losses), losses[0], *found[name]))
print("bf16 - fp32: training {:+.4f}, validation {:+.4f}".format(*(b - a for a, b in zip(found["fp32"], found["bf16"]))))
PYTHON
